"""The driver of the joins that read pages by index: INLJ and its batched variant, HYBRIDJOIN and
X-HYBRIDJOIN.

::

    stream ──► INDEX WINDOW (H by page, Q of pages) ──► joined rows and misses
                    │ which page next? (the tactic)  ▲
                    ▼                                 │ all tuples that belong to the pages leave
               PAGE INDEX ──► DISK BUFFER ────────────┘

The index leads from a key to the first page that may hold it, the *page of the key*. So once a page
has been read, every waiting tuple that belongs to it is resolved: it has all its matches or it has
none. Keys that R does not have are resolved the same way and block nothing.

Of a load only the key codes are read that may match: those of pages for which tuples wait, and what
lies between them where leaving it out costs more (`pagereads.py`).

Duplicate keys in R may run on from one page to the next. The tuples of a page are resolved only
together with all the pages that their keys may lie on (`PageIndex.end`); a run that is longer than
the disk buffer is read piece by piece, and its tuples leave after the last piece.

Memory: page table and index, front stage or pinned pages, disk buffer, window and output buffer,
all reserved beforehand.

When `auto` changes the split of the budget, tuples that wait go on waiting in the join that follows
(`handover.py`).

Degenerate cases: a stream that pauses; the loop goes on until no tuple waits.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from semistream.budget.indexjoin import urgency_bytes
from semistream.budget.rowsizes import Widths
from semistream.budget.rules import BudgetRules
from semistream.budget.sizes import Sizes
from semistream.errors import BudgetError
from semistream.joins import indexwindow_kernels as kernels
from semistream.joins.handover import HandedOver, buffer_bytes, handed_over_bytes
from semistream.joins.indexwindow import IndexWindow, Taken
from semistream.joins.liverows import live_pairs
from semistream.joins.pinned import PinnedPages
from semistream.joins.protocols import Codes, IndexTactic, MakeFront, MakeIndexTactic, Rows
from semistream.joins.rows import Slots
from semistream.joins.stream import StreamBuffer
from semistream.joins.streamjoin import JoinTask, WindowedJoin
from semistream.relation.pageindex import PageIndex


class IndexJoin(WindowedJoin):
    """Runs an index tactic over a stream and a relation, or over one partition of it."""

    _window: IndexWindow  # tuples by page
    _tactic: IndexTactic  # what the algorithm decides
    _index: PageIndex  # from a key to its page
    _pages_per_read: int  # b
    _widths: Widths  # of stream rows, by which everything was sized
    # Pairs that `_matches` has found: rows in the disk buffer, and indexes of taken tuples.
    _pair_rows: Rows
    _pair_indexes: Rows

    def __init__(
        self,
        task: JoinTask,
        rules: BudgetRules,
        make_tactic: MakeIndexTactic,
        make_front: MakeFront | None = None,
    ) -> None:
        """Open the relation's page table; nothing else is allocated before rows arrive."""
        super().__init__(task, rules, make_front)
        self._make_tactic = make_tactic  # called once, with the settings
        self._after = 0  # the page behind the last one resolved: a sweep goes on there

    def _allocate(self, sample: pa.RecordBatch, stream: StreamBuffer) -> None:
        handed_over = self._handed_over
        self._widths = widths = Widths.of(sample) if handed_over is None else handed_over.widths
        sizes = self._sizing.for_index(widths)
        settings = self._split_budget(sizes, stream)
        self._tactic = self._make_tactic(settings, self._reader.page_count)
        self._reserve("page index", PageIndex.size_bytes(self._reader))
        self._index = PageIndex(self._reader)
        urgency = urgency_bytes(sizes, settings.pages_per_read, oldest_picks=settings.oldest_picks)
        self._reserve("window", urgency)
        self._pin_pages(settings.pinned_pages, sizes)
        self._pages_per_read = settings.pages_per_read
        self._window = IndexWindow(
            self._sizing.stored_schema,
            settings.waiting_tuples,
            self._widened(widths, settings.waiting_tuples, self._window_memory),
            self._sizing.implied,
            self._index,
            settings.output_rows,
            None if settings.oldest_picks else settings.pages_per_read,
        )
        if handed_over is not None:  # before the disk buffer is made, whose memory they use
            handed_over.enter(self._window, self._codes_of)
            self._handed_over, self._after = None, handed_over.after
        self._connect(stream, settings.pages_per_read)
        self._pair_rows = np.empty(settings.output_rows, np.int64)
        self._pair_indexes = np.empty(settings.output_rows, np.int64)

    def _pin_pages(self, count: int, sizes: Sizes) -> None:
        """Make the pinned part of the disk buffer, the front stage of X-HYBRIDJOIN."""
        if count:
            self._reserve("pinned pages", sizes.pinned_bytes(count))
            about = (self._reader, self._read_columns, self._index, count)
            self._front = PinnedPages(*about, self.telemetry)

    def _codes_of(self, rows: pa.RecordBatch) -> Codes:
        columns = [rows.column(i) for i in self._spec.stream_key_indexes]
        return self._relation.coder.codes(columns)[0]

    def _is_done(self, stream: StreamBuffer) -> bool:
        return stream.is_exhausted and (self._window.count == 0 or self._can_hand_over())

    def _can_hand_over(self) -> bool:
        """Return whether the tuples that wait can go on waiting in the join that follows."""
        if not isinstance(self.successor, IndexJoin):
            return False
        size_bytes = handed_over_bytes(self._window, self._spec.stream_schema)
        return size_bytes <= self._buffer_bytes and self.successor.has_room(
            self._window.count, size_bytes, self._current_widths()
        )

    def has_room(self, tuples: int, size_bytes: int, widths: Widths) -> bool:
        """Return whether tuples that waited elsewhere fit the window, and copies the buffers."""
        sizes = self._sizing.for_index(widths)
        try:
            settings, _ = self._rules.settings(sizes, self._budget_bytes, self._split)
        except BudgetError:
            return False
        return tuples <= settings.places and size_bytes <= buffer_bytes(sizes, settings)

    def _current_widths(self) -> Widths:
        return self._widths.at_least(self._window.average_bytes())

    def hand_over(self) -> HandedOver | None:
        """Return the tuples that wait when the join has ended, if there are any."""
        if self.plan is None or not self._window.count:
            return None
        del self._disk  # its memory is used for the copies
        about = (self._spec.stream_schema, self._current_widths(), self._after, self.ledger)
        return HandedOver.of(self._window, *about)

    def _iterate(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        """New tuples enter, and pages are read whose tuples are resolved and leave."""
        yield from self._admit(self._tactic.entering(self._window))
        yield from self._emission.unmatchable(stream)
        if self._window.count:
            yield from self._serve(self._tactic.next_page(self._window, self._after))
            self.telemetry.iterations += 1

    def _serve(self, page: int) -> Iterator[pa.RecordBatch]:
        """Read a requested page and those around it; all tuples that they resolve leave."""
        if self._index.end(page) - page > self._pages_per_read:
            yield from self._serve_long_run(page)
            return
        first, last = self._pages_around(page)
        self._after = self._resolved(first, last)
        self._load(first, last, self._requested(first, last))
        self._announce_next(first, last)
        for taken in self.stopwatch.timed("expire", self._window.take(first, self._after)):
            yield from self._match(taken, first, last)
            yield from self._expire(taken.slots)
        self.telemetry.bytes_read = self._disk.bytes_read

    def _serve_long_run(self, page: int) -> Iterator[pa.RecordBatch]:
        """Resolve the tuples of a page whose keys run over more pages than a read has."""
        self._after = page + 1
        for taken in self.stopwatch.timed("expire", self._window.take(page, self._after)):
            end = self._index.end(page)
            for first in range(page, end, self._pages_per_read):
                last = min(first + self._pages_per_read, end)
                self._load(first, last)
                yield from self._match(taken, first, last)
            yield from self._expire(taken.slots)
        self.telemetry.bytes_read = self._disk.bytes_read

    def _requested(self, first: int, last: int) -> Rows | None:
        """Return the pages that the tuples need which a load resolves.

        None if all are read: when reading ahead, the load was announced before all these came.
        """
        if self._relation.reading.read_ahead:
            return None
        pages = np.empty(last - first, np.int64)
        about = (first, self._after, last, self._window.waiting, self._index.ends)
        return pages[: kernels.requested_pages(*about, pages)]

    def _announce_next(self, first: int, last: int) -> None:
        """When reading ahead, announce the pages that are next unless a new tuple changes that."""
        if self._relation.reading.read_ahead:
            page = self._tactic.page_after(self._window, first, last)
            if page is not None and self._index.end(page) - page <= self._pages_per_read:
                self._disk.announce(*self._pages_around(page))

    def _pages_around(self, page: int) -> tuple[int, int]:
        return self._tactic.pages_around(page, self._index.end(page))

    def _resolved(self, first: int, last: int) -> int:
        """Return up to which page all tuples are resolved by the pages ``first … last - 1``."""
        resolved = last
        while resolved > first + 1 and self._index.end(resolved - 1) > last:
            resolved -= 1
        return resolved

    def _match(self, taken: Taken, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Emit all matches of some tuples on the pages that are loaded."""
        first_row = int(self._reader.row_bounds[first])
        matches = live_pairs(self._matches(taken, first, last), self._reader.dead, first_row)
        for rows, slots in self.stopwatch.timed("probe", matches):
            yield from self._emit_matches(rows, slots)

    def _matches(self, taken: Taken, first: int, last: int) -> Iterator[tuple[Rows, Slots]]:
        """Yield (row in the disk buffer, slot) pairs, as many at a time as the output holds."""
        position = np.zeros(2, np.int64)
        while position[0] < len(taken.slots):
            found = kernels.match_pages(
                self._disk.codes,
                taken.codes,
                taken.pages,
                self._reader.row_bounds,
                self._disk.run_ends,
                self._index.parts,
                first,
                last,
                position,
                self._pair_rows,
                self._pair_indexes,
            )
            if found:
                yield self._pair_rows[:found], taken.slots[self._pair_indexes[:found]]

    def _expire(self, slots: Slots) -> Iterator[pa.RecordBatch]:
        """Let taken tuples go, after their misses have been emitted."""
        with self.stopwatch.phase("expire"):
            yield from self._emit_misses(slots)
            self._window.release(slots)
