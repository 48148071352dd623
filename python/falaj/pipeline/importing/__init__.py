"""`import_files`: files to topics."""
