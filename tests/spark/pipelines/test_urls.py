"""Paths of pipelines: what writes refuses URLs by name, what Spark only reads takes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import falaj
from falaj.cli import pipelines
from falaj.cli.app import run
from falaj.errors import InvalidArgument
from falaj.pipeline import (
    AggregateConfig,
    CompactConfig,
    Config,
    DedupeConfig,
    ExportConfig,
    ImportConfig,
    JoinConfig,
    ProfileConfig,
    ReplayConfig,
    export,
    exported_files,
    import_files,
    join,
    read_exported,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

FLOW = {"topic": "t", "checkpoint": "c", "into": "u"}
CONFIGS: list[tuple[type[Config], dict[str, Any], tuple[str, ...]]] = [
    (AggregateConfig, FLOW, ("store", "checkpoint", "parquet")),
    (JoinConfig, FLOW | {"on": ("k",), "table": "x.csv"}, ("store", "checkpoint", "parquet")),
    (ExportConfig, {"topic": "t", "into": "lake"}, ("store", "into")),
    (ImportConfig, {"into": "t", "source": "x.csv"}, ("store",)),
    (DedupeConfig, {"topic": "t", "into": "u"}, ("store",)),
    (ReplayConfig, {"topic": "t", "into": "u"}, ("store",)),
    (ProfileConfig, {"topic": "t"}, ("store", "html")),
    (CompactConfig, {"topic": "t"}, ("store",)),
]
WRITTEN = [(kind, given, name) for kind, given, names in CONFIGS for name in names]


@pytest.mark.parametrize(("kind", "given", "name"), WRITTEN)
def test_every_path_that_a_pipeline_writes_takes_files_and_refuses_other_urls(
    kind: type[Config], given: dict[str, Any], name: str
) -> None:
    # A store that is only read may be a place.
    urls = ("gopher://x/y",) if name == "store" and kind.only_reads else ("s3://bucket/x",)
    for url in (*urls, "hdfs:///x", Path("s3a://bucket/x")):
        with pytest.raises(InvalidArgument) as raised:
            kind(**{"store": "s", **given, name: url})
        assert str(raised.value).startswith(f"{name} is a path on this machine or a URL file:///")
        assert "Only source of import and table of join may be URLs" in str(raised.value)
    config = kind(**{"store": "s", **given, name: "file:///all%20data"})
    assert getattr(config, name) == Path("/all data")


def test_all_paths_of_all_configs_are_tried_here() -> None:
    for kind, _, names in CONFIGS:
        assert set(kind.paths) == set(names)


@pytest.mark.parametrize(
    "words",
    [
        ["export", "-s", "s", "t", "s3://bucket/x"],
        ["export", "-s", "http://host:1", "t", "lake"],
        ["profile", "-s", "hdfs:///s", "t"],
        ["profile", "-s", "s", "t", "--html", "s3://bucket/p.html"],
        ["aggregate", "-s", "s", "t", "--checkpoint", "s3://bucket/c", "--into", "u"],
        ["join", "-s", "s", "t", "--checkpoint", "c", "--on", "k", "--parquet", "s3://bucket/p"],
        ["import", "-s", "s3://bucket/s", "t", "x.csv"],
        ["export", "-s", "s", "t", "lake", "--config", "s3://bucket/x.toml"],
    ],
)
def test_the_shell_refuses_a_url_before_spark_starts_and_anything_is_written(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def no_session(_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(pipelines, "_session", no_session)
    monkeypatch.chdir(tmp_path)
    assert run(["pipeline", *words]) == 2
    said = " ".join(capfd.readouterr().err.replace("│", " ").split())
    reasons = ("falaj locks, syncs and renames files", "Only source of import and table of join")
    assert any(reason in said for reason in reasons)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def mounted(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A folder that Spark reads by a scheme other than `file`."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    name = f"fs.viewfs.mounttable.{tmp_path.name.replace('_', '-')}.link./data"
    spark.conf.set(name, folder.as_uri())
    yield f"viewfs://{tmp_path.name.replace('_', '-')}/data", folder
    spark.conf.unset(name)


def test_an_import_reads_urls_that_spark_reads_each_file_once(
    spark: SparkSession, mounted: tuple[str, Path], tmp_path: Path
) -> None:
    url, folder = mounted
    (folder / "first file.csv").write_text("n\n1\n2\n")
    config = ImportConfig(store=tmp_path / "s", into="t", source=url, schema="n INT")
    done = import_files(spark, config)
    assert (done.records, done.files) == (2, 1)
    (folder / "b.csv").write_text("n\n3\nx\n")
    with pytest.raises(InvalidArgument, match=r"1 malformed row.*viewfs://.*/b\.csv"):
        import_files(spark, config)
    (folder / "b.csv").write_text("n\n3\n")
    done = import_files(spark, config)
    assert (done.records, done.files, done.known) == (1, 1, 1)
    with falaj.open(tmp_path / "s", read_only=True) as store:
        assert [r.to_bytes() for r in store.any_topic("t")] == [b'{"n":1}', b'{"n":2}', b'{"n":3}']


def test_a_url_that_spark_cannot_read_is_refused_before_a_store_is_made(
    spark: SparkSession, mounted: tuple[str, Path], tmp_path: Path
) -> None:
    url, _ = mounted
    for source, sentence in (
        ("s3://bucket/x.csv", "file system of s3, name its package in spark.jars.packages"),
        (f"{url}/none.csv", "none.csv"),
    ):
        with pytest.raises(InvalidArgument, match=sentence):
            import_files(spark, ImportConfig(store=tmp_path / "s", into="t", source=source))
    assert not (tmp_path / "s").exists()


def test_a_join_reads_its_table_by_a_url_and_again_when_it_changed(
    spark: SparkSession, mounted: tuple[str, Path], tmp_path: Path
) -> None:
    url, folder = mounted
    (folder / "names.csv").write_text("k,name\na,Ann\n")
    with falaj.open(tmp_path / "s") as store, store.topic("t", codec="json") as topic:
        topic.append({"k": "a"})
        config = JoinConfig(
            store=store.path,
            topic="t",
            into="u",
            checkpoint=tmp_path / "c",
            schema="k STRING",
            on=("k",),
            table=f"{url}/names.csv",
            reload=True,
        )
        join(spark, config)
        (folder / "names.csv").write_text("k,name\na,Anna\n")
        topic.append({"k": "a"})
        join(spark, config)
        assert [r.value["name"] for r in store.any_topic("u")] == ["Ann", "Anna"]


def test_an_export_to_the_url_of_a_folder_is_read_by_its_url(
    spark: SparkSession, tmp_path: Path
) -> None:
    with falaj.open(tmp_path / "s") as store:
        store.topic("t").append(b"x")
    into = f"file://localhost{tmp_path}/a%20lake"
    export(spark, ExportConfig(store=(tmp_path / "s").as_uri(), topic="t", into=into))
    assert exported_files(into) == exported_files(tmp_path / "a lake")
    assert read_exported(spark, into).count() == 1
    for call in (exported_files, lambda folder: read_exported(spark, folder)):
        with pytest.raises(InvalidArgument, match="which s3 does not offer"):
            call("s3://bucket/lake")
