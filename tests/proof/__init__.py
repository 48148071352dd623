"""Tests that try to refute falaj: another reader, attacks, copies, wrong clocks."""
