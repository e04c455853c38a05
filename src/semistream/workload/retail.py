"""A retail chain: a product master of about 120 bytes a row, and the sales that refer to it.

Popularity follows Zipf's law, and popular products lie anywhere in the key range. A small share
of the sales is of products that the master does not have yet.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.workload.bursty import bursts
from semistream.workload.zipf import scatter, zipf_ranks

_BATCH_ROWS = 1 << 17
_EPOCH_US = 1_767_225_600_000_000  # 2026-01-01
UNKNOWN_SHARE = 0.002

PRODUCTS = pa.schema(
    [
        ("product_id", pa.int64()),
        ("surrogate_key", pa.int64()),
        ("supplier_id", pa.int32()),
        ("list_price", pa.float64()),
        ("weight", pa.float64()),
        ("listed_at", pa.timestamp("us", tz="UTC")),
        ("name", pa.string()),
        ("description", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Retail:
    """The size and the shape of the chain; the same seed gives the same rows."""

    products: int
    sales: int
    batches: int
    exponent: float = 1.0
    seed: int = 2026

    def product_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the product master, in key order."""
        for first in range(0, self.products, _BATCH_ROWS):
            yield self._products(np.arange(first, min(first + _BATCH_ROWS, self.products)))

    def sales_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the sales, one batch per burst."""
        rng = np.random.default_rng(self.seed)
        first = 0
        for rows in bursts(rng, self.batches, self.sales):
            yield self._sales(rng, first, rows)
            first += rows

    def _products(self, ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.RecordBatch:
        rng = np.random.default_rng([self.seed, int(ids[0])])
        names = [f"article no. {i:012d}" for i in ids.tolist()]
        shades = ("grey", "teal", "plum", "sand", "jade", "rust", "navy", "lime")
        texts = [
            f"{shades[i % 8]} model {i % 977:03d}, keep dry, cool and upright" for i in ids.tolist()
        ]
        columns = [
            pa.array(ids * 7 + 1_000_003),
            pa.array(ids + 1),
            pa.array((ids % 5_003).astype(np.int32)),
            pa.array(np.round(rng.uniform(1, 500, len(ids)), 2)),
            pa.array(np.round(rng.uniform(0.01, 40, len(ids)), 3)),
            pa.array(_EPOCH_US - rng.integers(0, 10**15, len(ids))).cast(PRODUCTS.field(5).type),
            pa.array(names),
            pa.array(texts),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=PRODUCTS)

    def _sales(self, rng: np.random.Generator, first: int, rows: int) -> pa.RecordBatch:
        picked = scatter(zipf_ranks(rng, rows, self.products, self.exponent), self.products)
        unknown = rng.random(rows) < UNKNOWN_SHARE
        product_ids = np.where(unknown, -picked - 1, picked * 7 + 1_000_003)
        sold_at = _EPOCH_US + (first + np.arange(rows)) * 200
        return pa.record_batch(
            {
                "sale_id": np.arange(first, first + rows),
                "product_id": product_ids,
                "quantity": rng.integers(1, 10, rows, dtype=np.int32),
                "sale_price": np.round(rng.uniform(1, 500, rows), 2),
                "sold_at": pa.array(sold_at).cast(pa.timestamp("us", tz="UTC")),
            }
        )
