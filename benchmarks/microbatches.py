"""R and the micro-batches of the benchmarks of micro-batches.

Imports nothing that another version of Semistream might not have.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa

import semistream as ss

_ARROW_ROWS = 10_000  # of a batch from Spark
_BUILT_ROWS = 500_000  # that are made at a time


def build(path: Path, rows: int, partitions: int = 1) -> ss.Relation:
    """Build R: unique keys in random order, 14 columns of 8 bytes."""
    keys = np.random.default_rng(1).permutation(rows).astype(np.int64)
    names = ["k", *(f"c{i}" for i in range(14))]
    schema = pa.schema([(name, pa.int64()) for name in names])
    batches = (
        pa.record_batch([some, *(some * 3 + i for i in range(14))], schema=schema)
        for some in (keys[at : at + _BUILT_ROWS] for at in range(0, rows, _BUILT_ROWS))
    )
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    return ss.build_relation(reader, path, key="k", partitions=partitions)


def micro_batch(rng: np.random.Generator, relation_rows: int, rows: int) -> list[pa.RecordBatch]:
    """Return rows with uniform keys, in batches as Spark sends them."""
    keys = rng.integers(0, relation_rows, rows)
    whole = pa.record_batch({"k": keys, "quantity": np.arange(rows)})
    return [whole[at : at + _ARROW_ROWS] for at in range(0, rows, _ARROW_ROWS)]


def check(joined: list[pa.RecordBatch], rows: int) -> None:
    """Raise unless all rows are there, each with the columns of its key."""
    table = pa.Table.from_batches(joined)
    keys = table["k"].to_numpy()
    right = all((table[f"c{i}"].to_numpy() == keys * 3 + i).all() for i in range(2))
    if table.num_rows != rows or len(np.unique(table["quantity"])) != rows or not right:
        raise AssertionError("a wrong answer")
