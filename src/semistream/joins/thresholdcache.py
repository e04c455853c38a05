"""The paper's own front stage: one threshold that adapts, and the least frequent row leaves.

From `cmeshjoin-front-stage.txt`, section 3.1; ``settings={"cache_policy": "paper"}``. Ours is
`frontstage.py`, which has the diagram.

Algorithm (lines 16-18 of algorithm 1): a row of R that matches f waiting tuples enters H_R if f is
greater than the threshold. If H_R is full, it replaces the row with the least count of all. The
frequency recorder counts the hits of each row, beginning with f; counts never fall.

*The threshold.* "If the cache is not full, it means the threshold is too high; in this case, the
threshold can be lowered automatically. Similarly, the threshold can be raised if tuples are evicted
from the cache too frequently." The paper has no numbers for it. Here it begins at 1, and after each
cycle it falls by one if there is room, and rises by one if more than 1 % of the rows were replaced.

Invariants: a tuple that hits has all its matches. A key of several rows is not cached, nor is a
key that R does not have: the paper has neither.

Memory per row: code 8, count 4, the recorder's order 8, the hash table 6, state 1, and the row
(`semistream.budget.frontsizes.recorded_rows`).

Degenerate cases: no skew, it keeps replacing rows at no gain, since the paper does not bypass it.
"""

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from semistream.budget.frontsizes import (
    PLACES_PER_ADMISSION,
    SLOTS_PER_ROW,
    CachedColumns,
    recorded_rows,
)
from semistream.budget.rowsizes import ARENA_BASE_BYTES, Widths, record_dtype
from semistream.joins import front_kernels
from semistream.joins import threshold_kernels as kernels
from semistream.joins.frontstage import MOST_COPIES, pieces_of_rows
from semistream.joins.protocols import Codes, LocatedRows, Matched, Rows
from semistream.joins.rows import RowStore, StoredRows
from semistream.joins.telemetry import Telemetry
from semistream.relation.reader import PageReader

_FIRST_THRESHOLD = 1
_OFTEN = 0.01  # of the rows replaced in a cycle: the threshold rises


class ThresholdCache:
    """Rows of R whose keys have been requested most often since they entered."""

    page_learner = None  # it learns from matches alone
    pairs_per_tuple = 1
    is_resting = False

    def __init__(self, columns: CachedColumns, capacity: int, telemetry: Telemetry) -> None:
        """Allocate an empty cache of `capacity` rows."""
        self.capacity = capacity
        self.threshold = _FIRST_THRESHOLD  # a row enters that matches more tuples than this
        self._is_unique = columns.has_unique_codes  # each key has one row
        self._telemetry = telemetry
        self._codes = np.zeros(capacity, np.int64)  # by place
        self._counts = np.zeros(capacity, np.uint32)  # by place: the frequency recorder
        self._noted = np.zeros(capacity, np.uint32)  # by place: the count that the heap knows
        self._heap = np.zeros(capacity, np.int32)  # places, the least frequent first
        self._state = np.zeros(capacity, np.uint8)  # by place: whether it has a row
        self._table = np.full(int(SLOTS_PER_ROW * capacity) + 1, kernels.NOWHERE, np.int32)
        self._occupied = np.zeros(1, np.int64)  # places that were used; kernels change it
        self._replaced = 0  # rows that others have replaced in this cycle
        records = np.zeros(capacity, record_dtype(columns.schema))
        self._rows = RowStore(columns.schema, records, Widths.equal(columns.value_bytes))
        most_admitted = -(-capacity // PLACES_PER_ADMISSION)
        # Rows are copied on their way into the cache, this many bytes of them at a time.
        self._most_copied_bytes = max(
            ARENA_BASE_BYTES, int(most_admitted * sum(columns.value_bytes))
        )
        # Of an admission: which candidates enter, where, and what leaves.
        self._candidates, self._places, self._dropped = np.empty((3, most_admitted), np.int32)
        self._pairs = np.empty((2, 0), np.int64)  # what a look-up has found

    @classmethod
    def for_budget(
        cls, reader: PageReader, columns: Sequence[str], budget_bytes: int, telemetry: Telemetry
    ) -> Self | None:
        """Return the largest cache of some columns that fits, or none if there is no room."""
        cached = CachedColumns.of(reader, columns)
        capacity = recorded_rows(cached, budget_bytes)
        return cls(cached, capacity, telemetry) if capacity else None

    @property
    def match_learner(self) -> "ThresholdCache":
        """Itself: rows that match are candidates."""
        return self

    @property
    def is_bypassed(self) -> bool:
        """Whether it is empty."""
        return bool(self._occupied[0] == 0)

    def matches(self, codes: Codes, waits: NDArray[np.bool_]) -> Iterator[tuple[Codes, Rows]]:
        """Lines 2-11: look the tuples up; see `FrontStage.matches`."""
        if self._pairs.shape[1] < len(codes):
            self._pairs = np.empty((2, len(codes)), np.int64)
        probes, rows = self._pairs
        about = (codes, self._codes, self._table, self._counts)
        found = kernels.look_up(*about, waits, probes, rows)
        self._telemetry.front_hits += found
        if found:
            yield probes[:found], rows[:found]

    def locate(self, rows: Rows) -> LocatedRows:
        """Find cached rows."""
        return StoredRows(self._rows, rows)

    def observe_matches(self, matched: Matched) -> None:
        """Lines 16-18: rows enter that match more tuples than the threshold."""
        whole = np.arange(len(matched.rows))
        if not self._is_unique:
            lengths = np.zeros(len(whole), np.uint8)
            front_kernels.run_lengths(matched.page_codes, matched.rows, 1, lengths)
            whole = np.flatnonzero(lengths)
        codes, tallies = matched.page_codes[matched.rows[whole]], matched.tallies[whole]
        start = 0
        while start < len(codes):
            done, entered, dropped = kernels.admit(
                codes[start:],
                tallies[start:],
                self.threshold,
                self._codes,
                self._table,
                self._counts,
                self._noted,
                self._heap,
                self._state,
                self._occupied,
                self._candidates,
                self._places,
                self._dropped,
            )
            self._rows.drop(self._dropped[:dropped])
            self._replaced += int(dropped)
            self._telemetry.front_admissions += entered
            if entered:
                self._enter(matched, whole[start + self._candidates[:entered]])
            start += done

    def _enter(self, matched: Matched, candidates: NDArray[np.int64]) -> None:
        """Store the rows of some candidates, a copy of a few at a time."""
        places = self._places[: len(candidates)]
        sizes = None if matched.sizes is None else matched.sizes[candidates]
        for some, size_bytes in pieces_of_rows(candidates, sizes, self._most_copied_bytes):
            fitting = 0  # a row much wider than the others would take the place of too many
            if size_bytes <= MOST_COPIES * self._most_copied_bytes:
                columns = matched.take(candidates[some])
                fitting = min(len(candidates[some]), self._rows.room(columns))
                self._rows.put(places[some][:fitting], [column[:fitting] for column in columns])
            about = (self._codes, self._table, self._counts, self._state)
            kernels.evict(places[some][fitting:], *about)

    def observe_missing(self, codes: Codes) -> None:
        """Nothing: a key that R does not have is not cached."""

    def end_cycle(self) -> None:
        """Adapt the threshold, after as many pages were read as R has."""
        if self._occupied[0] < self.capacity:
            self.threshold = max(0, self.threshold - 1)
        elif self._replaced > _OFTEN * self.capacity:
            self.threshold += 1
        self._replaced = 0
