"""Tests of shipping a store to a place, of restoring it, and of the places themselves."""
