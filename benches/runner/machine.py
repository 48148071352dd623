"""The machine: its kind, and its memory, which is touched once before anything is measured."""

import mmap
import os
import platform
import re
from pathlib import Path

PAGE = mmap.PAGESIZE


def warm(size: int) -> None:
    """Touch as much memory as the next step needs, and free it.

    On a virtual machine the very first use of a page is many times slower than any later one.
    Without this, the first contestant would pay for it. A machine that returns free memory to its
    host forgets within seconds, so each round that takes new memory calls this.
    """
    if size == 0:
        return
    with mmap.mmap(-1, min(size, _available() // 2)) as memory:
        for at in range(0, len(memory), PAGE):
            memory[at] = 1


def _available() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * PAGE


def describe(place: Path) -> str:
    """Describe the machine, without its name."""
    cpu = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.+)$", cpu, re.M)
    virtual = ", virtual" if re.search(r"^flags\s*:.*\bhypervisor\b", cpu, re.M) else ""
    memory = round(os.sysconf("SC_PHYS_PAGES") * PAGE / (1 << 30))
    kernel = ".".join(platform.release().split(".")[:2])
    return (
        f"{len(os.sched_getaffinity(0))} cores ({model[1] if model else platform.machine()}"
        f"{virtual}), {memory} GiB, {_file_system(place)}, Linux {kernel}, "
        f"{platform.python_implementation()} {platform.python_version()}"
    )


def neighbours() -> str:
    """Say how busy the machine was with other work; empty if it was quiet."""
    load = os.getloadavg()[0]
    return f", shared: load {load:.1f} from others when it began" if load > 0.5 else ""


def _file_system(place: Path) -> str:
    best = ("", "an unknown file system")
    for mount in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, *_ = mount.split(" ")
        if place.resolve().is_relative_to(where) and len(where) > len(best[0]):
            best = (where, kind)
    return best[1]
