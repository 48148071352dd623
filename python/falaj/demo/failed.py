"""`Failed`: a figure of the demo is not what it has to be."""

from falaj.errors import Error

__all__ = ["Failed"]


class Failed(Error, AssertionError):
    """The demo found something wrong; the message says what, and where to look."""

    remedy = "repair"
