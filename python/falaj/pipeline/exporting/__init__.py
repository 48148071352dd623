"""`export`: topics to files by date, and tables over those files."""
