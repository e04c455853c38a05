"""Look-ups in the order of R: a window of tuples is sorted by page, and only these pages are read.

Ours; no paper has it. It is for micro-batches: all tuples are there at once, and they request only
a part of R.

::

    stream ──► window of h_S tuples ──► by page ──► their codes ──► rows that match ──┐
                                                                                      │
    joined rows, misses ◄─────────────────────────────────────────────────────────────┘

Algorithm, one iteration:

1. tuples enter until the window is full or the stream has no more for now;
2. the page of each is found through the index, and the tuples are sorted by page;
3. the key codes of these pages are read in the order of R (`relation/readplan.py`), all of a page
   or a few (`guessedrows.py`), and each tuple's code is searched for on its page;
4. the rows that matched are gathered, one column after the other, in the same order; all tuples
   leave, match or no match.

Only requested pages are read. So the cost of n tuples does not depend on the size of R, until n is
so large that all of R's pages are requested. Nothing has to warm up.

*Duplicate keys in R*: a tuple is searched for on its page and on each page after it that begins
with its code.

Invariants: every tuple leaves in the iteration in which it entered. In one iteration the codes of a
page are read once, unless the tuples have more requests than the window has places.

Memory: `semistream.budget.lookup`; the disk buffer is the two buffers of the read plan, and what
may be mapped of a file. Cost: `semistream.cost.lookup`.

*Front stage*: none of its own, since nothing would be learned in time. One that outlives the join
(`keptfront.py`) resolves tuples before they enter the window, and is shown the rows that match, if
R's keys are unique: where a key has several rows, a piece of output may have some of them only.

`orderedlookup.py` has look-ups whose rows leave in the order of the stream.

Degenerate cases: a window of one tuple is INLJ; on a device where a request is expensive, gaps are
read as well, until all of R is read as by a scan.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.pagesizes import planned_mapping, planned_parts, planned_shares
from semistream.budget.rowsizes import Widths
from semistream.budget.rules import BudgetRules
from semistream.joins import lookup_kernels as kernels
from semistream.joins.admission import Admission
from semistream.joins.guessedrows import GuessedRows
from semistream.joins.learning import Learning
from semistream.joins.liverows import live_pairs
from semistream.joins.lookupwindow import LookUpWindow, Requests
from semistream.joins.plannedrows import PlannedColumns
from semistream.joins.protocols import LocatedRows, Rows
from semistream.joins.rows import Slots
from semistream.joins.stream import StreamBuffer
from semistream.joins.streamjoin import JoinTask, Plan, StreamJoin
from semistream.relation.pageindex import PageIndex
from semistream.relation.pagetable import CODES
from semistream.relation.readplan import PlannedReads
from semistream.relation.writer import CODE_BYTES

_MISSING, _NOT_KNOWN = -1, -2  # of the row of a request, by a guess


class LookUpJoin(StreamJoin):
    """Looks the tuples of a window up in the order of R."""

    _window: LookUpWindow
    _index: PageIndex  # from a key to its page
    _codes: PlannedReads  # of key codes
    _guesses: GuessedRows  # finds rows by a few codes of their pages
    _rows: PlannedReads  # of columns
    _columns: PlannedColumns  # that the join reads
    _admission: Admission
    _learning: Learning  # tells a front stage that outlives the join what has matched
    _pairs: NDArray[np.int64]  # rows of R and slots that match

    def __init__(self, task: JoinTask, rules: BudgetRules) -> None:
        """Open the relation; `rules` split the budget when rows have arrived."""
        super().__init__(task)
        self._rules = rules

    def _allocate(self, sample: pa.RecordBatch, stream: StreamBuffer) -> None:
        reader, widths = self._reader, Widths.of(sample)
        sizes = self._sizing.for_look_ups(widths)
        self._release_first_buffers()
        settings = self._rules.split_back(sizes, self._budget_bytes, self._split)
        self.plan = Plan(settings)
        buffers = (settings.input_bytes, settings.output_rows, settings.output_bytes)
        self._reserve_buffers(stream, *buffers)
        self._reserve("disk buffer", sizes.disk_bytes(settings.pages_per_read))
        window = self._reserve("window", sizes.window_bytes(settings.places))
        self._reserve("page index", PageIndex.size_bytes(reader))
        self._index = PageIndex(reader)
        pages = settings.pages_per_read
        parts = planned_parts(reader, self._read_columns)
        codes_bytes, rows_bytes = planned_shares(reader, parts, pages)
        mapped_bytes = planned_mapping(reader, pages)
        timer = self.stopwatch.phase("io")
        self._codes = PlannedReads(reader, codes_bytes, mapped_bytes, timer)
        self._rows = PlannedReads(reader, rows_bytes, mapped_bytes, timer)
        self._guesses = GuessedRows(reader, self._codes)
        self._columns = PlannedColumns(reader, self._read_columns, self._rows)
        widths = self._widened(widths, settings.places, window)
        about = (self._sizing.stored_schema, settings.places, widths, self._sizing.implied)
        self._window = LookUpWindow(*about)
        self._pairs = np.empty((2, settings.output_rows), np.int64)
        self._front = self._use_kept_front()
        self._admission = Admission(stream, self._front, self._emission, self.stopwatch)
        about_learning = (self._front, stream, reader.page_count, self.stopwatch)
        self._learning = Learning(*about_learning, outlives=True)

    def _is_done(self, stream: StreamBuffer) -> bool:
        return stream.is_exhausted and self._window.count == 0

    def _iterate(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        """Fill the window, and resolve all that is in it."""
        window = self._window
        yield from self._admission.admit(window, window.capacity - window.count)
        yield from self._emission.unmatchable(stream)
        if not window.count:
            return
        self.telemetry.window_rows_peak = max(self.telemetry.window_rows_peak, window.count)
        yield from self._resolve()
        window.clear()
        self.telemetry.iterations += 1
        self.telemetry.bytes_read = self._codes.bytes_read + self._rows.bytes_read

    def _resolve(self) -> Iterator[pa.RecordBatch]:
        """Resolve all tuples of the window."""
        window = self._window
        for requests in self.stopwatch.timed("probe", window.requests(self._index)):
            yield from self._serve(requests)
        slots = np.arange(window.count)
        self._observe_missing(slots)
        yield from self._emission.misses(slots, window)

    def _observe_missing(self, slots: Slots) -> None:
        """Show the front stage which keys R does not have; these tuples are resolved."""
        window = self._window
        if self._learning.is_active:
            self._learning.observe_missing(window.codes_at(slots[window.matched[slots] == 0]))

    def _serve(self, requests: Requests) -> Iterator[pa.RecordBatch]:
        """Find the rows of requests, page by page, and emit them as soon as a piece is full."""
        self.telemetry.pages_scanned += len(requests.pages)
        if not self._guesses.may_help(requests):
            yield from self._serve_pages(requests)
            return
        for block in requests.blocks():
            are_guessed = self._guesses.apply_to(block)
            yield from (self._serve_guesses if are_guessed else self._serve_pages)(block)

    def _serve_pages(self, requests: Requests) -> Iterator[pa.RecordBatch]:
        """Find the rows of requests by all codes of their pages."""
        for pairs in self._on_pages(requests):
            yield from self._emit(*pairs)

    def _serve_guesses(self, requests: Requests) -> Iterator[pa.RecordBatch]:
        """Find the rows of requests by a few codes of their pages, the others by all of them."""
        rows = np.empty(len(requests.codes), np.int64)
        with self.stopwatch.phase("probe"):
            self._guesses.find(requests, rows)
        unknown = np.flatnonzero(rows == _NOT_KNOWN).astype(np.int32)
        rows[unknown] = _MISSING
        for found, places in self._on_pages(requests.at(unknown)):
            rows[places] = found
        matched = np.flatnonzero(rows != _MISSING)
        for first in range(0, len(matched), self._pairs.shape[1]):
            some = matched[first : first + self._pairs.shape[1]]
            piece = self._pairs[:, : len(some)]
            piece[0], piece[1] = rows[some], requests.slots[some]
            yield from self._emit(*piece)

    def _on_pages(self, requests: Requests) -> Iterator[tuple[Rows, Rows]]:
        """Yield rows and slots of requests by the codes of whole pages, a piece at a time."""
        rows, slots = self._pairs
        found = 0
        for view in self._codes.views(CODES, requests.pages, len(requests.codes)):
            whole = len(view.data) // CODE_BYTES * CODE_BYTES
            pages = (view.starts // CODE_BYTES, requests.pages[view.first : view.last])
            codes = view.data[:whole].view(np.int64)
            in_view = (codes, view.window, *pages, self._reader.row_bounds)
            bounds = np.array([view.first, view.last], requests.indexes.dtype)
            some = slice(*np.searchsorted(requests.indexes, bounds))
            wanted = (requests.slots[some], requests.codes[some], requests.indexes[some])
            position = np.array([0, -1])
            while position[0] < len(wanted[0]):
                with self.stopwatch.phase("probe"):
                    about = (*wanted, view.first, position, rows, slots, found)
                    found = int(kernels.match_requests(*in_view, *about))
                if found == len(rows):
                    yield rows, slots
                    found = 0
        if found:
            yield rows[:found], slots[:found]

    def _emit(self, rows: Rows, slots: Rows) -> Iterator[pa.RecordBatch]:
        is_observed = self._learning.is_active and self._index.is_unique
        observe = self._observe if is_observed else None
        self._codes.release()  # so that codes and columns are not mapped at the same time
        for live_rows, live_slots in live_pairs([(rows, slots)], self._reader.dead):
            about = (live_rows, live_slots, self, self._window)
            yield from self._emission.matches(*about, observe=observe)

    def _observe(
        self,
        rows: Rows,
        slots: Slots,
        columns: Sequence[pa.Array],
        sizes: NDArray[np.int64] | None,
    ) -> None:
        """Show the front stage which rows have matched; each has a key of its own."""
        _, firsts, counts = np.unique(rows, return_index=True, return_counts=True)
        codes = self._window.codes_at(slots[firsts])
        self._learning.observe_rows(codes, firsts, counts, columns, sizes)

    def locate(self, rows: Rows) -> LocatedRows:
        """Find out how wide rows of R are; they ascend by page."""
        return self._columns.locate(rows)
