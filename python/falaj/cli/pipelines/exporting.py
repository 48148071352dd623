"""The verb `falaj pipeline export`: options into an `ExportConfig`."""

from typing import TYPE_CHECKING, Annotated

import typer

from falaj.cli import options, piping

if TYPE_CHECKING:
    from falaj.cli.piping import Loaded

__all__ = ["NAME", "verb"]

NAME = "export"


def verb(
    context: options.Context,
    store: piping.StoreArgument = None,
    topic: piping.TopicArgument = None,
    into: Annotated[
        str | None, typer.Argument(metavar="INTO", help="The folder that is exported to.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="NAMES", help="Columns, with commas between them."),
    ] = None,
    values: Annotated[
        str | None, typer.Option("--values", help="Values as binary, string or json.")
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="TYPES", help="Of JSON: 'id BIGINT, name STRING'."),
    ] = None,
    date_of: Annotated[
        str | None,
        typer.Option("--date-of", metavar="TIME", help="timestamp, run or value.MEMBER."),
    ] = None,
    zone: Annotated[
        str | None, typer.Option("--zone", metavar="ZONE", help="Time zone of dates.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--start", metavar="PLACE", help="Where the first run begins; earliest."),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--end", metavar="PLACE", help="Where this run ends at latest.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="parquet, or a table of delta or iceberg.")
    ] = None,
    table: Annotated[
        str | None, typer.Option("--table", metavar="NAME", help="Iceberg's: sales.orders.")
    ] = None,
    catalog: Annotated[
        str | None, typer.Option("--catalog", metavar="NAME", help="Iceberg's; default.")
    ] = None,
    visibility: Annotated[
        str | None, typer.Option("--visibility", help="durable, or committed.")
    ] = None,
    on_loss: Annotated[
        str | None, typer.Option("--on-loss", help="Where records are gone: fail, or continue.")
    ] = None,
    on_corrupt: Annotated[
        str | None, typer.Option("--on-corrupt", help="Where they are damaged: fail, or skip.")
    ] = None,
    on_bad: Annotated[
        str | None,
        typer.Option("--on-bad", help="Values that are not --values: fail, skip, or a topic."),
    ] = None,
    compression: Annotated[
        str | None, typer.Option("--compression", help="zstd, snappy, gzip or none.")
    ] = None,
    file_records: Annotated[
        int | None, typer.Option("--file-records", metavar="N", help="Most records of a file.")
    ] = None,
    config: piping.ConfigOption = None,
    spark: piping.SparkOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Write what is new in a topic to Parquet files by date, each record once.

    A run that was killed is gone on with by the next.
    """
    given = {
        "store": store,
        "topic": topic,
        "into": into,
        "columns": piping.names(columns),
        "values": values,
        "schema": schema,
        "date_of": date_of,
        "zone": zone,
        "start": piping.place(start),
        "end": piping.place(end),
        "format": form,
        "table": table,
        "catalog": catalog,
        "visibility": visibility,
        "on_loss": on_loss,
        "on_corrupt": on_corrupt,
        "on_bad": on_bad,
        "compression": compression,
        "file_records": file_records,
    }
    piping.run(context, _load, given, config=config, spark=spark, as_json=as_json)


def _load() -> "Loaded":
    from falaj.pipeline import ExportConfig, export

    return ExportConfig, export
