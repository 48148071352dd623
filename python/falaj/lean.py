"""What keeps `import falaj` short: `Generic` and `T` without `typing`, and `later`.

Importing `typing` takes longer than all of falaj. So the modules that `import falaj` loads have
`TYPE_CHECKING = False` and import what annotations need below `if TYPE_CHECKING:`, where only type
checkers look; what a class needs at run time is here. A test holds what a new process loads.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Generic, TypeVar

    T = TypeVar("T")
else:
    T = object()

    class Generic:
        """Lets a class be subscripted, as `typing.Generic` does."""

        __slots__ = ()
        __class_getitem__ = classmethod(type(list[int]))


__all__ = ["TYPE_CHECKING", "Generic", "T", "later"]


def later(name: str) -> object:
    """Import what few need of `falaj`, when it is asked for: the `__getattr__` of the package."""
    if name == "Position":
        from falaj import records

        return records.Position
    if name in ("repair", "verify"):
        from falaj import admin

        return getattr(admin, name)
    if name in ("Cursor", "Transaction"):
        from falaj import transactions

        return getattr(transactions, name)
    if name == "logging":
        import falaj.logging

        return falaj.logging
    raise AttributeError(f"module 'falaj' has no attribute {name!r}")
