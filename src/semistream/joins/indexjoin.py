"""The driver of the joins that read pages by index: INLJ and its batched variant, HYBRIDJOIN and
X-HYBRIDJOIN.

::

    stream ──► WAITING ROOM (H by page, Q of pages) ──► joined rows and misses
                    │ whose page next? (the tactic)  ▲
                    ▼                                 │ all tuples at home on the pages leave
               PAGE INDEX ──► DISK BUFFER ────────────┘

The index leads from a key to the one page it is or would be on. So once a page has been read, every
waiting tuple at home on it is settled: it has all its matches or it has none. Keys that R does not
have are settled the same way and block nothing.

Duplicate keys in R may run on from one page to the next. A page's tuples are settled only together
with all the pages their keys may lie on (`PageIndex.end`); a run that is longer than the disk
buffer is read piece by piece, and its tuples leave after the last piece.

Memory: page table and index, front stage or pinned pages, disk buffer, waiting room and output
buffer, all reserved beforehand.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from semistream.budget.indexjoin import IndexJoinSettings, least_memory_bytes
from semistream.budget.rowsizes import ARENA_SLACK, Widths, variable_columns
from semistream.budget.sizes import Sizes
from semistream.budget.split import USUAL, Split
from semistream.joins import room_kernels as kernels
from semistream.joins.frontstage import MakeFront
from semistream.joins.opened import Opened
from semistream.joins.operator import SAMPLE_ROWS, Plan, StreamJoin
from semistream.joins.pinned import PinnedPages
from semistream.joins.room import Taken, WaitingRoom
from semistream.joins.stream import StreamBuffer
from semistream.memory import Reservation
from semistream.relation.pageindex import PageIndex
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec


class IndexTactic(Protocol):
    """What one index join decides."""

    def settings(
        self, sizes: Sizes, budget_bytes: int, least_pages: int, split: Split = USUAL
    ) -> IndexJoinSettings:
        """Split the budget, or raise `BudgetError` with the least that would do."""
        ...

    def may_enter(self, room: WaitingRoom) -> bool:
        """Return whether new tuples may enter now."""
        ...

    def next_home(self, room: WaitingRoom, after: int) -> int:
        """Return the home page to read next; `after` is the page behind the last one settled."""
        ...

    def home_after(self, room: WaitingRoom, first: int, last: int) -> int | None:
        """Return the home that would be next once these pages are dealt with; None if nobody's."""
        ...

    def pages_around(self, home: int, end: int, most: int, page_count: int) -> tuple[int, int]:
        """Return what to read for a home whose keys end before page `end`; at most `most` pages."""
        ...


