"""`export`: write topics to files by date, and make tables over those files."""
