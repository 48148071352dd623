"""Bytes that nobody wrote, and calls that fail, through Python."""
