"""Conditions without equal keys, by MESHJOIN's cyclic scan: ranges, inequalities, likeness.

From section 3.3 of `meshjoin.txt`, "Other join conditions".

::

    stream ──► SCAN WINDOW, ordered by a value of the condition ──► joined rows; misses at the end
                    ▲ a run of candidates for each row of R, the condition decides
               DISK BUFFER ◄── the next pages of the cycle (MESHJOIN's tactic)

Everything but the matching is MESHJOIN's: what enters, what leaves, which pages are next.

Memory: besides MESHJOIN's, for each tuple its place in the order and the columns that the condition
looks at; the output buffer is twice as large, for candidates.

Cost: every row of R meets its candidates among the waiting tuples, whatever the window's size. So
the rate is that of evaluating the condition; `candidates.py` makes them few where it can.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from semistream.budget.rules import RULES
from semistream.budget.sizing import LEAST_CANDIDATES
from semistream.columns import plain_schema, take_rows
from semistream.conditions.expressions import Columns, Side
from semistream.joins.buckets import Buckets
from semistream.joins.candidates import OrderedTuples, bounds_of, pairs
from semistream.joins.liverows import live_pairs
from semistream.joins.meshjoin import MeshJoin
from semistream.joins.protocols import Rows
from semistream.joins.rows import Slots
from semistream.joins.scanjoin import ScanJoin
from semistream.joins.streamjoin import JoinTask


class ThetaJoin(ScanJoin):
    """MESHJOIN without equal keys."""

    def __init__(self, task: JoinTask) -> None:
        """Look for a comparison that the window can be ordered by."""
        super().__init__(task, RULES["meshjoin"], MeshJoin)
        assert task.spec.condition is not None, "keys or a condition are compared"
        self._condition = task.spec.condition
        self._ours = self._condition.columns_of("stream")  # columns that it looks at
        self._theirs = self._condition.columns_of("relation")
        schemas: dict[Side, pa.Schema] = {
            "stream": task.spec.stream_schema,
            "relation": plain_schema(task.relation.schema),
        }
        self._bounds = bounds_of(self._condition, schemas)  # None: all tuples are candidates

    def _buckets(self, most: int) -> Buckets:
        """Tuples have no code of R here, and H is not probed: any bucket will do."""
        return Buckets.hashed(most)

    def _match(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Emit all matches of waiting tuples on the pages that are loaded."""
        first_row = int(self._reader.row_bounds[first])
        with self.stopwatch.phase("probe"):
            slots = self._window.oldest(self._window.count)
            ours = self._stream_columns(slots)
            tuples, order = OrderedTuples.of(self._bounds, slots, ours)
            ours = {name: take_rows(array, order) for name, array in ours.items()}
        count, most = len(self._disk.codes), self._emission.buffer.rows
        for begin in range(0, count, most):
            rows = np.arange(begin, min(begin + most, count))
            found = self._matches(rows, tuples, ours)
            found = live_pairs(found, self._reader.dead, first_row)
            for matched, matching in self.stopwatch.timed("probe", found):
                for start in range(0, len(matched), most):
                    some = slice(start, start + most)
                    yield from self._emit_matches(matched[some], matching[some])

    def _matches(
        self, rows: Rows, tuples: OrderedTuples, ours: Columns
    ) -> Iterator[tuple[Rows, Slots]]:
        """Yield (row in the disk buffer, slot) pairs for which the condition holds."""
        theirs = self._relation_columns(rows)
        most = max(self._emission.buffer.rows, LEAST_CANDIDATES)
        for which, places in pairs(*tuples.runs(theirs, len(rows)), most):
            columns = {name: take_rows(array, places) for name, array in ours.items()}
            columns |= {name: take_rows(array, which) for name, array in theirs.items()}
            held = np.flatnonzero(self._condition.holds(columns, len(which)))
            if len(held):
                yield rows[which[held]], tuples.slots[places[held]]

    def _stream_columns(self, slots: Slots) -> Columns:
        schema = self._spec.stream_schema
        indexes = [schema.get_field_index(name) for name in self._ours]
        return _by_name(
            "stream", self._ours, self._window.gather(slots, indexes) if indexes else []
        )

    def _relation_columns(self, rows: Rows) -> Columns:
        gathered = self._disk.locate(rows).gather()
        read = [gathered[self._read_columns.index(name)] for name in self._theirs]
        return _by_name("relation", self._theirs, read)


def _by_name(side: Side, names: Sequence[str], arrays: Sequence[pa.Array]) -> Columns:
    return {(side, name): array for name, array in zip(names, arrays, strict=True)}
