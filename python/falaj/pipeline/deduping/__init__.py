"""`dedupe`: copy a topic into another, with each record once."""
