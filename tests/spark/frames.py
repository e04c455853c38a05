"""What the Spark tests share: Spark's own join as the oracle, and comparison of DataFrames.

DataFrames are compared after they are collected. `DataFrame.exceptAll` would do it in Spark, but
it puts a union on top of what is under test, and that has tests of its own.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from semistream.spark.keys import column
from semistream.testing import same_rows

SPARK_HOW = {"inner": "inner", "left": "left", "semi": "left_semi", "anti": "left_anti"}
ALGORITHMS = ("meshjoin", "resident")


def same_frames(actual: DataFrame, expected: DataFrame) -> bool:
    """Whether two DataFrames have the same names and the same rows, in whatever order."""
    return same_rows(actual.toArrow(), expected.toArrow())


def spark_join(
    stream: DataFrame, relation: DataFrame, on: Mapping[str, str], how: str = "left"
) -> DataFrame:
    """Return what `enrich` should, computed by Spark; all names must differ but for the key's."""
    renamed = {r: f"__right_{i}" for i, r in enumerate(on.values())}
    right = relation.withColumnsRenamed(renamed)
    pairs = [column(s) == column(renamed[r]) for s, r in on.items()]
    joined = stream.join(right, reduce(lambda a, b: a & b, pairs), SPARK_HOW[how])
    return joined.drop(*renamed.values())


def from_arrow(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return the table as a DataFrame; timestamps without a zone become TIMESTAMP_NTZ."""
    with conf(spark, "spark.sql.timestampType", "TIMESTAMP_NTZ"):
        return spark.createDataFrame(table)


def with_spark_types(table: pa.Table) -> pa.Table:
    """Return the table as Spark hands it back: it has no binaries of a fixed size."""
    fixed = pa.types.is_fixed_size_binary
    fields = [f.with_type(pa.binary()) if fixed(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))


@contextmanager
def conf(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    """Set a setting of the session for a while."""
    before = spark.conf.get(key)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        spark.conf.set(key, before)
