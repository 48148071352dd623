"""A flight recorder: it is written to without end, and holds the most recent measurements.

Two processes write measurements to one topic, far more than it may hold. The one that rolls to a
new file deletes the oldest; no other process is needed. At the end the topic is within its limit,
and holds the newest measurements, without a gap.

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
        store.maintain()  # the last writer may have closed before its retention ran
        topic = store.topic("flight")
        held = sum(file.stat().st_blocks * 512 for file in Path(path).glob("logs/*/*.[li][od]*"))
        print("written", topic.end_offset, "records")
        print("the oldest have expired:", topic.start_offset > 0)
        print("within its limit:", held <= ROOM + FILE)
        offsets = [each.offset for each in topic]
        print("without a gap:", offsets == list(range(topic.start_offset, topic.end_offset)))
        assert time.monotonic() - began < 30


if __name__ == "__main__":
    if len(sys.argv) == 3:
        record(sys.argv[1], sys.argv[2])
    else:
        main(sys.argv[1])
