"""`dedupe`: a topic into another with each record once."""
