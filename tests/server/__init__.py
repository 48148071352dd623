"""Tests of the server: a real one, on loopback, which each test starts and stops."""
