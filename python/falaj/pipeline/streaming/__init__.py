"""`aggregate` and `join`: streaming jobs that follow a topic."""
