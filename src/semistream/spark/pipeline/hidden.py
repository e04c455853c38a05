"""The columns that a pipeline carries along with the user's, from the source to the sinks."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from semistream.spark.keys import column

REASON = "__semistream_reason"  # why a row cannot be parsed or joined; null if it can
ORIGIN = "__semistream_origin"  # where a row is from: topic:partition:offset, or a file
RAW = "__semistream_raw"  # what could not be parsed
KEY = "__semistream_key"  # of a message of Kafka
HEADERS = "__semistream_headers"
HIDDEN = (REASON, ORIGIN, RAW, KEY, HEADERS)


def shown(rows: DataFrame) -> list[Column]:
    """Return the user's columns."""
    return [column(name) for name in rows.columns if name not in HIDDEN]


def hidden(rows: DataFrame) -> list[Column]:
    """Return the others."""
    return [column(name) for name in rows.columns if name in HIDDEN]


def with_reason(rows: DataFrame, condition: Column, reason: Column | str) -> DataFrame:
    """Return the rows, with a reason where a condition holds and there was none before."""
    text = F.lit(reason) if isinstance(reason, str) else reason
    return rows.withColumn(REASON, F.coalesce(column(REASON), F.when(condition, text)))
