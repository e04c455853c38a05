"""The papers' synthetic data: R of 120-byte rows, S of 20-byte rows, keys by Zipf's law.

Table 2 of `meshjoin.txt` names the settings: skew z_R and z_S of the join attribute in R and in S,
its domain, and the row sizes. Surrogate keys are the case where it is a key of R, and R has each
value once; otherwise R's join values follow Zipf's law too: some are frequent, some are missing. A
value that is popular in S is popular in R, as in the paper's explanation of figure 6(c): a stream
tuple then has many matches, on average n_R · Σ p_S(v) · p_R(v).

`hybridjoin.txt`, section 5, stores R sorted by how often the stream requests a row. That is
`by_frequency`; without it, popular keys lie anywhere.

Everything synthetic uses this one workload: the papers' figures, the model's validation, the
benchmarks, ``semistream generate zipf``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.errors import OptionError
from semistream.workload.base import (
    CHUNK_ROWS,
    ChunkedStream,
    chunk_ranges,
    chunk_rng,
    random_bytes,
)
from semistream.workload.zipf import scatter, zipf_ranks

_RELATION = 1

STREAM = pa.schema([("k", pa.int64()), ("quantity", pa.int32()), ("price", pa.float64())])


@dataclass(frozen=True)
class Synthetic(ChunkedStream):
    """R with key ``k`` and a payload, S with ``k``, ``quantity`` and ``price``.

    Keys are ``0 … relation_rows - 1`` on both sides. `exponent` is z_S; `relation_exponent` is
    z_R, or None for a key of R. The payload is one column of bytes, ``payload``; with
    `in_columns` it is integer columns ``c0``, ``c1``, … of 8 bytes each.

    >>> workload = Synthetic(relation_rows=1000)
    >>> workload.stream_rows(10, 5) == workload.stream_rows(0, 20).slice(10, 5)
    True
    """

    relation_rows: int = 3_500_000
    exponent: float = 1.0
    relation_exponent: float | None = None
    by_frequency: bool = False
    payload_bytes: int = 112
    seed: int = 7
    in_columns: bool = False

    def __post_init__(self) -> None:
        """Refuse sizes and exponents that no table can have."""
        if self.relation_rows < 1 or self.payload_bytes < 1:
            raise OptionError(
                "a synthetic workload needs relation_rows and payload_bytes of at least 1; "
                f"got {self.relation_rows} and {self.payload_bytes}"
            )
        if self.in_columns and self.payload_bytes % 8:
            raise OptionError(
                "with in_columns, payload_bytes must be a multiple of 8, the bytes of a column; "
                f"got {self.payload_bytes}"
            )
        if self.exponent < 0 or (self.relation_exponent or 0) < 0:
            raise OptionError(
                "a Zipf exponent must be at least 0, and 0 is uniform; got "
                f"exponent={self.exponent}, relation_exponent={self.relation_exponent}"
            )

    @property
    def key(self) -> str:
        """The relation's key column."""
        return "k"

    @property
    def stream_key(self) -> str:
        """The stream's key column."""
        return "k"

    @property
    def relation_schema(self) -> pa.Schema:
        """The key and the payload, in one column or in several."""
        payload = [("payload", pa.binary(self.payload_bytes))]
        if self.in_columns:
            payload = [(f"c{i}", pa.int64()) for i in range(self.payload_bytes // 8)]
        return pa.schema([("k", pa.int64()), *payload])

    @property
    def stream_schema(self) -> pa.Schema:
        """The key, a quantity and a price."""
        return STREAM

    def relation_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield R: in key order, or as its join values are drawn."""
        first = 0
        for number, rows in chunk_ranges(self.relation_rows):
            rng = chunk_rng(self.seed, number, _RELATION)
            keys = self._relation_keys(rng, first, rows)
            columns = [pa.array(keys), *self._payload(rng, rows)]
            yield pa.RecordBatch.from_arrays(columns, schema=self.relation_schema)
            first += rows

    def relation(self) -> pa.Table:
        """Return all of R as one table."""
        return pa.Table.from_batches(self.relation_batches(), self.relation_schema)

    def endless(self, exponent: float, batch_rows: int = CHUNK_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield S without end for a measurement: only keys are drawn, with this exponent.

        Keys are distributed as in `stream_rows` but are other random numbers, drawn in sequence;
        quantities are all 1 and prices 0. Not reproducible by row number, only from the start.
        """
        rng = np.random.default_rng(self.seed + 2)
        quantity, price = np.ones(batch_rows, np.int32), np.zeros(batch_rows)
        while True:
            ranks = self.draw_ranks(rng, batch_rows, exponent)
            columns = [self.keys_of(ranks, 0), quantity, price]
            yield pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=STREAM)

    def stream_chunk(self, number: int) -> pa.RecordBatch:
        """Make one chunk of S."""
        rng = chunk_rng(self.seed, number)
        ranks = self.draw_ranks(rng, CHUNK_ROWS, self.exponent)
        columns = [
            self.keys_of(ranks, number * CHUNK_ROWS),
            rng.integers(1, 10, CHUNK_ROWS, dtype=np.int32),
            rng.random(CHUNK_ROWS),
        ]
        return pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=STREAM)

    def draw_ranks(
        self, rng: np.random.Generator, count: int, exponent: float
    ) -> NDArray[np.int64]:
        """Draw the popularity ranks of stream rows."""
        return zipf_ranks(rng, count, self.relation_rows, exponent)

    def keys_of(self, ranks: NDArray[np.int64], first: int) -> NDArray[np.int64]:
        """Return the keys of these popularity ranks, for rows `first` and on of the stream."""
        del first
        return ranks - 1 if self.by_frequency else scatter(ranks, self.relation_rows)

    def _payload(self, rng: np.random.Generator, rows: int) -> list[pa.Array]:
        if not self.in_columns:
            return [random_bytes(rng, rows, self.payload_bytes)]
        return [pa.array(rng.integers(0, 2**60, rows)) for _ in range(self.payload_bytes // 8)]

    def _relation_keys(self, rng: np.random.Generator, first: int, rows: int) -> NDArray[np.int64]:
        if self.relation_exponent is None:
            return np.arange(first, first + rows, dtype=np.int64)
        ranks = zipf_ranks(rng, rows, self.relation_rows, self.relation_exponent)
        return self.keys_of(ranks, 0)
