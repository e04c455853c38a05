"""Key codes and routing in the JVM: the Spark expressions that `semistream.keys` mirrors.

A row goes to partition ``code mod P``; rows without a key go to partition 0, where they match
nothing. The task that receives them computes the codes again and refuses rows of other partitions.
"""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from semistream.keys import KeyCoder


def column(name: str) -> Column:
    """Return a top-level column by its exact name, which may contain dots."""
    return F.col("`" + name.replace("`", "``") + "`")


def code_expression(coder: KeyCoder, names: Sequence[str]) -> Column:
    """Return the key code of a row, or null if a lone integer key is null."""
    columns = [_canonical(column(n), t) for n, t in zip(names, coder.types, strict=True)]
    return columns[0] if coder.is_exact else F.xxhash64(*columns)


def partition_expression(coder: KeyCoder, names: Sequence[str], partitions: int) -> Column:
    """Return the partition of a row."""
    partition = F.pmod(code_expression(coder, names), F.lit(partitions))
    return F.coalesce(partition, F.lit(0)).cast("int")


def has_key_expression(names: Sequence[str]) -> Column:
    """Return whether no key column of a row is null."""
    has_key = F.lit(True)
    for name in names:
        has_key = has_key & column(name).isNotNull()
    return has_key


def _canonical(key: Column, dtype: pa.DataType) -> Column:
    if pa.types.is_integer(dtype):
        return key.cast("long")
    if pa.types.is_decimal(dtype):
        return key.cast(f"decimal({dtype.precision},{dtype.scale})")
    return key
