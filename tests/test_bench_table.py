"""The table of `make bench`: verdicts, readable figures, and the committed part of a run."""

import json
from pathlib import Path

import pytest

from runner import results, rust, table
from runner.results import Measured
from runner.rows import MS, REFERENCES, ROWS, SPARK_ROWS, US, Bar, Row

FASTER = Row("a", "appending", "rate", "P", Bar(ratio_min=0.5, about_per_s=7e6))
SOONER = Row("b", "waking", "time", "a pipe", Bar(most=25 * US))
SMALLER = Row("c", "disk bytes", "number", "", Bar(most=1.42))
FAIR = Row("d", "share", "number", "", Bar(least=1 / 3))
THREE = (FASTER, SOONER, SMALLER)


@pytest.mark.parametrize(
    ("bar", "ours", "ratio", "verdict"),
    [
        (Bar(ratio_min=0.5), 100.0, 0.5, "met"),
        (Bar(ratio_min=0.5), 100.0, 0.49, "missed"),
        (Bar(ratio_min=0.5), 100.0, None, "missed"),
        (Bar(most=25.0), 25.0, None, "met"),
        (Bar(most=25.0), 25.1, None, "missed"),
        (Bar(least=1 / 3), 0.4, None, "met"),
        (Bar(least=1 / 3), 0.2, None, "missed"),
        (Bar(about_per_s=5e6), 200.0, None, "met"),
        (Bar(about_per_s=5e6), 201.0, None, "missed"),
    ],
)
def test_a_figure_is_held_against_its_bar(
    bar: Bar, ours: float, ratio: float | None, verdict: str
) -> None:
    assert table.judge(bar, ours, ratio) == verdict


def test_the_rate_on_the_reference_machine_decides_only_where_no_ratio_does() -> None:
    slow_machine = 1_000.0
    assert table.judge(FASTER.bar, slow_machine, 0.6) == "met"
    assert table.judge(FASTER.bar, 1.0, 0.4) == "missed"


def test_a_row_without_a_measurement_is_not_met() -> None:
    (line,) = table.lines({}, (FASTER,))
    assert (line.ours, line.verdict) == (None, "not measured")
    assert "0 of 1 targets met" in table.text([line], (FASTER,))


def test_a_noisy_round_does_not_move_the_figure() -> None:
    noisy = Measured("a", ours=[100, 101, 9_000, 99, 100], floor=[50, 50, 4_500, 50, 50])
    assert (noisy.figure, noisy.floor_figure) == (100, 50)


def test_the_ratio_is_that_of_figures_of_the_same_round() -> None:
    drifting = Measured("a", ours=[100, 200, 400, 800, 1_600], floor=[50, 100, 200, 400, 800])
    assert drifting.ratio == 0.5
    assert Measured("a", ours=[100, 200, 300], floor=[50]).ratio == 0.25
    assert Measured("a", ours=[1.0]).ratio is None


@pytest.mark.parametrize(
    ("ns", "rate", "time"),
    [
        (0.5, "2000 M/s", "0.50 ns"),
        (140, "7.14 M/s", "140 ns"),
        (123_456, "8.10 k/s", "123 µs"),
        (25_000, "40.0 k/s", "25.0 µs"),
        (40 * MS, "25.0/s", "40.0 ms"),
        (2e9, "0.50/s", "2.00 s"),
        (-6_340_000, None, "-6.34 ms"),
    ],
)
def test_figures_are_written_with_three_digits_and_a_unit(
    ns: float, rate: str | None, time: str
) -> None:
    assert table.time(ns) == time
    if rate is not None:
        assert table.rate(ns) == rate


def test_a_line_says_figure_floor_ratio_bar_and_verdict() -> None:
    measured = {
        "a": Measured("a", [125.0], [62.5]),
        "b": Measured("b", [30_000.0], [15_000.0]),
        "c": Measured("c", [1.371], unit="bytes"),
    }
    written = [
        table.cells(row, line)
        for row, line in zip(THREE, table.lines(measured, THREE), strict=True)
    ]
    assert written == [
        ("appending", "8.00 M/s", "16.0 M/s (P)", "50 %", "≥ 50 %", "met"),
        ("waking", "30.0 µs", "15.0 µs (a pipe)", "50 %", "≤ 25 µs", "missed"),
        ("disk bytes", "1.371", "–", "–", "≤ 1.42", "met"),
    ]


