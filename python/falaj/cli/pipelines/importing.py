"""The verb `falaj pipeline import`: options into an `ImportConfig`."""

from typing import TYPE_CHECKING, Annotated

import typer

from falaj.cli import options, piping

if TYPE_CHECKING:
    from falaj.cli.piping import Loaded

__all__ = ["NAME", "verb"]

NAME = "import"


def verb(
    context: options.Context,
    store: piping.StoreArgument = None,
    into: Annotated[
        str | None, typer.Argument(metavar="INTO", help="The topic that is imported into.")
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE", help="Files, folders or patterns."),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", metavar="N", help="Of a topic that is made; 1.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="parquet, csv or json; else by the names.")
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="TYPES", help="Of the files: 'id BIGINT, name STRING'."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Of Spark's reader; repeatable."),
    ] = None,
    value: Annotated[
        str | None, typer.Option("--value", metavar="NAME", help="Column that is the value as is.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="NAMES", help="Columns of the row as JSON.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="NAMES", help="Column of the key, or several.")
    ] = None,
    headers: Annotated[
        str | None, typer.Option("--headers", metavar="NAME", help="Column of headers.")
    ] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", metavar="NAME", help="Column of the partition.")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="NAME", help="Column of the record's time.")
    ] = None,
    order_by: Annotated[
        str | None, typer.Option("--order-by", metavar="NAMES", help="Columns of the order.")
    ] = None,
    on_bad: Annotated[
        str | None, typer.Option("--on-bad", help="Malformed rows: fail, skip, or a topic.")
    ] = None,
    on_changed: Annotated[
        str | None, typer.Option("--on-changed", help="Files that changed: fail, or skip.")
    ] = None,
    config: piping.ConfigOption = None,
    spark: piping.SparkOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Append the rows of Parquet, CSV or JSON files to a topic, each file once."""
    given = {
        "store": store,
        "into": into,
        "source": tuple(source or ()),
        "partitions": partitions,
        "format": form,
        "schema": schema,
        "options": piping.pairs(option, "--option"),
        "value": value,
        "columns": piping.names(columns),
        "key": piping.names(key),
        "headers": headers,
        "partition": partition,
        "time": time,
        "order_by": piping.names(order_by),
        "on_bad": on_bad,
        "on_changed": on_changed,
    }
    piping.run(context, _load, given, config=config, spark=spark, as_json=as_json)


def _load() -> "Loaded":
    from falaj.pipeline import ImportConfig, import_files

    return ImportConfig, import_files
