"""A store and its place beside the same client without falaj: `make bench-bucket`."""
