"""`import_files`: append the rows of files to topics."""
