"""A store's log beyond its machine: shipped to a place, and restored and read from there."""
