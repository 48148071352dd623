"""An event log that many processes on one machine share: a directory, no broker, no daemon."""

from falaj._core import __version__

__all__ = ["__version__"]
