"""What the compiled half shows; `make lint` holds this against the module itself."""

from typing import Final

__all__ = ["__version__"]

__version__: Final[str]
