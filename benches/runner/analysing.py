"""Arrow batches, and Polars and DuckDB over a topic, beside the same queries over Parquet."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import duckdb
import polars

from runner import data
from runner.beside import clocked
from runner.results import Measured

if TYPE_CHECKING:
    from pathlib import Path

    from runner.data import Table
    from runner.sizes import Sizes

Work = Callable[[], object]


def in_turns(sizes: Sizes, records: int, works: dict[str, Work]) -> dict[str, list[float]]:
    """Time each once a round, one after the other; return nanoseconds per record, by name."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(sizes.warmups + sizes.rounds):
        for name, work in works.items():
            gc.collect()
            found[name].append(clocked(work) / records)
    return {name: times[sizes.warmups :] for name, times in found.items()}


def measure(place: Path, sizes: Sizes) -> list[Measured]:
    """Measure all of them."""
    table = data.make(place, sizes)
    pairs = {**_polars(table), **_duckdb(table)}
    works: dict[str, Work] = _arrow(table)
    for name, (ours, floor) in pairs.items():
        works |= {f"{name} floor": floor, name: ours}
    _agree(table)
    times = in_turns(sizes, table.records, works)
    alone = [Measured(name, times[name]) for name in _arrow(table)]
    return alone + [Measured(name, times[name], times[f"{name} floor"]) for name in pairs]


def _arrow(table: Table) -> dict[str, Work]:
    def drain(views: bool, rows: int) -> Work:
        def work() -> None:
            # The bare stream of Arrow's C interface, without pyarrow in between.
            for _ in table.topic().to_reader(views=views, batch_rows=rows)._stream:
                pass

        return work

    return {
        "arrow_8k": drain(True, 8_192),
        "arrow_64k": drain(True, 65_536),
        "arrow_copied": drain(False, 10_000),
    }


def _polars(table: Table) -> dict[str, tuple[Work, Work]]:
    value, key = polars.col("value"), polars.col("key")
    queries: dict[str, Callable[[polars.LazyFrame], polars.LazyFrame]] = {
        "polars_sum": lambda lazy: lazy.select(value.bin.size().cast(polars.Int64).sum()),
        "polars_group": lambda lazy: lazy.group_by("key").len(),
        "polars_filter": lambda lazy: lazy.filter(key == table.key).select("offset", "value"),
    }

    def pair(query: Callable[[polars.LazyFrame], polars.LazyFrame]) -> tuple[Work, Work]:
        return (
            lambda: query(table.topic().scan().to_polars()).collect(),
            lambda: query(polars.scan_parquet(table.parquet)).collect(),
        )

    return {name: pair(query) for name, query in queries.items()}


def _duckdb(table: Table) -> dict[str, tuple[Work, Work]]:
    queries = {
        "duckdb_sum": "select sum(octet_length(value)) from {}",
        "duckdb_group": "select key, count(*) from {} group by key",
        "duckdb_filter": f"""select "offset", value from {{}} where key = '{table.key.decode()}'""",
    }

    def pair(query: str) -> tuple[Work, Work]:
        def ours() -> Any:
            scan = table.topic().scan()
            assert scan.schema.names
            return duckdb.execute(query.format("scan")).fetchall()

        return ours, lambda: duckdb.execute(query.format(f"'{table.parquet}'")).fetchall()

    return {name: pair(query) for name, query in queries.items()}


def _agree(table: Table) -> None:
    """Make sure that both sides answer the same before anything is timed."""
    for name, (ours, floor) in _duckdb(table).items():
        found: Any = ours()
        plain: Any = floor()
        if sorted(found) != sorted(plain):
            raise AssertionError(f"{name}: the topic and the file give different answers")