def test_a_figure_without_a_bar_is_written_in_a_line_of_its_own() -> None:
    row = Row("a", "ready-made batches", "rate", "Parquet", Bar())
    assert table.aside(row, Measured("a", [200.0], [100.0])) == (
        "ready-made batches: 5.00 M/s, 50 % of Parquet"
    )
    assert table.aside(row, Measured("a", [200.0])) == "ready-made batches: 5.00 M/s"


def test_a_share_is_no_ratio() -> None:
    (line,) = table.lines({"d": Measured("d", [0.41], unit="share")}, (FAIR,))
    assert table.cells(FAIR, line) == ("share", "41 %", "–", "–", "≥ 33 %", "met")


def test_the_page_shows_what_was_missed_in_bold() -> None:
    found = table.lines({"b": Measured("b", [30_000.0])}, (SOONER,))
    assert table.markdown(found, (SOONER,)).splitlines()[-1].endswith("| **missed** |")


def test_the_table_replaces_what_stands_between_the_markers_and_nothing_else() -> None:
    page = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"
    once = table.between_markers(page, "| new |")
    assert once == f"before\n{table.BEGIN}\n| new |\n{table.END}\nafter\n"
    assert table.between_markers(once, "| new |") == once
    with pytest.raises(ValueError, match="the page has no"):
        table.between_markers("a page without markers", "| new |")


def test_what_the_runner_writes_is_what_it_reads(tmp_path: Path) -> None:
    written = [
        Measured("a", [100.0, 120.0], [50.0, 60.0], extra={"curve": [1, 2]}),
        Measured("c", [1.5], unit="bytes"),
    ]
    results.save(tmp_path / "part.json", written)
    read = results.load([tmp_path / "part.json"])
    assert list(read) == ["a", "c"]
    assert read["a"].ours == pytest.approx([100.0, 120.0])
    assert (read["a"].floor, read["a"].extra) == ([50.0, 60.0], {"curve": [1, 2]})
    assert (read["c"].unit, read["c"].figure) == ("bytes", 1.5)


def test_a_round_of_pytest_benchmark_is_divided_by_its_records() -> None:
    entry = {
        "name": "test_python_iterate[single]",
        "stats": {"data": [0.002, 0.004]},
        "extra_info": {"records": 1_000, "floor_ns": [10.0, 20.0]},
    }
    (read,) = results.from_json({"benchmarks": [entry]})
    assert read.name == "python_iterate_single"
    assert read.ours == pytest.approx([2_000.0, 4_000.0])


def test_rows_of_rust_are_known_by_their_names_and_others_are_passed_over() -> None:
    known = {"name": "rust scan, verified", "rounds_ns": [60.0], "floor_ns": 6.0}
    other = {"name": "rust, something else", "rounds_ns": [1.0], "floor_ns": 1.0}
    (read,) = rust.read([json.dumps(known), "", json.dumps(other)])
    assert (read.name, read.figure, read.floor_figure) == ("rust_scan_verified", 60.0, 6.0)


def test_every_row_of_rust_has_its_place_in_the_table() -> None:
    assert set(rust.NAMES.values()) <= {row.key for row in (*ROWS, *REFERENCES)}


def test_no_row_stands_twice_and_each_has_one_bar_that_decides() -> None:
    rows = (*ROWS, *SPARK_ROWS)
    keys = [row.key for row in rows]
    assert len(keys) == len(set(keys))
    for row in rows:
        given = [row.bar.ratio_min, row.bar.most, row.bar.least]
        deciding = [bar for bar in given if bar is not None]
        assert len(deciding) == 1 or (not deciding and row.bar.about_per_s), row.key


def test_what_is_kept_of_a_run_is_short() -> None:
    found = table.lines({"a": Measured("a", [123.456789], [61.7283945])}, (FASTER,))
    kept = table.figures("2 cores", found, {"follower": [12_345.678]})
    assert kept == {
        "machine": "2 cores",
        "rows": [{"key": "a", "ours": 123.5, "floor": 61.73, "ratio": 0.5, "verdict": "met"}],
        "curves": {"follower": [12_350.0]},
    }
