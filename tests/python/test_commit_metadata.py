"""Metadata that is committed with an offset."""

from pathlib import Path
from typing import Any

import pytest
from children import child

import falaj
from falaj.errors import InvalidArgument

OTHER = """
with falaj.open(path) as store, store.consumer("billing", ["orders"]) as billing:
    say(billing.committed(), billing.committed_metadata())
    billing.poll(timeout=0)
    billing.commit(metadata="by another process")
"""


def _listed(store: falaj.Store, group: str) -> tuple[int, str]:
    (found,) = (each for each in store.info()["groups"] if each["name"] == group)
    (partition,) = found["partitions"]
    return partition["committed"], partition["metadata"]


def test_metadata_is_read_back_by_another_member_until_the_next_commit(path: Path) -> None:
    with falaj.open(path) as store:
        orders = store.topic("orders")
        orders.extend([b"1", b"2", b"3"])
        with store.consumer("billing", ["orders"]) as billing:
            assert billing.committed_metadata() == ""
            billing.commit(1, metadata="invoice 17")
            assert (billing.committed(), billing.committed_metadata()) == (1, "invoice 17")
        with child(path, OTHER) as other:
            assert other.hear() == "1 invoice 17"
            other.process.wait()
        assert _listed(store, "billing") == (3, "by another process")
        with store.consumer("billing", ["orders"]) as billing:
            assert billing.committed_metadata("orders", 0) == "by another process"
            billing.commit(2)
            assert billing.committed_metadata() == ""
            with pytest.raises(InvalidArgument, match="at most 384 bytes"):
                billing.commit(3, metadata="é" * 193)
            wrong: Any = b"bytes"
            with pytest.raises(TypeError):
                billing.commit(3, metadata=wrong)
            assert (billing.committed(), billing.committed_metadata()) == (2, "")
            billing.commit(3, metadata="é" * 192, sync="durable")
            assert billing.committed_metadata() == "é" * 192


def test_metadata_moves_with_a_transaction_or_not_at_all(store: falaj.Store) -> None:
    work, results = store.topic("work"), store.topic("results")
    work.extend([b"3", b"4"])
    with store.consumer("adder", "work", cursor_in=results) as adder:
        next(iter(adder))

        def fail() -> None:
            with store.transaction() as tx:
                tx.commit_cursor(adder, metadata="lost")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert (adder.committed(), adder.committed_metadata()) == (0, "")
        with store.transaction() as tx:
            tx.append(results, b"3")
            tx.commit_cursor(adder, metadata="sum 3")
        assert (adder.committed(), adder.committed_metadata()) == (1, "sum 3")
        assert _listed(store, "adder") == (1, "sum 3")
        with (
            pytest.raises(InvalidArgument, match="a cursor of your own has none"),
            store.transaction() as tx,
        ):
            tx.commit_cursor(falaj.Cursor("mine", 1), into=results, metadata="no")
