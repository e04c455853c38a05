"""The driver of the joins that scan R in a cycle: MESHJOIN and R-MESHJOIN.

::

    stream ──► SCAN WINDOW (H, Q in order of arrival) ──► joined rows; misses when they leave
                    ▲ every page is probed against the whole window
               DISK BUFFER ◄── the next pages of the cycle (the tactic)

A tuple has all its matches once it has met every page of R. So tuples leave in the order in which
they came, and nothing is searched for: the tactic says how many of the oldest leave, how many new
ones may enter, and which pages are read next.

Where R has hot or delta pages and its keys lie close together, a bitmap tells which tuples these
concern, and only these are probed there (`hashtable.py`).

Memory: page table and bitmap, front stage, disk buffer, window and output buffer, all reserved
beforehand.

Degenerate cases: a stream that pauses; the loop goes on until no tuple waits.
"""

from collections.abc import Iterator

import pyarrow as pa

from semistream.budget.rowsizes import Widths
from semistream.budget.rules import BudgetRules
from semistream.joins.buckets import Buckets
from semistream.joins.liverows import live_pairs
from semistream.joins.protocols import MakeFront, MakeScanTactic, Rows, ScanTactic
from semistream.joins.rows import Slots
from semistream.joins.scanwindow import ScanWindow
from semistream.joins.stream import StreamBuffer
from semistream.joins.streamjoin import JoinTask, WindowedJoin
from semistream.relation.codepages import CodeBits


class ScanJoin(WindowedJoin):
    """Runs a scan tactic over a stream and a relation, or over one partition of it."""

    _window: ScanWindow  # tuples in the order of arrival
    _tactic: ScanTactic  # what the algorithm decides

    def __init__(
        self,
        task: JoinTask,
        rules: BudgetRules,
        make_tactic: MakeScanTactic,
        make_front: MakeFront | None = None,
    ) -> None:
        """Open the relation's page table; nothing else is allocated before rows arrive."""
        super().__init__(task, rules, make_front)
        self._make_tactic = make_tactic  # called once, with the settings
        self._upcoming: tuple[int, int] | None = None  # pages to read next, when reading ahead

    def _allocate(self, sample: pa.RecordBatch, stream: StreamBuffer) -> None:
        widths = Widths.of(sample)
        settings = self._split_budget(self._sizing.for_scan(widths), stream)
        self._tactic = self._make_tactic(settings, self._reader.page_count)
        self._connect(stream, settings.pages_per_read)
        self._window = ScanWindow(
            self._sizing.stored_schema,
            settings.window_tuples,
            widths,
            self._sizing.implied,
            self._buckets(settings.window_tuples),
            settings.output_rows,
            self._listed_codes(),
        )

    def _listed_codes(self) -> CodeBits | None:
        """Return the codes whose tuples are kept apart, if any are; reserve what that takes."""
        if not self._sizing.listed_bytes:
            return None
        self._reserve("page index", self._sizing.listed_bytes)
        return self._reader.listed_bits()

    def _buckets(self, most: int) -> Buckets:
        """Return the bucket function of H, for codes that R may have."""
        return Buckets.choose(self._reader, most)

    def _iterate(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        """The oldest tuples leave, new ones enter, and the next pages are probed."""
        yield from self._expire(self._tactic.leaving(self._window))
        entered = yield from self._admit(self._tactic.entering(self._window))
        self._window.queue.append(entered)
        yield from self._emission.unmatchable(stream)
        if self._window.count:
            yield from self._serve(*self._next_pages())
            self.telemetry.iterations += 1

    def _next_pages(self) -> tuple[int, int]:
        """Return which pages to read now; when reading ahead, note which ones will follow."""
        pages = self._upcoming or self._tactic.next_pages(self._window)
        if self._relation.reading.read_ahead:
            self._upcoming = self._tactic.next_pages(self._window)
        return pages

    def _serve(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Read pages and join them with all tuples in the window."""
        self._load(first, last)
        self._announce_next()
        yield from self._match(first, last)
        self.telemetry.bytes_read = self._disk.bytes_read

    def _announce_next(self) -> None:
        """When reading ahead, announce the pages that are next in the cycle."""
        if self._upcoming:
            self._disk.announce(*self._upcoming)

    def _match(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Emit all matches of waiting tuples on the pages that are loaded."""
        first_row = int(self._reader.row_bounds[first])
        matches = live_pairs(self._pairs(first, last), self._reader.dead, first_row)
        for rows, slots in self.stopwatch.timed("probe", matches):
            yield from self._emit_matches(rows, slots)

    def _pairs(self, first: int, last: int) -> Iterator[tuple[Rows, Slots]]:
        """Yield (row in the disk buffer, slot) pairs of equal codes, each page's in its chains."""
        codes, table = self._disk.codes, self._window.table
        if not self._sizing.listed_bytes:
            yield from table.matches(codes, is_sorted=True)
            return
        bounds = self._reader.row_bounds
        for begin, end, are_listed in self._reader.split_listed(first, last):
            start = int(bounds[begin] - bounds[first])
            some = codes[start : int(bounds[end] - bounds[first])]
            for rows, slots in table.matches(some, is_sorted=True, are_listed=are_listed):
                rows += start
                yield rows, slots

    def _expire(self, count: int) -> Iterator[pa.RecordBatch]:
        """Let the oldest tuples go, after their misses have been emitted."""
        with self.stopwatch.phase("expire"):
            while count:
                some = min(count, self._emission.buffer.rows)
                leaving = self._window.oldest(some)
                yield from self._emit_misses(leaving)
                self._window.expire(leaving)
                count -= some
