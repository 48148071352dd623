"""The commands of `falaj group`: what may be done with a consumer group.

Owns their arguments; what a group is, and when it may forget a topic, is for the library.
"""

from typing import Annotated

import typer

from falaj.cli import options

__all__ = ["forget"]

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the consumer group.")]


def forget(
    context: options.Context,
    store: options.StoreArgument,
    group: GroupArgument,
    topic: options.TopicArgument,
) -> None:
    """Forget the committed offsets of a consumer group in one topic that it no longer reads."""
    with options.access_of(context).store(store, "w") as opened:
        opened.forget_topic(group, topic)