class IndexJoin(StreamJoin):
    """Runs an index tactic over a stream and a relation, or over one partition of it."""

    _window: WaitingRoom

    def __init__(
        self,
        relation: Relation,
        spec: JoinSpec,
        budget_bytes: int,
        tactic: IndexTactic,
        partition: int | None = None,
        make_front: MakeFront | None = None,
        split: Split = USUAL,
        opened: Opened | None = None,
    ) -> None:
        """Open the relation's page table; nothing else is allocated before rows arrive."""
        super().__init__(relation, spec, budget_bytes, partition, make_front, split, opened)
        self._tactic = tactic
        self._after = 0

    def _run(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        yield from self._start(stream)
        sample = stream.sample(SAMPLE_ROWS)
        if sample is None:
            return
        self._allocate(sample, stream)
        while not (stream.is_exhausted and self._window.count == 0):
            if self._tactic.may_enter(self._window):
                yield from self._admit(stream, self._window.capacity - self._window.count)
                yield from self._hopeless(stream)
            if self._window.count:
                yield from self._serve(self._tactic.next_home(self._window, self._after))
                self.telemetry.iterations += 1

    def _allocate(self, sample: pa.RecordBatch, stream: StreamBuffer) -> None:
        """Size everything by a sample of the stream, reserve it, then make it."""
        widths = Widths.of(sample)
        sizes = self._sizing.for_index(widths)
        budget = self._take_front_share(least_memory_bytes(sizes, sizes.least_pages))
        settings = self._tactic.settings(sizes, budget, sizes.least_pages, self._split)
        self.plan = Plan(settings, self._cached_rows_now)
        self._resize_input(stream, settings.input_bytes)
        self._reserve("page index", PageIndex.size_bytes(self._reader))
        self._reserve("disk buffer", sizes.disk_bytes(settings.pages_per_read))
        waiting = self._reserve("waiting room", sizes.window_bytes(settings.waiting_tuples))
        self._reserve_output(settings.output_rows, settings.output_bytes)
        self._pages_per_read = settings.pages_per_read
        self._index = PageIndex(self._reader)
        if settings.pinned_pages:
            self._reserve("pinned pages", sizes.pinned_bytes(settings.pinned_pages))
            pinned = (self._reader, self._read_columns, self._index, settings.pinned_pages)
            self._front = PinnedPages(*pinned, self.telemetry)
        widths = self._use_spare_bytes(widths, settings.waiting_tuples, waiting)
        self._disk = self._disk_buffer(settings.pages_per_read)
        self._window = WaitingRoom(
            self._sizing.stored_schema,
            settings.waiting_tuples,
            widths,
            self._sizing.implied,
            self._index,
            settings.output_rows,
        )
        self._pair_rows = np.empty(settings.output_rows, np.int64)
        self._pair_indexes = np.empty(settings.output_rows, np.int64)

    def _use_spare_bytes(self, widths: Widths, tuples: int, waiting: Reservation) -> Widths:
        """Return larger widths for a room that is small by choice, so that wide rows fit too."""
        spare = self._spare_bytes
        variable = variable_columns(self._spec.stream_schema)
        share = spare / (len(variable) * tuples * ARENA_SLACK) if variable else 0.0
        if share < 1:
            return widths
        waiting.resize(waiting.size_bytes + spare)
        average = [size + share * (i in variable) for i, size in enumerate(widths.average)]
        return Widths(tuple(average), widths.widest)

    def _serve(self, home: int) -> Iterator[pa.RecordBatch]:
        """Read the pages of a home, settle all tuples that they settle, and let them go."""
        if self._index.end(home) - home > self._pages_per_read:
            yield from self._serve_long_run(home)
            return
        first, last = self._pages_around(home)
        self._load(first, last)
        self._announce_next(first, last)
        self._after = self._settled(first, last)
        for taken in self._window.take(first, self._after):
            self.stopwatch.lap("expire")
            yield from self._match(taken, first, last)
            yield from self._emit_misses(taken.slots, self._window)
            self._window.release(taken.slots)
        self.stopwatch.lap("expire")
        self.telemetry.bytes_read = self._disk.bytes_read

    def _serve_long_run(self, home: int) -> Iterator[pa.RecordBatch]:
        """Settle a home whose keys run over more pages than the disk buffer holds."""
        self._after = home + 1
        for taken in self._window.take(home, self._after):
            end = self._index.end(home)
            for first in range(home, end, self._pages_per_read):
                last = min(first + self._pages_per_read, end)
                self._load(first, last)
                yield from self._match(taken, first, last)
            yield from self._emit_misses(taken.slots, self._window)
            self._window.release(taken.slots)
        self.telemetry.bytes_read = self._disk.bytes_read

    def _announce_next(self, first: int, last: int) -> None:
        """When reading ahead, announce the pages that will be next unless somebody new comes."""
        if self._relation.reading.read_ahead:
            home = self._tactic.home_after(self._window, first, last)
            if home is not None and self._index.end(home) - home <= self._pages_per_read:
                self._disk.announce(*self._pages_around(home))

    def _pages_around(self, home: int) -> tuple[int, int]:
        sizes = (self._pages_per_read, self._reader.page_count)
        return self._tactic.pages_around(home, self._index.end(home), *sizes)

    def _settled(self, first: int, last: int) -> int:
        """Return up to which home all tuples are settled by the pages ``first … last - 1``."""
        settled = last
        while settled > first + 1 and self._index.end(settled - 1) > last:
            settled -= 1
        return settled

    def _match(self, taken: Taken, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Emit all matches of some tuples on the pages that are loaded."""
        position = np.zeros(2, np.int64)
        while position[0] < len(taken.slots):
            found = kernels.match_pages(
                self._disk.codes,
                taken.codes,
                taken.homes,
                self._reader.row_bounds,
                self._index.parts,
                first,
                last,
                position,
                self._pair_rows,
                self._pair_indexes,
            )
            self.stopwatch.lap("probe")
            if found:
                rows, slots = self._pair_rows[:found], taken.slots[self._pair_indexes[:found]]
                yield from self._emit(rows, slots, self._disk, self._window)
