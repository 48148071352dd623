"""`StoreShipping`: the calls of a store that ship it, and the settings that shipping obeys.

Owns these calls; the engine keeps the settings, and `falaj.ship` does the work. `Store` is the
whole class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from falaj import _core
from falaj._store_topics import StoreTopics

if TYPE_CHECKING:
    import os
    import threading
    from collections.abc import Iterable, Sequence
    from types import EllipsisType
    from typing import Never

    from falaj._admin import PlaceInfo
    from falaj._place import ShipReport
    from falaj._store import Store
    from falaj._time import Duration

__all__ = ["StoreShipping"]

_SETTINGS = ("retention_bytes", "ship_backlog_bytes", "ship_min_sync")
_PLACE = ("place", "number", "behind", "heard_us", "problem")


class StoreShipping(StoreTopics):
    """The base of `Store` that ships."""

    __slots__ = ()

    def configure(
        self,
        *,
        retention_bytes: int | EllipsisType | None = ...,
        ship_backlog_bytes: int | EllipsisType | None = ...,
        ship_min_sync: int | EllipsisType | None = ...,
        **_others: Never,  # a mistyped name, which the error tells with the one that was meant
    ) -> None:
        """Change settings of the store, on disk when this returns. The others stay.

        Limits apply from the next roll of any log on, in every process; `maintain` applies them at
        once.

        Args:
            retention_bytes: Limit of the bytes of the logs of all topics together; None lifts it.
                The oldest segments are deleted first, by the time of their newest record, whichever
                topic they belong to. Topics with `retention_protected` and the file that a log is
                written to are exempt.
            ship_backlog_bytes: How many bytes of files limits leave in each log because they were
                not shipped yet; None is 1 GiB. It applies once the store was shipped. Limits delete
                what is beyond it, and `info` counts that as `unshipped`.
            ship_min_sync: How many places must have a record before an append with `sync="remote"`
                returns; None is 1. It counts from the next acknowledgement on. A process that ships
                to fewer places is refused, or stops.

        Raises:
            NotWritable: The store was opened for reading.
            TypeError: There is no such setting.

        Example:
            >>> store.configure(retention_bytes=10 << 30)
            >>> store.info()["retention_bytes"]
            10737418240
        """
        from falaj._retention import limit, refuse_others  # few need it

        refuse_others(_others, "store.configure()", _SETTINGS)
        if ship_backlog_bytes is not ...:
            backlog = limit("ship_backlog_bytes", ship_backlog_bytes, "1 GiB")
            _core._configure_shipping(self, backlog)
        if ship_min_sync is not ...:
            _core._configure_min_sync(self, limit("ship_min_sync", ship_min_sync, "1"))
        if retention_bytes is not ...:
            _core._configure_store(self, limit("retention_bytes", retention_bytes))

    def _shipping(self) -> _core.Shipping:
        """Begin to ship the store: appends with `sync="remote"` wait for this process from now on.

        Returns:
            A context manager: at the end of its block this process stops.

        Raises:
            LockTimeout: A process ships the store already; the message names it.
            NotWritable: The store was opened for reading.
        """
        try:
            return _core._shipping(self)
        except TimeoutError as error:  # `LockTimeout`
            told = str(error).rpartition("; ")[0]
            error.args = (f"{told}; stop that process first, or let it be the one that ships",)
            raise

    def _acknowledge_ends(
        self,
        ends: Iterable[tuple[str, int, int]],
        shipped: Iterable[tuple[str, int, int]] | None = None,
        *,
        places: int = 1,
    ) -> None:
        """Acknowledge what left the machine, and wake those that wait for it.

        Args:
            ends: For each log the name of its directory, and sequence and position of an address up
                to which so many places have everything. A log that is gone is left out.
            shipped: Likewise what all places have, which retention need not keep for them; without
                it, the same.
            places: How many places have what is in `ends`.

        Raises:
            InvalidArgument: This process does not ship the store, or the store wants more places.
        """
        everywhere = None if shipped is None else list(shipped)
        _core._acknowledge_ends(self, list(ends), everywhere, places)

    def _places(self) -> list[PlaceInfo]:
        """Return what the process that ships the store wrote down of its places."""
        import json  # a program that only appends needs none of it

        try:
            noted = json.loads((self.path / "ship.json").read_bytes())
            return [{name: each[name] for name in _PLACE} for each in noted["places"]]  # type: ignore[misc]
        except (OSError, ValueError, LookupError, TypeError):
            return []  # it was never shipped, or another version wrote the file

    def _min_sync(self) -> int:
        """Return how many places must have a record, as the store's settings say now."""
        return _core._min_sync(self)

    def ship(
        self,
        place: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        once: bool = False,
        history: Duration | None = None,
        new_origin: bool = False,
        stop: threading.Event | None = None,
        **options: Any,
    ) -> ShipReport:
        """Ship the store to a place or several, as one process of its own would: `falaj ship`.

        Everything on the disk goes to the place, in order, again and again, until `stop` is set.
        Each flush of the history can be restored. Only one process of a machine ships a store. One
        on another machine, or of a copy, takes over the place, and the earlier one stops with
        `Fenced`. Each of several places gets everything, and none waits for another. An append with
        `sync="remote"` returns once as many have it as `ship_min_sync` says.

        Args:
            place: A directory on another disk, or `s3://…`, `gs://…`, `az://…`, `http://…`; or a
                list of them.
            once: Return when each place has what the store has now.
            history: How far back the place can be restored, such as "14d"; without it, seven days.
            new_origin: Begin as a new origin, beside the one that the store was until now.
            stop: Set it to end the call in order.
            **options: Options of a bucket or a peer, such as `endpoint` or `token`, for the places
                that take them.

        Raises:
            InvalidArgument: There are fewer places than `ship_min_sync`, or one twice. Or a place
                lies in the store, or the store in a place. Or no place takes an option.
            LockTimeout: Another process of this machine ships the store; the message names it.
            PlaceRefused: A place has other records than the store, or more.
            Fenced: A process on another machine, or of a copy, ships this store now.
            TwinStore: A copy of this store ships to the same place.
            UnsupportedPlace: The place cannot keep what was promised.

        Example:
            >>> store.topic("orders").append(b"first")
            0
            >>> store.ship(store.path.with_name("place"), once=True)["flushes"]
            1
        """
        from falaj._place import ship  # few need it, and it imports much

        return ship(
            cast("Store", self),
            place,
            once=once,
            history=history,
            new_origin=new_origin,
            stop=stop,
            **options,
        )
