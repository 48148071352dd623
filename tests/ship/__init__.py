"""Tests of shipping."""
