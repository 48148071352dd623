"""The column `value` as text or as JSON, and records whose value is neither.

`decoding` handles values that do not fit the option `values`, and `falaj._json_columns` reads JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    FractionalType,
    IntegerType,
    IntegralType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
    VarcharType,
)

from falaj.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow


__all__ = ["arrow_type", "check", "keeps"]

_SCALARS = (
    BooleanType,
    IntegralType,
    FractionalType,
    DecimalType,
    StringType,
    DateType,
    TimestampType,
)


def check(kind: DataType, where: str = "value", *, corrupt_record: str | None = None) -> None:
    """Refuse a type that JSON cannot be read as.

    Args:
        kind: The type.
        where: The owner of the type, for the message.
        corrupt_record: Name of the member that keeps other values, as text or bytes.

    Raises:
        InvalidArgument: The type, or a part of it, is not supported, or two fields of a struct have
            one name.
    """
    if isinstance(kind, StructType):
        for place, part in enumerate(kind.fields):
            if part.name in kind.names[:place]:
                raise InvalidArgument(f"{where} has the field {part.name} twice: leave one away")
            if not part.nullable:
                raise InvalidArgument(
                    f"{where}.{part.name} is declared NOT NULL, and no JSON is held to that: "
                    "leave NOT NULL away, and filter"
                )
            if part.name == corrupt_record and isinstance(part.dataType, BinaryType):
                continue
            check(part.dataType, f"{where}.{part.name}")
    elif isinstance(kind, ArrayType):
        if not kind.containsNull:
            raise InvalidArgument(f"{where} is declared without nulls, and no JSON is held to that")
        check(kind.elementType, f"{where}[]")
    elif isinstance(kind, CharType | VarcharType):
        raise InvalidArgument(
            f"values=json reads text of any length, not {kind.simpleString()} ({where}): declare "
            "it as STRING"
        )
    elif not isinstance(kind, _SCALARS):
        raise InvalidArgument(
            f"values=json does not read {kind.simpleString()} ({where}): read values=string, and "
            "use from_json"
        )


def keeps(kind: DataType, corrupt_record: str) -> bool:
    """Tell whether a type has a member that keeps values that do not fit.

    Raises:
        InvalidArgument: That member is neither text nor bytes.
    """
    if not isinstance(kind, StructType) or corrupt_record not in kind.names:
        return False
    given = kind[corrupt_record].dataType
    if not isinstance(given, StringType | BinaryType):
        raise InvalidArgument(
            f"value.{corrupt_record} keeps the text of what is not such JSON: it is STRING or "
            f"BINARY, not {given.simpleString()}; option columnNameOfCorruptRecord names another"
        )
    return True


def arrow_type(kind: DataType) -> pyarrow.DataType:
    """Return the Arrow type that all versions of Spark accept for a value.

    Args:
        kind: Binary, text, or a type that `check` allows.
    """
    import pyarrow

    if isinstance(kind, StructType):
        return pyarrow.struct(
            [pyarrow.field(f.name, arrow_type(f.dataType), f.nullable) for f in kind.fields]
        )
    if isinstance(kind, ArrayType):
        element = arrow_type(kind.elementType)
        return pyarrow.list_(pyarrow.field("element", element, kind.containsNull))
    if isinstance(kind, DecimalType):
        return pyarrow.decimal128(kind.precision, kind.scale)
    if isinstance(kind, StringType):
        return pyarrow.string()  # fixed lengths and collations are Spark's alone
    plain: dict[type[DataType], pyarrow.DataType] = {
        BinaryType: pyarrow.binary(),
        BooleanType: pyarrow.bool_(),
        ByteType: pyarrow.int8(),
        ShortType: pyarrow.int16(),
        IntegerType: pyarrow.int32(),
        LongType: pyarrow.int64(),
        FloatType: pyarrow.float32(),
        DoubleType: pyarrow.float64(),
        DateType: pyarrow.date32(),
        TimestampType: pyarrow.timestamp("us", tz="UTC"),
    }
    return plain[type(kind)]
