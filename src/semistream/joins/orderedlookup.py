"""Look-ups whose rows leave in the order of the stream: results stay with the waiting tuples.

From section 3.3 of `meshjoin.txt`, "Ordered join output", for look-ups (`lookupjoin.py`), which
resolve a whole window at once.

::

    stream ──► window, in the order of arrival ──► by page ──► rows that match ──► RESULTS
                         └──────────── slot after slot ◄────────────────────────────┘
                                            └► joined rows, misses

Algorithm, one iteration:

1. tuples enter until the window is full or the stream has no more for now, also those that cannot
   match, if misses are kept: they too have a turn;
2. rows of R are found as in look-ups, and wait as results, each with the slot of its tuple;
3. slot after slot, the tuple leaves with its results.

Stream columns are read in the order in which they lie, and nothing of the stream is copied twice.

Invariants: slots are in the order of arrival. Results are of one stretch of slots, all of whose
tuples are resolved when the first of them leaves.

Memory: as look-ups, and the results (`semistream.budget.resultsizes`), which are sized by the
average row of R. If those of all tuples do not fit, half of the tuples are tried, and so on.

*Front stage* (one that outlives the join): its hits are results too, so they wait for their turn.

Degenerate cases: the results of a tuple that alone has more than fit leave as they are found;
``semi`` and ``anti`` have no results, only the match flags of the window.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from semistream.budget.rules import BudgetRules
from semistream.joins.admission import Admission
from semistream.joins.lookupjoin import LookUpJoin
from semistream.joins.lookupwindow import LookUpWindow
from semistream.joins.protocols import Waiting
from semistream.joins.results import Places, Results, ResultsFullError
from semistream.joins.stream import StreamBuffer, Tuples
from semistream.joins.streamjoin import JoinTask


class _AdmissionInOrder(Admission):
    """Lets tuples that cannot match into the window, too."""

    def _enter(self, window: Waiting, rows: pa.RecordBatch, tuples: Tuples) -> None:
        assert isinstance(window, LookUpWindow), "no other window keeps the order"
        window.insert(rows, tuples.codes, tuples.unmatchable)


class OrderedLookUpJoin(LookUpJoin):
    """Looks the tuples of a window up in the order of R, and lets them leave as they came."""

    _results: Results  # of a stretch of the window

    def __init__(self, task: JoinTask, rules: BudgetRules) -> None:
        """Open the relation; `rules` split the budget when rows have arrived."""
        assert task.spec.in_order, "the window has to store keys that cannot match"
        super().__init__(task, rules)

    def _run(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        # If R is empty no row can match, and all leave as they come.
        stream.lets_all_in = self._spec.keeps_misses and self._reader.row_count > 0
        yield from super()._run(stream)

    def _allocate(self, sample: pa.RecordBatch, stream: StreamBuffer) -> None:
        super()._allocate(sample, stream)
        assert self._sizing.results is not None
        self._results = Results(self._sizing.results, self._window.capacity)
        self._emission.results = self._results
        self._admission = _AdmissionInOrder(stream, None, self._emission, self.stopwatch)

    def _resolve(self) -> Iterator[pa.RecordBatch]:
        """Resolve a stretch of the window after the other; tuples leave in order."""
        first, last = 0, self._window.count
        while first < self._window.count:
            while not (fits := self._fit(first, last)) and last > first + 1:
                last = (first + last) // 2
            if fits:
                yield from self._emission.in_turn(first, last, self._window)
            else:
                yield from self._resolve_alone(first)
            first, last = last, min(self._window.count, last + 2 * (last - first))

    def _resolve_alone(self, slot: int) -> Iterator[pa.RecordBatch]:
        """Resolve a tuple whose results do not fit: they may leave as they are found."""
        slots = np.array([slot], np.int32)
        self._window.begin(slot, slot + 1)
        self._emission.results = None
        for requests in self._window.requests(self._index, slots):
            yield from self._serve(requests)
        yield from self._emission.misses(slots, self._window)
        self._emission.results = self._results

    def _fit(self, first: int, last: int) -> bool:
        """Find the results of a stretch of the window; return whether they fit."""
        self._results.clear()
        self._window.begin(first, last)
        pairs_before = self.telemetry.matched_pairs
        try:
            slots = self._pass_front(self._window.matchable(first, last))
            requests = self._window.requests(self._index, slots)
            for some in self.stopwatch.timed("probe", requests):
                _exhaust(self._serve(some))
        except ResultsFullError:
            self.telemetry.matched_pairs = pairs_before
            return False
        self._observe_missing(slots)
        return True

    def _pass_front(self, slots: Places) -> Places:
        """Let the front stage, if there is one, resolve tuples; return those that it does not."""
        front = self._front
        if front is None or front.is_bypassed:
            return slots
        waits = np.zeros(len(slots), np.bool_)
        most = max(1, self._emission.buffer.rows // front.pairs_per_tuple)
        with self.stopwatch.phase("look_up"):
            for begin in range(0, len(slots), most):
                some = slots[begin : begin + most]
                codes = self._window.codes_at(some)
                for probes, found in front.matches(codes, waits[begin : begin + most]):
                    about = (found, some[probes], front, self._window, "hit")
                    _exhaust(self._emission.matches(*about))
        return slots[waits]


def _exhaust(batches: Iterator[pa.RecordBatch]) -> None:
    """Run what emits matches; they wait as results, so no batch comes."""
    for _ in batches:
        raise AssertionError("results wait for their turn")
