"""`falaj metrics`: for Prometheus, and as JSON."""

import json

from prometheus_client.parser import text_string_to_metric_families

import falaj as library
from cli.shell import Shell, snapshot


def test_it_prints_what_the_library_says_and_changes_nothing(falaj: Shell) -> None:
    with library.open(falaj.folder / "s") as store:
        store.topic("t").extend([b"a", b"b"])
    before = snapshot(falaj.folder / "s")
    families = {
        each.name: each for each in text_string_to_metric_families(falaj.ok("metrics", "-s", "s"))
    }
    (sample,) = families["falaj_topic_committed_records"].samples
    assert (sample.labels["topic"], sample.value) == ("t", 2)
    assert sample.labels["store"] == str(falaj.folder / "s")
    with library.open(falaj.folder / "s", read_only=True) as store:
        assert json.loads(falaj.ok("metrics", "-s", "s", "--json")) == store.metrics()
    assert snapshot(falaj.folder / "s") == before


def test_where_there_is_no_store_that_is_said(falaj: Shell) -> None:
    ended = falaj("metrics", "-s", "nowhere")
    assert (ended.code, ended.out) == (2, "")
    assert "there is no store at nowhere" in ended.err
