"""`Failed`: a figure of the demo is wrong."""

from falaj.errors import CorruptionError

__all__ = ["Failed"]


class Failed(CorruptionError, AssertionError):
    """The demo found something wrong; the message says what, and where to look."""
