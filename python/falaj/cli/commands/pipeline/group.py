"""`falaj pipeline`: jobs over topics, most of them in Spark; a module for each.

A module owns its options, by the names of its config's fields. `falaj.cli.pipelines` has the common
parts, and `falaj.pipeline` does the work. A module imports that only when it runs, since the import
loads PySpark.
"""

from __future__ import annotations

from falaj.cli.arguments import Group
from falaj.cli.commands.pipeline import (
    aggregate,
    compact,
    dedupe,
    export,
    import_,
    join,
    profile,
    replay,
)

__all__ = ["GROUP"]

GROUP = Group(
    "Run jobs over topics in Spark. Needs falaj[spark].",
    {
        "export": export.COMMAND,
        "import": import_.COMMAND,
        "compact": compact.COMMAND,
        "dedupe": dedupe.COMMAND,
        "replay": replay.COMMAND,
        "profile": profile.COMMAND,
        "aggregate": aggregate.COMMAND,
        "join": join.COMMAND,
    },
    "All of it: docs/guide/pipelines.md.",
)
