"""The benchmarks' tables, and the fingerprint that their answers are checked by."""

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.workload.base import CHUNK_ROWS, stream_batches
from semistream.workload.synthetic import Synthetic

BATCH_ROWS = CHUNK_ROWS


def paper_workload(relation_rows: int = 3_500_000, exponent: float = 1.0) -> Synthetic:
    """Return the first paper's workload (`meshjoin.txt`, table 2), R with 14 columns of 8 bytes."""
    return Synthetic(relation_rows, exponent, in_columns=True)


def shuffled_relation(workload: Synthetic) -> pa.Table:
    """Return R with its rows in random order, in one piece."""
    table = workload.relation()
    order = np.random.default_rng(workload.seed).permutation(table.num_rows)
    return table.take(order).combine_chunks()


def stream_table(workload: Synthetic, rows: int) -> pa.Table:
    """Return the first rows of S in one piece."""
    return pa.Table.from_batches(stream_batches(workload, rows)).combine_chunks()


Fingerprint: TypeAlias = tuple[int, int, tuple[str, ...]]
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


def fingerprint(batches: Iterable[pa.RecordBatch]) -> Fingerprint:
    """Return the row count, the sum of the rows' hashes, and the columns with their types.

    A row's hash binds the values of all its columns together, so that one that is wrong, or on
    another row, changes it. The order of rows and columns does not matter. For columns of numbers
    without nulls.
    """
    count = checksum = 0
    columns: set[tuple[str, ...]] = set()
    for batch in batches:
        names = sorted(batch.schema.names)
        count += batch.num_rows
        hashes = np.zeros(batch.num_rows, np.uint64)
        for name in names:
            hashes = _mixed(hashes ^ _bits(batch.column(name)))
        checksum += int(hashes.sum(dtype=np.uint64))
        columns.add(tuple(f"{name} {batch.schema.field(name).type}" for name in names))
    assert len(columns) <= 1, f"batches differ in their columns: {columns}"
    return count, checksum % 2**64, next(iter(columns), ())


def _bits(column: pa.Array) -> NDArray[np.uint64]:
    assert not column.null_count, "a fingerprint is for columns without nulls"
    values = column.to_numpy()
    bits: NDArray[np.uint64] = values.view(f"u{values.itemsize}").astype(np.uint64)
    return bits


def _mixed(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return hashes in which each bit depends on many; 0 does not map to 0."""
    hashes = (hashes + np.uint64(1)) * _FACTOR
    mixed: NDArray[np.uint64] = (hashes ^ (hashes >> _HALF)) * _FACTOR
    return mixed ^ (mixed >> _HALF)
