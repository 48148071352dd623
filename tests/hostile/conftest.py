"""A place in memory, as tests/proof has it: stores by the hundred sync by the thousand."""

from proof.conftest import place

__all__ = ["place"]
