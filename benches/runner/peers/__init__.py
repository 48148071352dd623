"""falaj beside what people would use instead of it, from Python, at the same durability."""
