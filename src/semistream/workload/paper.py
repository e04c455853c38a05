"""The first paper's workload (`meshjoin.txt`, table 2): R of 120-byte rows, S of 20-byte rows."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

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


def fingerprint(batches: list[pa.RecordBatch], column: str = "c0") -> tuple[int, int]:
    """Return the row count and an order-free checksum that binds each row's two sides together."""
    rows = checksum = 0
    for batch in batches:
        rows += batch.num_rows
        added = batch.column(column).to_numpy().astype(np.uint64)
        quantity = batch.column("quantity").to_numpy().astype(np.uint64)
        checksum += int((added * quantity).sum(dtype=np.uint64))
    return rows, checksum % 2**64
