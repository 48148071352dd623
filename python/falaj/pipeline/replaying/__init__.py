"""`replay`: copy a topic into another, in the rhythm of its times."""
