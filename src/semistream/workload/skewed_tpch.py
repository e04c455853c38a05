"""TPC-H with skewed customers: ours, not the benchmark's.

TPC-H draws the customer of an order uniformly. Here the orders are those of TPC-H, but their
customers are drawn by Zipf's law over all customers, in an order of popularity that is not the
order of the keys. Ranks are drawn at full size (`miniature`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.workload.base import CHUNK_ROWS, ChunkedStream, chunk_rng
from semistream.workload.miniature import Miniature
from semistream.workload.tpch import Tpch

_STREAM = pa.schema([("o_custkey", pa.int64()), ("o_totalprice", pa.float64())])


@dataclass(frozen=True)
class SkewedTpch(ChunkedStream):
    """TPC-H's customers, and orders without end whose customers are skewed."""

    tpch: Tpch
    exponent: float = 1.0
    times: float = 1.0
    seed: int = 7

    @property
    def key(self) -> str:
        """The customers' key."""
        return self.tpch.key

    @property
    def stream_key(self) -> str:
        """The orders' customer."""
        return self.tpch.stream_key

    @property
    def relation_rows(self) -> int:
        """The number of customers."""
        return self.tpch.relation_rows

    @property
    def relation_schema(self) -> pa.Schema:
        """The customers' columns."""
        return self.tpch.relation_schema

    @property
    def stream_schema(self) -> pa.Schema:
        """An order's customer and price."""
        return _STREAM

    def relation_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the customers."""
        return self.tpch.relation_batches()

    def stream_chunk(self, number: int) -> pa.RecordBatch:
        """Make one chunk of orders; customers are numbered from 1."""
        rng = chunk_rng(self.seed, number)
        keys = Miniature(self.relation_rows, self.exponent, times=self.times)
        ranks = keys.draw_ranks(rng, CHUNK_ROWS, self.exponent)
        columns = [keys.keys_of(ranks, 0) + 1, np.round(rng.random(CHUNK_ROWS) * 4e5, 2)]
        return pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=_STREAM)
