"""falaj beside its alternatives, from Python, at the same durability."""
