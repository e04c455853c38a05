"""Conversion between Spark's types and Arrow's."""

from collections.abc import Iterable, Sequence
from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException, PySparkTypeError
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema, to_arrow_type
from pyspark.sql.types import DataType, StringType, StructField, StructType

from semistream.errors import ColumnError, KeyTypeError

# How PySpark 4.2 and newer, and how 4.1 is told that timestamps are in UTC.
_IN_UTC: dict[str, Any] = (
    {"timezone": "UTC"}
    if "timezone" in signature(to_arrow_type).parameters
    else {"timestamp_utc": True}
)
_TIMES = "spark.sql.timeType.enabled"
# Types that Spark lacks, and those in which its own Parquet reader has their values.
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
}


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
    """Return the Spark type that has the values of an Arrow column, or raise if there is none."""
    try:
        if pa.types.is_decimal(field.type) and field.type.precision > 38:
            raise ValueError(f"a precision of {field.type.precision} is more than Spark has")
        return from_arrow_type(_WIDER.get(field.type, field.type), prefer_timestamp_ntz=True)
    except (PySparkTypeError, ValueError) as error:
        raise ColumnError(
            f"column {field.name!r} of the relation has Arrow type {field.type}, which Spark has "
            "no type for; leave it out of columns, or cast it before building the relation"
        ) from error


def check_times(session: SparkSession, added: Iterable[pa.Field]) -> None:
    """Raise `ColumnError` if a column is a time of day, and the session does not have the type."""
    times = [field.name for field in added if pa.types.is_time(field.type)]
    if times and not _allows_times(session):
        raise ColumnError(
            f"column {times[0]!r} of the relation is a time of day, which this Spark session "
            f"does not allow; leave it out of columns, set {_TIMES} to true if the sink can store "
            "it, or cast it to text before building the relation"
        )


def _allows_times(session: SparkSession) -> bool:
    try:
        return session.conf.get(_TIMES) == "true"
    except PySparkException:
        return True  # a version of Spark without the setting


def wire_type(field: pa.Field) -> pa.DataType:
    """Return the Arrow type in which Spark accepts a column; often the column's own."""
    return to_arrow_type(spark_type(field), **_IN_UTC)
