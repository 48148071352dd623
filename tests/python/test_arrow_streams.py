"""Topics and scans as Arrow streams of other libraries, and as tables of a notebook."""

import inspect
from pathlib import Path
from typing import Any

import pytest

import falaj
from falaj import arrow

WANTED = [b"one", b"two", b"three"]


@pytest.fixture
def filled(store: falaj.Store) -> falaj.Topic[Any]:
    topic: falaj.Topic[Any] = store.topic("orders", codec="str")
    topic.extend(["one", "two", "three"])
    return topic


@pytest.mark.parametrize("of", ["topic", "scan"])
@pytest.mark.parametrize("library", ["pyarrow", "polars", "duckdb", "deltalake"])
def test_a_library_of_tables_takes_a_topic_and_a_scan_as_they_are(
    filled: falaj.Topic[Any], tmp_path: Path, library: str, of: str
) -> None:
    given: Any = filled if of == "topic" else filled.scan(columns=["offset", "value"])
    module = pytest.importorskip(library)
    if library == "pyarrow":
        found = module.table(given).column("value").to_pylist()
    elif library == "polars":
        found = module.DataFrame(given)["value"].to_list()
    elif library == "duckdb":
        # DuckDB treats a scan as a dataset, and pushes filters down; a topic is a stream.
        found = [value for (value,) in module.sql("select value from given").fetchall()]
    else:
        module.write_deltalake(tmp_path / "table", given)
        found = module.DeltaTable(tmp_path / "table").to_pyarrow_table()["value"].to_pylist()
    assert found == WANTED


def test_a_scan_is_appended_to_another_topic_as_the_table_that_it_is(
    store: falaj.Store, filled: falaj.Topic[Any]
) -> None:
    copy = store.topic("copy", codec="str")
    assert copy.extend_arrow(filled.scan(columns=["key", "value", "timestamp"])) == 3
    assert [record.value for record in copy] == ["one", "two", "three"]
    other = store.topic("other", codec="str")
    other.extend(filled)
    assert [record.value for record in other] == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("method", "function"),
    [("to_reader", arrow.read), ("to_arrow", arrow.read), ("scan", arrow.scan)],
)
def test_methods_spell_out_the_arguments_of_their_functions(method: str, function: Any) -> None:
    def shown(what: Any) -> dict[str, Any]:
        given = list(inspect.signature(what).parameters.values())[1:]
        return {each.name: each.default for each in given}

    assert shown(getattr(falaj.Topic, method)) == shown(function)


def test_a_page_shows_the_last_records_and_no_markup_of_theirs(store: falaj.Store) -> None:
    topic = store.partitioned_topic("orders", codec="json", partitions=2)
    for number in range(15):
        topic.append({"n": number}, partition=0)
    topic.append("<script>alert(1)</script>" + "x" * 500, partition=1)
    page = topic._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert page.count("<tr>") == 1 + 10 + 1
    assert "x" * 100 not in page
    assert "<td>b&#x27;" in topic.scan()._repr_html_()


def test_a_page_of_what_cannot_be_read_shows_the_error(store: falaj.Store) -> None:
    topic = store.topic("orders", codec="json")
    topic.append("fine")
    scan = topic.scan()
    topic.close()
    assert "closed" in topic._repr_html_()
    assert "closed" in scan._repr_html_()
