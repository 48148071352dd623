"""Programs of the storm: a writer and a shipper that can be killed anywhere, and their account.

The writer's records say their own offset, so a restored store needs no other witness of its order.
The shipper prints each acknowledged number with the ends of its cut: that is the account.
`python -m ship.storm writer STORE`, `python -m ship.storm shipper STORE PLACE SEED`.
"""

import os
import random
import signal
import sys
from collections.abc import Iterator, Sequence
from itertools import count

import falaj
from falaj.ship.place import Listed, Place, open_place
from falaj.ship.shipper import Options, Shipper

TOPICS = ("one", "two", "three")


class KillingPlace:
    """A place whose user is killed before or after a call, by chance."""

    def __init__(self, inner: Place, seed: int, share: float) -> None:
        self.inner, self.url, self._share = inner, inner.url, share
        self._chance = random.Random(seed)

    def _maybe(self) -> None:
        if self._chance.random() < self._share:
            os.kill(os.getpid(), signal.SIGKILL)

    def put_new(self, key: str, body: bytes) -> bool:
        """Create an object, unless the process dies."""
        self._maybe()
        made = self.inner.put_new(key, body)
        self._maybe()
        return made

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects one by one, so that a death leaves some."""
        for key in keys:
            self._maybe()
            self.inner.delete([key])

    def get(self, key: str) -> bytes | None:
        """Return an object."""
        return self.inner.get(key)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Return bytes of an object."""
        return self.inner.get_range(key, start, stop)

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """List objects."""
        return self.inner.list_after(prefix, after)


def write(path: str) -> None:
    """Append records that say their offset, until killed."""
    store = falaj.open(path)
    topics = [
        store.topic(name, log="shared" if name != "three" else None, segment_bytes=1 << 16)
        for name in TOPICS
    ]
    for step in count():
        for topic in topics:
            start = topic.end_offset
            topic.extend(
                [b"%d" % (start + n) + b"." * (step % 90) for n in range(step % 40)],
                sync="durable" if step % 5 == 0 else "interval",
            )
        if step % 50 == 49:
            topics[2].trim(before_offset=topics[2].end_offset // 2)


def ship(path: str, url: str, seed: int) -> None:
    """Ship, and print what each acknowledged number has; a checkpoint comes every few numbers."""
    store = falaj.open(path)
    place = KillingPlace(open_place(url), seed, 0.01)
    shipper = Shipper(store, place, Options(history=3600.0))
    shipper._claim()
    print("claimed", flush=True)  # noqa: T201  # the account
    for step in count(1):
        if shipper.turn():
            cut = shipper._cut
            assert cut is not None
            ends = {end.name: end.next for log in cut.logs for end in log.ends}
            told = " ".join(str(ends.get(name, 0)) for name in TOPICS)
            print(f"{shipper.shipped.number} {told}", flush=True)  # noqa: T201  # the account
        shipper.care()
        if step % 10 == 0:
            shipper.checkpoint()


if __name__ == "__main__":
    if sys.argv[1] == "writer":
        write(sys.argv[2])
    else:
        ship(sys.argv[2], sys.argv[3], int(sys.argv[4]))
