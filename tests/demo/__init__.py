"""The demo: its figures are right, it fails loudly when one is wrong, and it works end to end."""
