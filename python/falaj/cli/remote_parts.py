"""Shared by the commands over HTTP: opening topics, and refusing options of directories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from falaj.cli.exits import Stop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from falaj_client import AnyTopic, Store

__all__ = ["refuse", "topics_of"]


def topics_of(store: Store, names: Sequence[str], *, durable: bool = False) -> list[AnyTopic[Any]]:
    """Open topics whose values are read as bytes; with `durable` only what is on disk."""
    from falaj_client.codecs import RAW

    far = "durable" if durable else None
    return [store.any_topic(name, codec=RAW, visibility=far) for name in names]


def refuse(**options: object) -> None:
    """Refuse options that only a store's directory has."""
    for name, value in options.items():
        if value:
            flag = name.replace("_", "-")
            raise Stop(f"--{flag} needs the store's directory: leave it out, or use it there")
