"""A retail chain: a product master of about 120 bytes a row, and the sales that refer to it.

Popularity follows Zipf's law, and popular products lie anywhere in the key range. A small share of
the sales refers to products that the master does not have yet.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.errors import OptionError
from semistream.workload.base import CHUNK_ROWS, ChunkedStream, chunk_rng
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

SALES = pa.schema(
    [
        ("sale_id", pa.int64()),
        ("product_id", pa.int64()),
        ("quantity", pa.int32()),
        ("sale_price", pa.float64()),
        ("sold_at", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True, slots=True)
class Retail(ChunkedStream):
    """The size and the shape of the chain; the same seed gives the same rows.

    `sales_batches` yields `sales` rows in `batches` bursts. As a `Workload` the stream of sales
    has no end.
    """

    products: int
    sales: int = 0
    batches: int = 1
    exponent: float = 1.0
    seed: int = 2026

    def __post_init__(self) -> None:
        """Refuse a chain without products."""
        if self.products < 1 or self.exponent < 0:
            raise OptionError(
                "retail needs at least one product and an exponent of at least 0; "
                f"got {self.products} and {self.exponent}"
            )

    @property
    def key(self) -> str:
        """The product."""
        return "product_id"

    @property
    def stream_key(self) -> str:
        """The product sold."""
        return "product_id"

    @property
    def relation_rows(self) -> int:
        """How many products there are."""
        return self.products

    @property
    def relation_schema(self) -> pa.Schema:
        """The product master's columns."""
        return PRODUCTS

    @property
    def stream_schema(self) -> pa.Schema:
        """A sale's columns."""
        return SALES

    def relation_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the product master, in key order."""
        return self.product_batches()

    def stream_chunk(self, number: int) -> pa.RecordBatch:
        """Make one chunk of the sales."""
        return self._sales(chunk_rng(self.seed, number), number * CHUNK_ROWS, CHUNK_ROWS)

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
        columns = [
            pa.array(np.arange(first, first + rows)),
            pa.array(product_ids),
            pa.array(rng.integers(1, 10, rows, dtype=np.int32)),
            pa.array(np.round(rng.uniform(1, 500, rows), 2)),
            pa.array(sold_at).cast(SALES.field("sold_at").type),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SALES)
