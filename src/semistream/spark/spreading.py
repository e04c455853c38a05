"""Spreading: the rows of the hottest keys go to all tasks, so that none of them is the last.

With a shuffle all rows of a key go to one task, and at Zipf 1.2 one key has a fifth of the stream.
So a row with a hot key goes to a task that a hash of the whole row chooses. Each task joins with
all of R then: it reads the pages of its own partition, and those of the hot keys, which stay warm.

Hot keys are those on the first hot page of each partition, known if R was built in order of
frequency, with a sample of the stream. They are fixed for a query. Where a row goes depends on
nothing but the row: if Spark runs a task of the stage before the shuffle once more, all its rows go
where they went the first time. Hot keys that tasks found while the query runs would not do: another
attempt of a task would send rows elsewhere, and rows would be lost or doubled.

Rows that are equal in all columns stay together.
"""

from collections.abc import Sequence

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from semistream.keys import KeyCoder
from semistream.relation.relation import Relation
from semistream.spark.keys import code_expression, column, partition_expression

# More codes than this would make the plan slow to handle; then none are spread.
_MOST_CODES = 8192


def hot_codes(relation: Relation) -> tuple[int, ...]:
    """Return the codes of the keys whose rows are to be spread; none if they are not known."""
    if not any(info.hot_pages for info in relation.manifest.partitions):
        return ()
    reader = relation.reader([])
    try:
        is_first = reader.places_in_partition(reader.hot_pages.astype(np.int64)) == 0
        found = reader.hot_codes[is_first].tolist()
    finally:
        reader.close()
    return tuple(found) if len(found) <= _MOST_CODES else ()


def spread_expression(
    stream: DataFrame, coder: KeyCoder, key: Sequence[str], partitions: int, codes: Sequence[int]
) -> Column:
    """Return the task of each row: that of its partition, or any if its key is hot."""
    anywhere = F.pmod(F.xxhash64(*hashable_columns(stream)), F.lit(partitions)).cast("int")
    is_hot = code_expression(coder, key).isin([int(code) for code in codes])
    return F.when(is_hot, anywhere).otherwise(partition_expression(coder, key, partitions))


def hashable_columns(rows: DataFrame) -> list[Column]:
    """Return the columns that Spark has a hash for."""
    return [column(f.name) for f in rows.schema.fields if _can_be_hashed(f.dataType)]


def _can_be_hashed(dtype: DataType) -> bool:
    """Return whether Spark has a hash for a type: not for maps and variants, wherever they are."""
    if isinstance(dtype, ArrayType):
        return _can_be_hashed(dtype.elementType)
    if isinstance(dtype, StructType):
        return all(_can_be_hashed(field.dataType) for field in dtype.fields)
    return not isinstance(dtype, MapType | VariantType)
