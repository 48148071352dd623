"""The commands of `falaj place`."""

from __future__ import annotations

from falaj.cli.arguments import Group
from falaj.cli.commands.place import list_, verify

__all__ = ["GROUP"]

GROUP = Group(
    "Look at places, to which stores are shipped.",
    {"list": list_.COMMAND, "verify": verify.COMMAND},
    "A place is a bucket, another machine or a directory: s3://…, gs://…, az://…, http://…, or a "
    "path. `falaj ship` fills it, and `falaj restore` makes a store of it.",
)
