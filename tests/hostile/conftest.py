"""A directory in memory, as in tests/proof: hundreds of stores sync thousands of times."""

from proof.conftest import place

__all__ = ["place"]
