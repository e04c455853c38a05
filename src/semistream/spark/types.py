"""Conversion between Spark's types and Arrow's."""

from collections.abc import Sequence
from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema, to_arrow_type
from pyspark.sql.types import DataType, StringType, StructField, StructType

from semistream.errors import ColumnError, KeyTypeError

# How PySpark 4.2 and newer, and how 4.1 is told that timestamps are in UTC.
_IN_UTC: dict[str, Any] = (
    {"timezone": "UTC"}
    if "timezone" in signature(to_arrow_type).parameters
    else {"timestamp_utc": True}
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark passes rows to Python."""
    return pa.schema([_arrow_field(f) for f in schema.fields])


def _arrow_field(field: StructField) -> pa.Field:
    try:
        return to_arrow_schema(StructType([field]), **_IN_UTC).field(0)
    except PySparkTypeError as error:
        raise ColumnError(
            f"column {field.name!r} has type {field.dataType.simpleString()}, which Arrow has no "
            "type for; drop it, or cast it"
        ) from error


def check_collation(schema: StructType, key: Sequence[str]) -> None:
    """Raise `KeyTypeError` if a key does not compare strings byte by byte."""
    for name in key:
        dtype = schema[name].dataType
        if isinstance(dtype, StringType) and not dtype.isUTF8BinaryCollation():
            raise KeyTypeError(
                f"key column {name!r} has collation {dtype.collation}, but keys are compared byte "
                "by byte; cast it to STRING COLLATE UTF8_BINARY, or join on lower(…) of both sides"
            )


def spark_type(field: pa.Field) -> DataType:
    """Return the Spark type for an Arrow column, or raise if there is none."""
    try:
        if pa.types.is_decimal(field.type) and field.type.precision > 38:
            raise ValueError(f"a precision of {field.type.precision} is more than Spark has")
        return from_arrow_type(field.type, prefer_timestamp_ntz=True)
    except (PySparkTypeError, ValueError) as error:
        raise ColumnError(
            f"column {field.name!r} of the relation has Arrow type {field.type}, which Spark has "
            "no type for; leave it out of columns, or cast it before building the relation"
        ) from error


def wire_type(field: pa.Field) -> pa.DataType:
    """Return the Arrow type in which Spark accepts a column; often the column's own."""
    return to_arrow_type(spark_type(field), **_IN_UTC)
