"""Numbers are digits of ASCII: a command refuses those of other scripts, which Python reads."""

import pytest

import falaj as library
from cli.shell import Shell
from falaj.errors import InvalidArgument


@pytest.mark.parametrize(
    "words",
    [
        ["cat", "t", "-s", "s", "--since", "\u0665m"],
        ["cat", "t", "-s", "s", "--since", "\u0665"],
        ["cat", "t", "-s", "s", "--from", "\u0665"],
        ["cat", "t", "-s", "s", "-n", "\u0665"],
        ["tail", "t", "-s", "s", "-f", "--idle", "\u0660"],
        ["info", "-s", "s", "--lock-timeout", "\u0665"],
        ["info", "-s", "s", "--lock-timeout", "1_0"],
        ["topic", "config", "t", "-s", "s", "--retention-age", "\u0665d"],
        ["topic", "config", "t", "-s", "s", "--retention-bytes", "\u0665K"],
        ["group", "seek", "g", "t", "-s", "s", "--to", "\u0665"],
        ["pipeline", "replay", "t", "again", "-s", "s", "--speed", "\u0665"],
        ["demo", "--seconds", "\u0665"],
    ],
)
def test_digits_of_other_scripts_are_refused(falaj: Shell, words: list[str]) -> None:
    with library.open(falaj.folder / "s") as store:
        store.topic("t").append(b"x")
        store.consumer("g", "t").close()
    ended = falaj(*words)
    assert ended.code == 2
    assert repr(words[-1]) in ended.sentence()


def test_digits_of_other_scripts_are_no_span_of_a_stream() -> None:
    pytest.importorskip("pyspark")
    from falaj.pipeline.streaming.flow import interval

    with pytest.raises(InvalidArgument, match="a span of time such as"):
        interval("window", "\u0665 minutes")
