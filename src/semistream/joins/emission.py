"""Emission: pairs of a row of R and a stream tuple become output batches, and so do misses.

::

    (row, slot) pairs ─► located ─► cut to fit ─► gathered ─► keys compared ─► condition ─► batch

Rows of R are located first, which says how wide they are, and copied only in pieces that fit
(`output.py`). Keys that are hashes are compared, because two of them may share a code. A pair for
which the join's condition does not hold is dropped: its tuple is a miss if no other pair passes.

Memory: a piece is at most as large as the output buffer. It is dropped when it has been handed on.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.arrowtypes import has_union
from semistream.columns import Encoding, encoding_of, take_rows
from semistream.joins import kernels
from semistream.joins.output import OutputBuffer
from semistream.joins.protocols import LocatedRows, RelationSide, Rows, StreamSide
from semistream.joins.residual import Residual
from semistream.joins.results import Results
from semistream.joins.rows import Slots
from semistream.joins.stopwatch import Stopwatch
from semistream.joins.stream import Arrived, StreamBuffer
from semistream.joins.telemetry import Telemetry
from semistream.memory import return_freed_pages
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec, read_columns

# Told of each piece of matches: the rows of R, the slots of the tuples, the rows' columns, and the
# sizes of variable widths.
Observe: TypeAlias = Callable[[Rows, Slots, Sequence[pa.Array], NDArray[np.int64] | None], None]
_PIECES_KEPT = 4  # pieces of output after which freed memory is returned


class Emission:
    """Turns matches and misses into output batches that fit the output buffer."""

    def __init__(
        self, relation: Relation, spec: JoinSpec, telemetry: Telemetry, stopwatch: Stopwatch
    ) -> None:
        """Begin with an output buffer without limits of its own."""
        self.buffer = OutputBuffer()  # how much a batch may hold
        self.results: Results | None = None  # where matches wait, if tuples leave in their order
        self._spec = spec
        self._coder = relation.coder
        self._telemetry = telemetry
        self._stopwatch = stopwatch
        columns = read_columns(relation, spec)
        # The key of R, where it must be compared: an exact code needs no look at it.
        self._compares_keys = bool(spec.stream_key) and not self._coder.is_exact
        self._key = [columns.index(name) for name in relation.key] if self._compares_keys else []
        self._added = [columns.index(name) for name in spec.columns]  # that the output shows
        self._condition = None if spec.condition is None else Residual(spec, columns)
        # Texts that the condition looks at are copied for it, and again for the output.
        self._stream_copies = 1 if self._condition is None else 1 + self._condition.copies_texts
        self._pieces_kept = 0  # pieces of output since freed memory was returned
        # Arrow copies values of nested types partly in its own pool, which keeps what was freed: of
        # unions several times the size of a piece.
        types = spec.output_schema.types
        self._has_nested = any(encoding_of(dtype) is Encoding.NESTED for dtype in types)
        self._most_kept = 1 if any(map(has_union, types)) else _PIECES_KEPT

    def matches(
        self,
        rows: Rows,
        slots: Slots,
        relation: RelationSide,
        tuples: StreamSide,
        step: str = "output",
        observe: Observe | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Emit (row of R, slot) pairs, in pieces that fit the output buffer."""
        with self._stopwatch.phase(step):
            located = relation.locate(rows)
            sizes = (located.sizes, *self._stream_copies * [tuples.sizes(slots)])
            if self.buffer.holds(len(rows), *sizes):
                yield from self._piece(rows, slots, located, tuples, observe)
                if self._has_nested:
                    self._return_memory()
                return
            for piece in self.buffer.pieces(len(rows), *sizes):
                some = relation.locate(rows[piece])
                yield from self._piece(rows[piece], slots[piece], some, tuples, observe)
                self._return_memory()

    def misses(self, slots: Slots, tuples: StreamSide) -> Iterator[pa.RecordBatch]:
        """Emit those of the tuples that found no match, if the join keeps them.

        All the tuples are resolved: their matches have been emitted.
        """
        missed = slots[tuples.matched[slots] & kernels.MATCHED == 0]
        self._telemetry.missed_rows += len(missed)
        if self._spec.keeps_misses:
            yield from self._unmatched(missed, tuples)
        self._note_resolved(slots, tuples)

    def in_turn(self, first: int, last: int, tuples: StreamSide) -> Iterator[pa.RecordBatch]:
        """Emit the tuples at slots ``first … last - 1`` with their results, slot after slot."""
        assert self.results is not None, "only where matches wait as results"
        known = tuples.matched[first:last]
        is_miss = known & kernels.MATCHED == 0
        missed = np.count_nonzero(is_miss & (known & kernels.UNMATCHABLE == 0))
        self._telemetry.missed_rows += int(missed)
        results = None
        if self._spec.adds_columns:
            about = (first, last)
            slots, results = self.results.in_turn(*about, with_misses=self._spec.keeps_misses)
        else:
            is_kept = is_miss if self._spec.keeps_misses else ~is_miss
            slots = first + np.flatnonzero(is_kept).astype(np.int32)
        for begin in range(0, len(slots), self.buffer.rows):
            block = slice(begin, begin + self.buffer.rows)
            with self._stopwatch.phase("output"):
                of_block = None if results is None else results[block]
                yield from self._block(slots[block], of_block, tuples)

    def _block(
        self, slots: Slots, results: NDArray[np.int32] | None, tuples: StreamSide
    ) -> Iterator[pa.RecordBatch]:
        """Emit tuples with their results, in pieces that fit the output buffer."""
        assert self.results is not None
        sizes = [tuples.sizes(slots), None if results is None else self.results.sizes(results)]
        for piece in self.buffer.pieces(len(slots), *sizes):
            some = slots[piece]
            added = [] if results is None else self.results.gather(results[piece])
            yield self._spec.assemble(tuples.gather(some), added, len(some))
            if self._has_nested:
                self._return_memory()

    def unmatchable(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        """Emit the rows that cannot match anything, if the join keeps misses."""
        for tuples in stream.take_unmatchable():
            slots, arrived = np.arange(len(tuples)), Arrived(tuples)
            if self._spec.keeps_misses:
                yield from self._unmatched(slots, arrived)
            self._note_resolved(slots, arrived)

    def _note_resolved(self, slots: Slots, tuples: StreamSide) -> None:
        """If the output is ordered, note that all rows of some tuples have been emitted."""
        if self._spec.resolved is not None:
            numbers = tuples.gather(slots, [len(self._spec.stream_schema) - 1])[0]
            self._spec.resolved.add(numbers.to_numpy())

    def _unmatched(self, slots: Slots, tuples: StreamSide) -> Iterator[pa.RecordBatch]:
        """Emit tuples without columns of R, in pieces that fit the output buffer."""
        for piece in self.buffer.pieces(len(slots), tuples.sizes(slots)):
            some = slots[piece]
            yield self._spec.assemble(tuples.gather(some), None, len(some))

    def _piece(
        self,
        rows: Rows,
        slots: Slots,
        located: LocatedRows,
        tuples: StreamSide,
        observe: Observe | None,
    ) -> Iterator[pa.RecordBatch]:
        """Turn pairs into an output batch, after comparing keys that are hashes."""
        sizes, columns = located.sizes, located.gather()
        if self._compares_keys:
            same = self._same_keys(columns, slots, tuples)
            if not same.all():
                which, slots = kernels.keep_pairs(same, tuples.matched, slots)
                rows = rows[which]
                _keep(which, columns)
                sizes = None if sizes is None else sizes[which]
        if observe is not None:
            observe(rows, slots, columns, sizes)
        looked_at: dict[int, pa.Array] = {}  # stream columns that are gathered already, by index
        if self._condition is not None:
            looked_at = self._condition.gather(slots, tuples)
            held = self._condition.holds(columns, looked_at, len(slots))
            if not held.all():
                which, slots = kernels.keep_pairs(held, tuples.matched, slots)
                _keep(which, columns)
                looked_at = {i: take_rows(array, which) for i, array in looked_at.items()}
        self._telemetry.matched_pairs += len(slots)
        if self._spec.how == "semi" and self.results is None:
            slots, looked_at = slots[kernels.first_matches(tuples.matched, slots)], {}
        else:
            kernels.mark_matched(tuples.matched, slots)
        if self.results is not None:
            if self._spec.adds_columns:
                self.results.add(slots, [columns[i] for i in self._added])
        elif len(slots) and self._spec.how != "anti":
            added = [columns[i] for i in self._added]
            stream = self._stream_columns(slots, tuples, looked_at)
            joined = self._spec.assemble(stream, added, len(slots))
            del columns, added, stream, looked_at
            yield joined

    def _stream_columns(
        self, slots: Slots, tuples: StreamSide, gathered: dict[int, pa.Array]
    ) -> list[pa.Array]:
        """Return all columns of the stream, given some that have been gathered before."""
        if not gathered:
            return tuples.gather(slots)
        count = len(self._spec.stream_schema)
        others = [i for i in range(count) if i not in gathered]
        columns = gathered | dict(zip(others, tuples.gather(slots, others), strict=True))
        return [columns[i] for i in range(count)]

    def _same_keys(
        self, columns: Sequence[pa.Array], slots: Slots, tuples: StreamSide
    ) -> NDArray[np.bool_]:
        ours = self._coder.canonical([columns[i] for i in self._key])
        theirs = self._coder.canonical(tuples.gather(slots, self._spec.stream_key_indexes))
        return self._coder.same_keys(ours, theirs)

    def _return_memory(self) -> None:
        """Now and then return what the allocator keeps of large pieces that were handed on."""
        self._pieces_kept = (self._pieces_kept + 1) % self._most_kept
        if not self._pieces_kept:
            return_freed_pages()


def _keep(which: NDArray[np.int32], columns: list[pa.Array]) -> None:
    """Drop the other rows of R's columns."""
    for i in range(len(columns)):  # one by one, so that few are there twice
        columns[i] = take_rows(columns[i], which)
