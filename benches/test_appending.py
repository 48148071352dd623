"""Appends from Python, beside P: the least work of a method of a compiled class for it."""

from collections.abc import Callable
from pathlib import Path

import falaj
from falaj import _core
from runner.beside import Beside


def test_python_append(beside: Beside, tmp_path: Path) -> None:
    sizes, floor = beside.sizes, _core.Floor(tmp_path / "floor")
    value = b"v" * sizes.value_bytes

    def work(append: Callable[[bytes], object]) -> None:
        for _ in range(sizes.records):
            append(value)

    with falaj.open(tmp_path / "store", sync="none") as store:
        topic = store.topic("t", codec="raw")
        beside(
            lambda: work(topic.append),
            lambda: work(floor.append),
            sizes.records,
            fresh_bytes=sizes.fresh_bytes,
        )
        assert len(topic) >= sizes.records


def test_python_extend(beside: Beside, tmp_path: Path) -> None:
    sizes, floor = beside.sizes, _core.Floor(tmp_path / "floor")
    values = [bytes([i % 256]) * sizes.value_bytes for i in range(sizes.batch)]
    batches = sizes.records // sizes.batch

    def work(extend: Callable[[list[bytes]], object]) -> None:
        for _ in range(batches):
            extend(values)

    with falaj.open(tmp_path / "store", sync="none") as store:
        topic = store.topic("t", codec="raw")
        beside(
            lambda: work(topic.extend),
            lambda: work(floor.extend),
            batches * sizes.batch,
            fresh_bytes=sizes.fresh_bytes,
        )
        assert len(topic) >= batches * sizes.batch
