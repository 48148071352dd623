"""Properties of a topic: texts that programs keep with it."""

from pathlib import Path
from typing import Any

import pytest
from children import child

import falaj
from falaj.errors import InvalidArgument, NotWritable, TopicDeleted

OTHER = """
with falaj.open(path) as store:
    orders = store.topic("orders")
    say(orders.properties)
    orders.configure(properties={"owner": None, "of": "another process"})
"""


def test_properties_are_seen_by_other_processes_and_are_in_a_backup(
    path: Path, tmp_path: Path
) -> None:
    with falaj.open(path) as store:
        orders = store.topic("orders")
        assert orders.properties == {}
        limits = orders.configure(
            properties={"type": "text/csv", "owner": "sh\nop\0é"}, retention_records=7
        )
        assert limits["records"] == 7
        with child(path, OTHER) as other:
            assert other.hear() == str({"owner": "sh\nop\0é", "type": "text/csv"})
            other.process.wait()
        wanted = {"of": "another process", "type": "text/csv"}
        assert orders.properties == wanted
        assert orders.configure()["records"] == 7
        assert store.info()["topics"][0]["properties"] == wanted
        store.backup(tmp_path / "copy")
        with falaj.open(tmp_path / "copy", read_only=True) as copy:
            assert copy.topic("orders").properties == wanted
            with pytest.raises(NotWritable):
                copy.topic("orders").configure(properties={"a": "b"})
        orders.delete()
        with pytest.raises(TopicDeleted):
            assert orders.properties
        assert store.topic("orders").properties == {}


def test_what_cannot_be_a_property_is_refused_and_nothing_changes(store: falaj.Store) -> None:
    orders = store.topic("orders")
    orders.configure(properties={"a": "1"})
    refused: dict[str, Any] = {
        "the value of property 'a' is text, not 2": {"a": 2},
        "the name of a property is text, not 3": {3: "b"},
        "the value of property 'a' is text, not b'bytes'": {"a": b"bytes"},
    }
    for told, wrong in refused.items():
        with pytest.raises(TypeError, match=told):
            orders.configure(properties=wrong)
    with pytest.raises(InvalidArgument, match="1 to 128 bytes"):
        orders.configure(properties={"a": "2", "": "b"})
    with pytest.raises(InvalidArgument, match="16384 bytes together"):
        orders.configure(properties={"a": "2", "b": "x" * 16384})
    assert orders.properties == {"a": "1"}
    orders.configure(properties={"a": None, "b": "x" * 16383})
