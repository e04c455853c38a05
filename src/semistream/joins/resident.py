"""Resident: all of R in memory. The ceiling for every other operator, and the choice when R fits.

::

    R ──(once)──► hash table over its codes + the requested columns
    stream ─────► probed batch by batch ──► output at once, nothing waits

It is a front stage that resolves every tuple. The hash table is the scan window's, with
the roles exchanged: R's rows sit in the slots and the stream's codes probe. The ordered buckets
serve here as well: R is loaded in code order, but for its hot pages.

Memory: for every row of R its code (8), a chain link (4), its share of the buckets (4), and the
columns; plus the input, and an output buffer of what is left. All of it is reserved before anything
is loaded.

Cost: R is read once; then a look-up for each tuple.

Degenerate cases: R that does not fit, a `BudgetError` with the least budget.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.pagesizes import slab_bytes
from semistream.budget.resident import held_bytes, least_memory_bytes
from semistream.budget.rowsizes import Widths
from semistream.budget.sizes import Sizes
from semistream.budget.split import MOST_OUTPUT_ROWS, input_bytes
from semistream.errors import BudgetError
from semistream.joins.admission import Admission
from semistream.joins.buckets import Buckets
from semistream.joins.hashtable import HashTable
from semistream.joins.liverows import live_pairs
from semistream.joins.pagereads import RequestedPages
from semistream.joins.protocols import Codes, LocatedRows, Rows
from semistream.joins.slab import Slab, SlabRows
from semistream.joins.stream import StreamBuffer
from semistream.joins.streamjoin import JoinTask, StreamJoin
from semistream.relation.reader import PageReader
from semistream.units import format_bytes


class ResidentTable:
    """All rows of R with some columns, by key code."""

    pairs_per_tuple = 1  # a probe with more matches goes on in the next pairs
    is_bypassed = False
    match_learner = None  # there is nothing to learn: all rows are here
    page_learner = None

    def __init__(self, reader: PageReader, columns: tuple[str, ...], most_pairs: int) -> None:
        """Read all of R and build the hash table; it yields `most_pairs` matches at a time."""
        whole = RequestedPages.all_of(reader, 0, reader.page_count)
        self.capacity = reader.row_count
        self._dead = reader.dead  # a bit for each row that is no row of R any more
        self._codes = np.empty(reader.row_count, np.int64)  # of all rows
        self.bytes_read = 8 * reader.read_codes(0, reader.page_count, self._codes)
        buckets = Buckets.choose(reader, reader.row_count)
        following = np.empty(reader.row_count, np.int32)
        self._table = HashTable(buckets, self._codes, following, most_pairs)
        self._table.insert(self._codes)
        self._slabs: list[Slab] = []  # one for each column, with all rows
        for column in columns:
            arena = np.empty(slab_bytes(reader, column, reader.page_count), np.uint8)
            slab = Slab(reader, column, arena)
            if not slab.is_implied:
                self.bytes_read += slab.load(whole)
            self._slabs.append(slab)

    def matches(self, codes: Codes, waits: NDArray[np.bool_]) -> Iterator[tuple[Codes, Rows]]:
        """Look the tuples up; none has to wait."""
        pairs = ((slots, probes) for probes, slots in self._table.matches(codes))
        yield from ((probes, slots) for slots, probes in live_pairs(pairs, self._dead))

    def locate(self, rows: Rows) -> LocatedRows:
        """Find some rows, with the columns that the join reads."""
        return SlabRows(self._slabs, rows, self._codes)


class ResidentJoin(StreamJoin):
    """Joins a stream with a relation, or one partition of it, that is held in memory whole."""

    def __init__(self, task: JoinTask) -> None:
        """Check that R fits; it is loaded when the first rows arrive."""
        super().__init__(task)
        least = least_memory_bytes(self._reader, self._read_columns)
        if least > task.budget_bytes:
            raise BudgetError(
                f"resident needs {format_bytes(least)} to hold {self._reader.row_count:,} rows "
                f"with {len(self._read_columns)} columns, but the budget is "
                f"{format_bytes(task.budget_bytes)}.",
                least,
                ", or use algorithm='meshjoin', which reads R from disk",
            )

    def _allocate(self, sample: pa.RecordBatch, stream: StreamBuffer) -> None:
        self._release_first_buffers()
        self._reserve("relation", held_bytes(self._reader, self._read_columns))
        self._share_rest(stream, self._sizing.for_scan(Widths.of(sample)))
        most_pairs = self._emission.buffer.rows
        table = ResidentTable(self._reader, self._read_columns, most_pairs)
        self.telemetry.bytes_read = table.bytes_read
        self.telemetry.pages_scanned = self._reader.page_count
        self._admission = Admission(stream, table, self._emission, self.stopwatch)

    def _is_done(self, stream: StreamBuffer) -> bool:
        return stream.is_exhausted

    def _iterate(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        """Look up the tuples that have arrived: all of them are resolved."""
        if stream.pull():
            yield from self._admission.resolve()
            self.telemetry.iterations += 1
        yield from self._emission.unmatchable(stream)

    def _share_rest(self, stream: StreamBuffer, sizes: Sizes) -> None:
        """Give input and output what R leaves, up to a full output buffer."""
        spare = self._spare_bytes
        used = min(input_bytes(self._budget_bytes), spare // 4)
        rows = max(1, min(MOST_OUTPUT_ROWS, (spare - used) // sizes.output_row_bytes))
        full = max(rows * sizes.output_row_bytes, sizes.widest_row_bytes)
        self._reserve_buffers(stream, used, rows, min(spare - used, full))
