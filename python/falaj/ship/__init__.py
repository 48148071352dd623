"""Shipping: a log beyond its machine, as create-only objects in a place."""
