"""Corruption for tests, as a dying disk causes it."""

from pathlib import Path

__all__ = ["flip"]


def flip(path: Path, position: int) -> None:
    """Change one bit of a byte of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 4]))
