"""The files of an import as rows of Spark, with all rows of all files.

Owns the options of Spark's readers, the types of the columns, and the folders that are columns.
`lines` finds text that Spark drops; `rows` makes records of the rows.

Invariant: no file that the ledger gets is left out by Spark. Options that would do so are refused,
and the files that Spark lists are held against those of the import.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import functions as F  # noqa: N812  # as every Spark program names it
from pyspark.sql.types import StringType, StructField, StructType

from falaj.errors import InvalidArgument
from falaj.pipeline.base.frame import sentence, struct_of
from falaj.pipeline.importing import lines, quotes, sources
from falaj.pipeline.importing.lines import file_of
from falaj.pipeline.importing.remote import escaped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from falaj.pipeline.importing.run import ImportConfig

__all__ = ["BAD", "OWN", "Rows", "expect_options", "read", "told_plainly"]

BAD = "_falaj_bad"
OWN = "_falaj_"
"""How names of columns begin that a frame of rows has beside those of the files."""
_NAMED_MAX = 5
_FILES = "give the wanted files in source, as a pattern or a list"
_WHOLE = "leave it away: a file that cannot be read fails the import, which then marks none"
_ROWS = "leave it away, and say in on_bad what becomes of malformed rows"
_REFUSED = {
    "pathglobfilter": _FILES,
    "modifiedafter": _FILES,
    "modifiedbefore": _FILES,
    "recursivefilelookup": _FILES,
    "path": _FILES,
    "paths": _FILES,
    "basepath": "give a folder in source: the folders name=value below it are columns",
    "ignoremissingfiles": _WHOLE,
    "ignorecorruptfiles": _WHOLE,
    "mode": _ROWS,
    "columnnameofcorruptrecord": _ROWS,
    "columnpruning": "leave it away: each row is compared with all columns",
    "inferschema": "leave it away, and give a schema, as 'id STRING, n STRING'",
    "singlevariantcolumn": "leave it away: a row has the columns of its members",
}


def expect_options(options: Mapping[str, str]) -> None:
    """Refuse options of Spark's reader that falaj itself decides.

    Raises:
        InvalidArgument: There is one. Spark would leave out files that then count as imported, or
            falaj would ignore it.
    """
    for name in options:
        if (instead := _REFUSED.get(name.lower())) is not None:
            raise InvalidArgument(
                f"options has {name}, which an import decides itself, so that each row of each "
                f"file is imported or reported: {instead}"
            )


@dataclass(frozen=True)
class Rows:
    """The rows of files.

    Attributes:
        frame: Columns of the rows, and `BAD`, and where each lies.
        columns: Names of the columns; none if no row is one.
        guessed: Types that Spark guessed for columns that are read as text, because they are keys.
    """

    frame: DataFrame
    columns: list[str]
    guessed: dict[str, DataType] = field(default_factory=dict)


def read(spark: SparkSession, config: ImportConfig, form: str, paths: Sequence[str]) -> Rows:
    """Read files.

    Raises:
        InvalidArgument: Spark cannot read them so, or it would leave some out.
    """
    with told_plainly():
        if form == "csv":
            quotes.expect_matching(spark, paths, config.options, "source")
        found = _read(spark, config, form, paths)
        _expect_names(found.columns)
        _expect_all(found.frame, paths)
        if form == "json" and found.columns:
            frame = _json(spark, config, paths, found.frame.schema)
        else:
            frame = lines.placed(found.frame)
    return replace(found, frame=frame)


def _json(
    spark: SparkSession, config: ImportConfig, paths: Sequence[str], schema: StructType
) -> DataFrame:
    """Read JSON with all text of its lines."""
    base = sources.base_of(config.sources, paths)
    below = {each.lower() for each in sources.folders_below(base, paths)}
    wanted = StructType([each for each in schema if each.name != BAD])
    folders = [each.name for each in wanted if each.name.lower() in below]

    def reader(some: Sequence[str]) -> DataFrame:
        return _typed(spark, config, "json", some, wanted, base)

    return lines.read(
        spark, paths, config.options, wanted, reader, bad=BAD, base=base, folders=folders
    )


class told_plainly:  # noqa: N801  # read as a function
    """Raise Spark's refusal to plan a query as a sentence."""

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise the sentence."""
        if isinstance(error, AnalysisException | IllegalArgumentException):
            raise InvalidArgument(_plain(error)) from None
        java = getattr(error, "java_exception", None) if isinstance(error, Py4JError) else None
        if java is not None and "AssertionError" in str(java.getClass().getName()):
            # So Spark refuses folders that do not have the same columns.
            said = " ".join(str(java.getMessage()).split())
            raise InvalidArgument(f"Spark does not read the files: {said}") from None


def _plain(error: Exception) -> str:
    said = sentence(error)
    if "COLUMN_ALREADY_EXISTS" in str(error):
        return (
            f"the files have a column twice, or two that differ in case alone: {said}; rename one, "
            "or give a schema with the one to read"
        )
    return f"Spark does not read the files: {said}"


def _read(spark: SparkSession, config: ImportConfig, form: str, paths: Sequence[str]) -> Rows:
    base = sources.base_of(config.sources, paths)
    reader = spark.read.format(form).options(**_options(config, form))
    if base is not None:
        reader = reader.option("basePath", base)
    plain = list(map(escaped, paths))
    guessed: dict[str, DataType] = {}
    if config.schema is not None:
        schema = _expect_types(struct_of(config.schema))
    else:
        given = reader if form == "parquet" else reader.option("inferSchema", "true")
        whole = given.load(plain).schema
        if form == "csv":
            _expect_heading(spark, config, [each.name for each in whole.fields], paths[0])
        texts = {each.lower() for each in sources.folders_below(base, paths)}
        is_text = {name for name in config.key if form == "csv" or name.lower() in texts}
        guessed = {each.name: each.dataType for each in whole.fields if each.name in is_text}
        schema = StructType(
            [
                StructField(each.name, StringType() if each.name in is_text else each.dataType)
                for each in whole.fields
                if each.name != BAD
            ]
        )
        if form == "parquet" and not guessed:
            return Rows(given.load(plain), whole.names)
        if not schema:  # no row is one, and Spark would refuse to report that
            blank = lines.text(spark, paths).where(F.trim("value") != "")
            return Rows(blank.withColumnRenamed("value", BAD), [])
    frame = _typed(spark, config, form, paths, schema, base)
    return Rows(frame, [name for name in frame.columns if name != BAD], guessed)


def _typed(
    spark: SparkSession,
    config: ImportConfig,
    form: str,
    paths: Sequence[str],
    schema: StructType,
    base: str | None,
) -> DataFrame:
    """Read files by a schema."""
    reader = spark.read.format(form).options(**_options(config, form))
    if base is not None:
        reader = reader.option("basePath", base)
    if form != "parquet":
        schema = StructType([*schema.fields, StructField(BAD, StringType())])
    return reader.schema(schema).load(list(map(escaped, paths)))


def _options(config: ImportConfig, form: str) -> dict[str, str]:
    usual = {"pathGlobFilter": "*", **lines.WHOLE}
    if form == "csv":
        # Rows are held against all columns, and the heading against the schema.
        usual |= {"header": "true", "enforceSchema": "false", "columnPruning": "false"}
        usual |= quotes.reader_options(config.options)
    if form == "parquet":
        usual |= {"mergeSchema": "true"}
    kept = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD} if form != "parquet" else {}
    return {**usual, **config.options, **kept}


# --- What is refused -----------------------------------------------------------------------------


def _expect_types(schema: StructType) -> StructType:
    def kinds(kind: Any) -> Iterator[str]:
        yield kind.typeName()
        if isinstance(kind, StructType):
            for each in kind.fields:
                yield from kinds(each.dataType)
        for name in ("elementType", "keyType", "valueType"):
            if hasattr(kind, name):
                yield from kinds(getattr(kind, name))

    for each in schema.fields:
        if short := {"char", "varchar"} & set(kinds(each.dataType)):
            raise InvalidArgument(
                f"schema has {each.name} as {each.dataType.simpleString()}, and Spark reads no "
                f"{short.pop()} from files: write STRING"
            )
    return schema


def _expect_names(columns: list[str]) -> None:
    for name in columns:
        if name.lower() == "_metadata" or name.startswith(OWN):
            owner = "falaj" if name.startswith(OWN) else "Spark"
            raise InvalidArgument(
                f"the files have a column {name}, a name that {owner} needs for its own: rename it"
            )


def _expect_all(frame: DataFrame, paths: Sequence[str]) -> None:
    """Refuse to import files that Spark leaves out: they would count as imported."""
    there = {file_of(each) for each in frame.inputFiles()}
    missing = sorted(set(paths) - there)
    if missing:
        named = ", ".join(missing[:_NAMED_MAX])
        raise InvalidArgument(
            f"Spark leaves out {len(missing)} of the files, as {named}: rename them, or leave them "
            "out of source"
        )


def _expect_heading(spark: SparkSession, config: ImportConfig, names: list[str], path: str) -> None:
    """Refuse a heading with a name twice: Spark would rename both columns, as `a0` and `a1`."""
    bare = [
        name.removesuffix(str(at)).lower() if name.endswith(str(at)) else None
        for at, name in enumerate(names)
    ]
    if all(each is None or bare.count(each) < 2 for each in bare):
        return
    given = {**_options(config, "csv"), "header": "false", "mode": "PERMISSIVE"}
    heading = spark.read.options(**given).csv(escaped(path)).first()
    known: dict[str, str] = {}
    for name in map(str, heading or ()):
        if (other := known.setdefault(name.lower(), name)) != name or list(heading or ()).count(
            name
        ) > 1:
            raise InvalidArgument(
                f"the heading of {path} has one name twice, {other} and {name}, which Spark does "
                "not tell apart: rename one"
            )
