"""`profile`: report the figures of a topic, as text and as a page."""
