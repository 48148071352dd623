"""Tables of Delta Lake and Iceberg over the files that an export has committed.

A module for each of the two, `delta` and `iceberg`, which are imported only where they are asked
for; `lake` is what they share.
"""

from falaj.pipeline.exporting.lakes.lake import Lake, catch_up, check, of

__all__ = ["Lake", "catch_up", "check", "of"]
