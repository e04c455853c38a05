"""The size of results that wait with the tuples of a window, so that these leave in order.

`joins/orderedlookup.py` lets them wait; here is only their memory.
"""

from dataclasses import dataclass
from math import ceil

import pyarrow as pa

from semistream.budget.pagesizes import value_bytes, widest_row_bytes
from semistream.budget.rowsizes import Widths, base_bytes, row_bytes
from semistream.relation.reader import PageReader
from semistream.spec import JoinSpec

_SLOT_BYTES = 4  # of a result: the slot of its tuple
# And its turn: both places in the order of the stream. A tuple's own turn takes the memory of its
# request, which has been served by then, so only further results of it count.
_TURN_BYTES = 8


@dataclass(frozen=True, slots=True)
class ResultColumns:
    """What is kept of each row of R that has matched, and how many a tuple has."""

    schema: pa.Schema
    widths: Widths
    per_tuple: float  # on average
    adds_nulls: bool  # whether a row of nulls stands for R where nothing has matched

    @classmethod
    def of(cls, reader: PageReader, spec: JoinSpec) -> "ResultColumns":
        """Describe the results of a join; they have no columns if it adds none."""
        names = spec.columns if spec.adds_columns else ()
        fields = [reader.manifest.schema.field(name) for name in names]
        adds_nulls = spec.keeps_misses and spec.adds_columns
        return cls(
            pa.schema([f.with_nullable(adds_nulls or reader.has_nulls(f.name)) for f in fields]),
            Widths(
                tuple(value_bytes(reader, name) for name in names),
                tuple(widest_row_bytes(reader, [name]) for name in names),
            ),
            max(1.0, reader.rows_per_key) if spec.adds_columns else 0.0,
            adds_nulls,
        )

    @property
    def bytes_per_tuple(self) -> int:
        """The size of a tuple's results."""
        size = row_bytes(self.schema, self.widths.average) + _SLOT_BYTES
        return ceil(self.per_tuple * size + max(0.0, self.per_tuple - 1) * _TURN_BYTES)

    @property
    def base_bytes(self) -> int:
        """The fixed overhead: room for the widest value of each column, and for a row of nulls."""
        nulls = ceil(row_bytes(self.schema, self.widths.average)) if self.adds_nulls else 0
        return base_bytes(self.schema, self.widths.widest) + nulls

    def capacity(self, tuples: int) -> int:
        """Return how many results fit beside this many tuples."""
        return int(tuples * self.per_tuple)
