"""A flight recorder: it is written to for ever, and holds what happened last.

Two processes write measurements to one topic, far more than it may hold. Whoever of them begins a
new file lets go of the oldest; nobody else has to be there. In the end the topic is as small as it
was told to be, and what is left is the newest, without a gap.

Run it as `python examples/flight_recorder.py STORE`.
"""

import subprocess
import sys
import time
from pathlib import Path

import falaj

ROOM = 1 << 20
FILE = 1 << 17
RECORDS = 20_000


def record(path: str, sensor: str) -> None:
    with falaj.open(path) as store:
        topic = store.topic("flight", codec="json", segment_bytes=FILE, retention_bytes=ROOM)
        for n in range(RECORDS):
            topic.append({"sensor": sensor, "n": n, "what": "x" * 100}, key=sensor.encode())


def main(path: str) -> None:
    command = [sys.executable, __file__, path]
    recorders = [subprocess.Popen([*command, sensor]) for sensor in ("left", "right")]
    if any(recorder.wait() for recorder in recorders):
        sys.exit("a recorder failed")
    with falaj.open(path) as store:
        began = time.monotonic()
        store.maintain()  # the last to write may have closed before it came to it
        topic = store.topic("flight")
        held = sum(file.stat().st_blocks * 512 for file in Path(path).glob("logs/*/*.[li][od]*"))
        print("written", topic.end_offset, "records")
        print("the oldest are gone:", topic.start_offset > 0)
        print("within its room:", held <= ROOM + FILE)
        offsets = [each.offset for each in topic]
        print("without a gap:", offsets == list(range(topic.start_offset, topic.end_offset)))
        assert time.monotonic() - began < 30


if __name__ == "__main__":
    if len(sys.argv) == 3:
        record(sys.argv[1], sys.argv[2])
    else:
        main(sys.argv[1])
