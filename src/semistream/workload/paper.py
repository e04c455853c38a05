"""The first paper's workload (`meshjoin.txt`, table 2): R of 120-byte rows, S of 20-byte rows."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.workload.zipf import scatter, zipf_ranks

PAYLOAD = [f"c{i}" for i in range(14)]
BATCH_ROWS = 65_536


@dataclass(frozen=True)
class PaperWorkload:
    """R with a unique integer key and 14 columns of 8 bytes, S with key, quantity and price."""

    relation_rows: int = 3_500_000
    stream_rows: int = 6_000_000
    seed: int = 7

    def relation(self) -> pa.Table:
        """Return R, its rows in no order."""
        rng = np.random.default_rng(self.seed)
        columns = {c: rng.integers(0, 2**60, self.relation_rows) for c in PAYLOAD}
        return pa.table({"k": rng.permutation(self.relation_rows), **columns})

    def endless(self, exponent: float, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield batches of S without end."""
        rng = np.random.default_rng(self.seed + 2)
        quantity, price = np.ones(batch_rows, np.int32), np.zeros(batch_rows)
        while True:
            ranks = zipf_ranks(rng, batch_rows, self.relation_rows, exponent)
            columns = [scatter(ranks, self.relation_rows), quantity, price]
            yield pa.record_batch(columns, names=["k", "quantity", "price"])

    def stream(self, exponent: float) -> pa.Table:
        """Return S with keys of a Zipf distribution."""
        rng = np.random.default_rng(self.seed + 1)
        ranks = zipf_ranks(rng, self.stream_rows, self.relation_rows, exponent)
        return pa.table(
            {
                "k": scatter(ranks, self.relation_rows),
                "quantity": rng.integers(1, 10, self.stream_rows, dtype=np.int32),
                "price": rng.random(self.stream_rows),
            }
        )


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
    """Return hashes in which each bit depends on many; 0 does not stay 0."""
    hashes = (hashes + np.uint64(1)) * _FACTOR
    mixed: NDArray[np.uint64] = (hashes ^ (hashes >> _HALF)) * _FACTOR
    return mixed ^ (mixed >> _HALF)
