"""The demo: its figures are right, it fails loudly where one is not, and it works end to end."""
