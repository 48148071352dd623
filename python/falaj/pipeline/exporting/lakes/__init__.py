"""Tables of Delta Lake and Iceberg over the files that an export has committed.

Each format has a module, `delta` and `iceberg`, which is imported only when a config asks for it.
`lake` is what they share.
"""

from falaj.pipeline.exporting.lakes.lake import Lake, catch_up, check, of

__all__ = ["Lake", "catch_up", "check", "of"]
