"""Resident: all of R in memory. The ceiling for every other operator, and the choice when R fits.

::

    R ──(once)──► hash table over its codes + the columns asked for
    stream ─────► probed batch by batch ──► output at once, nothing waits

To the driver it is a front stage that settles every tuple. The hash table is the window's, with
the roles exchanged: R's rows sit in the slots and the stream's codes probe. The ordered buckets
serve here as well: R is loaded in code order, but for its hot pages.

Memory: for every row of R its code (8), a chain link (4), its share of the buckets (4), and the
columns; plus the output buffer. All of it is reserved before anything is loaded.

Degenerate cases: R that does not fit, a `BudgetError` with what would do.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.cost.split import USUAL, Split
from semistream.errors import BudgetError
from semistream.joins.buckets import Buckets
from semistream.joins.diskbuffer import DiskBuffer, Slab, slab_bytes
from semistream.joins.frontstage import Codes, Matched, Rows
from semistream.joins.operator import StreamJoin
from semistream.joins.spec import JoinSpec
from semistream.joins.stream import StreamBuffer
from semistream.joins.window import HashTable
from semistream.relation.reader import PageReader
from semistream.relation.relation import Relation
from semistream.units import format_bytes

_TABLE_BYTES_PER_ROW = 8 + 4 + 4
_OUTPUT_ROWS = 16_384
_OUTPUT_ROW_BYTES = 64


def least_memory_bytes(reader: PageReader, columns: tuple[str, ...]) -> int:
    """Return what it takes to hold all of R's rows with these columns."""
    columns_bytes = sum(slab_bytes(reader, c, reader.page_count) for c in columns)
    table = reader.row_count * _TABLE_BYTES_PER_ROW
    return reader.table_bytes + table + columns_bytes + _OUTPUT_ROWS * _OUTPUT_ROW_BYTES


class ResidentTable:
    """All rows of R with some columns, by key code."""

    pairs_per_tuple = 1  # a probe with more matches goes on in the next pairs
    learns_from_matches = False
    is_resting = False
    is_passed_by = False

    def __init__(self, reader: PageReader, columns: tuple[str, ...]) -> None:
        """Read all of R and build the hash table."""
        whole = [(0, reader.page_count)]
        self._codes = np.empty(reader.row_count, np.int64)
        self.bytes_read = 8 * reader.read_codes(0, reader.page_count, self._codes)
        buckets = Buckets.choose(reader, reader.row_count)
        following = np.empty(reader.row_count, np.int32)
        self._table = HashTable(buckets, self._codes, following, _OUTPUT_ROWS)
        self._table.insert(self._codes)
        self._slabs = {}
        for column in columns:
            arena = np.empty(slab_bytes(reader, column, reader.page_count), np.uint8)
            slab = Slab(reader, column, arena)
            if not slab.is_implied:
                self.bytes_read += slab.load(whole)
            self._slabs[column] = slab

    def matches(self, codes: Codes, waits: NDArray[np.bool_]) -> Iterator[tuple[Codes, Rows]]:
        """Look the tuples up; nobody has to wait."""
        yield from self._table.matches(codes)

    def gather(self, columns: Sequence[str], rows: Rows) -> list[pa.Array]:
        """Return columns of some rows."""
        return [self._gather(self._slabs[column], rows) for column in columns]

    def learn(self, matched: Matched) -> None:
        """Nothing to learn: everything is here."""

    def learn_missing(self, codes: Codes) -> None:
        """Nothing to learn."""

    def pages_loaded(self, first: int, last: int, disk: DiskBuffer) -> None:
        """Nothing to learn."""

    def turn(self) -> None:
        """Nothing to do."""

    def _gather(self, slab: Slab, rows: Rows) -> pa.Array:
        return slab.from_codes(self._codes[rows]) if slab.is_implied else slab.gather(rows)


class ResidentJoin(StreamJoin):
    """Joins a stream with a relation, or one partition of it, that is held in memory whole."""

    def __init__(
        self,
        relation: Relation,
        spec: JoinSpec,
        budget_bytes: int,
        partition: int | None = None,
        split: Split = USUAL,
    ) -> None:
        """Check that R fits; it is loaded when the first rows arrive."""
        super().__init__(relation, spec, budget_bytes, partition, None, split)
        least = least_memory_bytes(self._reader, self._read_columns)
        if least > budget_bytes:
            raise BudgetError(
                f"resident needs {format_bytes(least)} to hold {self._reader.row_count:,} rows "
                f"with {len(self._read_columns)} columns, but the budget is "
                f"{format_bytes(budget_bytes)}.",
                least,
                ", or use algorithm='meshjoin', which reads R from disk",
            )
        self.ledger.reserve("relation", least)
        self._output_rows = _OUTPUT_ROWS

    def _run(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        yield from self._start(stream)
        if stream.peek() is None:
            return
        self._front = table = ResidentTable(self._reader, self._read_columns)
        self.telemetry.bytes_read = table.bytes_read
        self.telemetry.pages_scanned = self._reader.page_count
        while not stream.is_exhausted:
            if stream.pull():
                yield from self._settle(stream)
                self.telemetry.iterations += 1
            yield from self._hopeless(stream)
