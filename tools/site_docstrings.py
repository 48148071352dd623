"""Docstrings as pages of the site: an `Example:` is code, not prose.

The reader of docstrings takes only `Examples:` for a section of code. Ours say `Example:`, since
most have one.
"""

from typing import Any

import griffe


class OneExample(griffe.Extension):
    """Rename the section as the reader of docstrings expects it."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the text before it is read."""
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = text.replace("\nExample:\n", "\nExamples:\n")
