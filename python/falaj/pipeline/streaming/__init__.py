"""`aggregate` and `join`: jobs that follow a topic."""
