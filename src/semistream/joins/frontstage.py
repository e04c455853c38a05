"""The front stage: hot rows of R in memory, before any back stage.

From `cmeshjoin-front-stage.txt`, section 3.

::

                 ┌──────── front stage ────────┐
    stream ────► │ H_R: rows of R, by key code │ ──hits──────────────► OUTPUT
                 └──────▲──────────┬───────────┘                          ▲
      rows that matched │          │ the others wait                      │
                 ┌──────┴──────────▼───────────┐                          │
                 │ back stage: MESHJOIN, …     │ ─────────────────────────┘
                 └─────────────────────────────┘

Algorithm (algorithm 1 of the paper): a tuple that arrives is looked up in H_R (lines 2-11); on a
hit it leaves at once. The others wait in the back stage. When a row of R matches f waiting tuples
there, it is a candidate for a place in H_R (lines 16-18).

What is ours. H_R is set-associative (`front_kernels`): a key can stand in seven places. The
frequency recorder is a count of up to 15 in each, raised by every hit. A candidate takes an empty
place, or that of the least frequent of the seven if its count is less than f, and f is at least 2;
if none is, the counts of these seven shrink a little, at most once a cycle. So the threshold of the
paper is each competitor's own count: it rises while rows are used and falls while they are not, by
itself. If the hit ratio drops sharply, the popular keys have changed: all counts begin anew. If it
is what chance would give, there is no skew, and the stage is bypassed for eight cycles of nine.
`docs/decisions.md` compares this with the paper's single threshold, TinyLFU and Space-Saving.

*Duplicate keys in R*: all rows of a key are kept together or not at all, up to half a set.
*Missing keys*: a key that R does not have takes a place in the same way, without a row, so that
the tuples that request it need not wait either.

Invariants: a tuple that hits has all its matches; the rows of a place and its key enter and leave
together.

Memory per place: a seventh of a cache line, and the row (`semistream.budget.frontsizes`). Cost
(`semistream.cost.frontstage`): a look-up costs one cache miss, a hit one more for the row.

Degenerate cases: a budget without room for a few sets, no front stage; no skew, it is bypassed; a
row much wider than the others is not cached.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.frontsizes import (
    MOST_ROWS_PER_KEY,
    PLACES_PER_ADMISSION,
    WAYS,
    CachedColumns,
    FrontPolicy,
    set_count,
)
from semistream.budget.rowsizes import ARENA_BASE_BYTES, Widths, record_dtype
from semistream.columns import take_rows
from semistream.joins import front_kernels as kernels
from semistream.joins.protocols import Codes, LocatedRows, Matched, Rows
from semistream.joins.rows import RowStore, StoredRows
from semistream.joins.telemetry import Telemetry
from semistream.memory import Reservation
from semistream.relation.reader import PageReader

POLICY = FrontPolicy(least_skew=1.5, cycles_of_rest=8, patience=16)
# A hit ratio below this part of the usual one means that other keys are popular now.
_BREAK = 0.75
_WEIGHT = 0.25  # of a cycle in the usual ratio
# A cache that has just filled up knows little yet: it rests after this many cycles without skew.
_CYCLES_BY_CHANCE = 3
_TAKEN_OVER = 256  # rows that are taken over at a time
_SAVED_WITHOUT_ROWS = 2  # arrays that are saved of a cache that rests
MOST_COPIES = 8  # a key whose rows are larger than this many copies is not cached


class TupleCache:
    """The front stage of CMESHJOIN: single rows of R, those that are requested most."""

    page_learner = None  # it learns from matches alone

    def __init__(
        self, columns: CachedColumns, set_count: int, row_count: int, telemetry: Telemetry
    ) -> None:
        """Allocate an empty cache of ``set_count * WAYS`` of R's `row_count` rows.

        There must be two sets or more.
        """
        self.pairs_per_tuple = 1 if columns.has_unique_codes else MOST_ROWS_PER_KEY
        self._is_unique = columns.has_unique_codes  # each key has one row
        self._telemetry = telemetry
        self._strangers = kernels.find_strangers(set_count)  # what empty places hold
        self._table = _aligned(set_count)  # H_R: a cache line for each set
        self._state = self._table.view(np.uint8)[:, 8 * WAYS :]  # counts and kinds in these lines
        kernels.fill_with_strangers(self._table, self._strangers)
        records = np.zeros(self.capacity, record_dtype(columns.schema))
        self._rows = RowStore(columns.schema, records, Widths.equal(columns.value_bytes))
        # Rows are copied on their way into the cache, this many bytes of them at a time.
        self._most_copied_bytes = max(
            ARENA_BASE_BYTES, int(self.capacity * columns.entry_bytes) // PLACES_PER_ADMISSION
        )
        self._occupied = np.zeros(1, np.int64)  # places that hold a key; kernels change it
        self._cycle = 1  # number of the cycle, modulo 256: a set ages once in each
        self._pairs = np.empty((2, 0), np.int64)  # what a look-up has found
        self._recent = _HitRatio()  # of this cycle and of those before
        self._by_chance = self.capacity / max(1, row_count)  # the hit ratio of any rows
        self._cycles_of_rest = 0  # still to rest
        self._cycles_by_chance = 0  # in a row whose hits were no more than chance
        most_admitted = -(-self.capacity // PLACES_PER_ADMISSION)
        self._candidates = np.empty(most_admitted, np.int32)  # of an admission: which enter,
        self._places = np.empty(most_admitted, np.int32)  # where,
        self._dropped = np.empty(most_admitted * MOST_ROWS_PER_KEY, np.int32)  # and what leaves

    @classmethod
    def for_budget(
        cls, reader: PageReader, columns: Sequence[str], budget_bytes: int, telemetry: Telemetry
    ) -> Self | None:
        """Return the largest cache of some columns that fits, or none if there is no room."""
        cached = CachedColumns.of(reader, columns)
        sets = set_count(cached, budget_bytes)
        return cls(cached, sets, reader.row_count, telemetry) if sets else None

    def count_in(self, telemetry: Telemetry) -> None:
        """Count in these counters from now on: another join uses the cache."""
        self._telemetry = telemetry

    @property
    def can_be_saved(self) -> bool:
        """Whether `saved` can be called."""
        return self._rows.can_be_saved

    @property
    def occupied(self) -> int:
        """How many places hold a key."""
        return int(self._occupied[0])

    def saved(self) -> list[NDArray[Any]]:
        """Return all that the cache holds and has learned, as arrays, without a copy.

        While it rests there is no skew, and its rows are as good as any: they are not saved.
        """
        ratio = self._recent
        counters = [self.occupied, self._cycle, self._cycles_of_rest, self._cycles_by_chance]
        counters += [ratio.hits, ratio.look_ups]
        about = [np.array(counters), np.array([ratio.usual, ratio.last])]
        return about if self.is_resting else [*about, self._table, *self._rows.saved()]

    def restore(self, saved: Sequence[NDArray[Any]]) -> None:
        """Become a copy of the cache that was saved, which had the same columns and size."""
        arrays = iter(saved)
        counters, ratios = next(arrays).tolist(), next(arrays).tolist()
        occupied, self._cycle, self._cycles_of_rest, self._cycles_by_chance = counters[:4]
        self._recent = _HitRatio(*counters[4:], *ratios)
        if len(saved) > _SAVED_WITHOUT_ROWS:
            self._occupied[0] = occupied
            self._table[:] = next(arrays)
            self._rows.restore(arrays)

    def learn_from(self, other: "TupleCache") -> None:
        """Take over what another cache of the same columns holds, its most frequent rows first.

        A few rows are copied at a time. Where keys have several rows, nothing is taken over.
        """
        if not self._is_unique or not other.occupied:
            return
        counted, self._telemetry = self._telemetry, Telemetry()  # they were admitted before
        kinds = other._state[:, :WAYS].reshape(-1)
        codes = other._table[:, :WAYS].reshape(-1)
        counts = kinds & kernels.MOST
        missing = np.flatnonzero(kinds & kernels.MISSING)
        for count in np.unique(counts[missing]):
            known = codes[missing[counts[missing] == count]]
            self.observe_missing(np.repeat(known, max(1, int(count))))
        places = np.flatnonzero(kinds & kernels.HAS_ROW)
        places = places[np.argsort(counts[places], kind="stable")[::-1]]
        for first in range(0, len(places), _TAKEN_OVER):
            some = places[first : first + _TAKEN_OVER]
            located = StoredRows(other._rows, some)
            sizes, columns = located.sizes, located.gather()
            tallies = np.maximum(counts[some], 1).astype(np.uint8)
            self.observe_matches(_stored(codes[some], tallies, sizes, columns))
        self._telemetry = counted

    def forget(self, codes: Codes) -> None:
        """Evict all rows of some keys, and that R does not have them."""
        if len(codes) and self._occupied[0]:
            dropped = kernels.forget(
                codes, self._table, self._state, self._occupied, self._strangers
            )
            self._rows.drop(dropped)

    @property
    def match_learner(self) -> "TupleCache":
        """Itself: rows that match are candidates."""
        return self

    @property
    def is_bypassed(self) -> bool:
        """Whether it is empty, or rests because there is no skew."""
        return self._cycles_of_rest > 0 or self._occupied[0] == 0

    @property
    def is_resting(self) -> bool:
        """Whether it neither resolves nor learns."""
        return self._cycles_of_rest > 0

    @property
    def capacity(self) -> int:
        """h_R: how many rows fit."""
        return len(self._table) * WAYS

    def matches(self, codes: Codes, waits: NDArray[np.bool_]) -> Iterator[tuple[Codes, Rows]]:
        """Lines 2-11: look the tuples up; see `FrontStage.matches`."""
        most = len(codes) * self.pairs_per_tuple
        if self._pairs.shape[1] < most:
            self._pairs = np.empty((2, most), np.int64)
        probes, rows = self._pairs[:, :most]
        look_up = kernels.look_up if self._is_unique else kernels.look_up_runs
        found = look_up(codes, self._table, self._state, waits, probes, rows)
        hits = len(waits) - int(np.count_nonzero(waits))
        self._telemetry.front_hits += hits
        self._recent.add(hits, len(waits))
        if found:
            yield probes[:found], rows[:found]

    def locate(self, rows: Rows) -> LocatedRows:
        """Find cached rows."""
        return StoredRows(self._rows, rows)

    def observe_matches(self, matched: Matched) -> None:
        """Lines 16-18: the rows that matched are candidates, which compete with those cached."""
        codes = matched.page_codes[matched.rows]
        counts = np.ones(len(codes), np.uint8)
        if self._is_unique:
            for candidates, places in self._admit(codes, matched.tallies, counts, kernels.HAS_ROW):
                sizes = None if matched.sizes is None else matched.sizes[candidates]
                fetch = _taking(matched, candidates)
                self._enter(candidates, places, sizes, fetch)
            return
        kernels.run_lengths(matched.page_codes, matched.rows, MOST_ROWS_PER_KEY, counts)
        whole = np.flatnonzero(counts)
        keys = (codes[whole], matched.tallies[whole], counts[whole])
        for candidates, places in self._admit(*keys, kernels.HAS_ROW):
            # A key of several rows enters as several equal candidates, one for each row.
            nth = np.arange(len(candidates)) - np.searchsorted(candidates, candidates)
            rows = matched.rows[whole[candidates]] + nth
            self._enter(candidates, places, matched.locate(rows).sizes, _locating(matched, rows))

    def observe_missing(self, codes: Codes) -> None:
        """Keys that R does not have are candidates as well; they bring no row."""
        if len(codes):
            codes, tallies = np.unique(codes, return_counts=True)
            capped = np.minimum(tallies, kernels.MOST).astype(np.uint8)
            for _ in self._admit(codes, capped, np.ones(len(codes), np.uint8), kernels.MISSING):
                pass

    def end_cycle(self) -> None:
        """Let every set age once more; begin anew if the hit ratio has dropped sharply.

        Rest for some cycles while the cache hits no more than any rows would: without skew it is
        overhead.
        """
        self._cycle = (self._cycle + 1) % 256
        recent = self._recent
        if recent.end_cycle():
            kernels.forget_counts(self._state)
        is_full = self._occupied[0] == self.capacity
        hits_by_chance = is_full and recent.last < POLICY.least_skew * self._by_chance
        if self._cycles_of_rest:
            self._cycles_of_rest -= 1
        elif not hits_by_chance:
            self._cycles_by_chance = 0
        else:
            self._cycles_by_chance += 1
            if self._cycles_by_chance >= _CYCLES_BY_CHANCE:
                self._cycles_of_rest = POLICY.cycles_of_rest

    def _admit(
        self,
        codes: Codes,
        tallies: NDArray[np.uint8],
        row_counts: NDArray[np.uint8],
        kind: int,
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32]]]:
        """Yield which candidates enter, and where, some at a time; what they replace is dropped."""
        start = 0
        while start < len(codes):
            done, entered, dropped = kernels.admit(
                codes[start:],
                tallies[start:],
                row_counts[start:],
                kind,
                self._table,
                self._state,
                self._occupied,
                self._cycle,
                self._strangers,
                self._candidates,
                self._places,
                self._dropped,
            )
            if dropped:
                self._rows.drop(self._dropped[:dropped])
            if entered:
                self._telemetry.front_admissions += entered
                yield self._candidates[:entered] + np.int64(start), self._places[:entered]
            start += done

    def _enter(
        self,
        candidates: NDArray[np.int64],
        places: NDArray[np.int32],
        sizes: NDArray[np.int64] | None,
        fetch: Callable[[slice], list[pa.Array]],
    ) -> None:
        """Put rows into the cache, a copy of a few at a time; those of a key stay together."""
        for some, size_bytes in pieces_of_rows(candidates, sizes, self._most_copied_bytes):
            if size_bytes > MOST_COPIES * self._most_copied_bytes:
                self._evict(places[some])  # a row this wide would take the place of too many
            else:
                self._store(places[some], fetch(some))

    def _evict(self, places: NDArray[np.int32]) -> None:
        kernels.evict(places, self._table, self._state, self._occupied, self._strangers)

    def _store(self, places: NDArray[np.int32], columns: Sequence[pa.Array]) -> None:
        """Put rows into the cache; those for which the arenas have no room are evicted."""
        fitting = min(len(places), self._rows.room(columns))
        if fitting < len(places):
            # A key of several rows must not lose some of them.
            while fitting and self._same_key(places[fitting - 1], places[fitting]):
                fitting -= 1
            self._evict(places[fitting:])
        if fitting:
            self._rows.put(places[:fitting], [column[:fitting] for column in columns])

    def _same_key(self, place: int, other: int) -> bool:
        ways = WAYS
        ours, theirs = self._table[place // ways], self._table[other // ways]
        return bool(ours[place % ways] == theirs[other % ways])


def pieces_of_rows(
    candidates: NDArray[np.int64], sizes: NDArray[np.int64] | None, most_bytes: int
) -> Iterator[tuple[slice, int]]:
    """Yield pieces of candidates of at most `most_bytes`, or of one key, and their size in bytes.

    Equal candidates are the rows of one key, which stay together.
    """
    if sizes is None:
        yield slice(0, len(candidates)), 0
        return
    firsts = np.append(np.flatnonzero(np.diff(candidates, prepend=-1)), len(candidates))
    before = np.append(0, np.cumsum(sizes))[firsts]  # bytes of all keys before each
    key = 0
    while key < len(firsts) - 1:
        within = int(np.searchsorted(before, before[key] + most_bytes, "right"))
        end = max(key + 1, within - 1)
        yield slice(int(firsts[key]), int(firsts[end])), int(before[end] - before[key])
        key = end


@dataclass(slots=True)
class Learned:
    """The front stage of a join that has ended, in memory that is reserved until it is released."""

    cache: TupleCache | None
    memory: Reservation

    def release(self) -> None:
        """Let go of its rows and its memory."""
        self.cache = None
        self.memory.release()


def _stored(
    codes: Codes,
    tallies: NDArray[np.uint8],
    sizes: NDArray[np.int64] | None,
    columns: Sequence[pa.Array],
) -> Matched:
    """Return rows of another cache as rows that have matched."""

    def taking(which: NDArray[np.int64]) -> list[pa.Array]:
        return [take_rows(column, which) for column in columns]

    return Matched(codes, np.arange(len(codes)), tallies, sizes, taking, _nowhere)


def _nowhere(rows: Rows) -> LocatedRows:
    raise AssertionError("each of these keys has one row")


def _taking(matched: Matched, candidates: NDArray[np.int64]) -> Callable[[slice], list[pa.Array]]:
    return lambda some: matched.take(candidates[some])


def _locating(matched: Matched, rows: Rows) -> Callable[[slice], list[pa.Array]]:
    return lambda some: matched.locate(rows[some]).gather()


def _aligned(set_count: int) -> Codes:
    """Return an array of zeros whose rows each fill one cache line."""
    raw = np.zeros((set_count + 1) * kernels.WORDS, np.int64)
    skip = -raw.ctypes.data % (8 * kernels.WORDS) // 8
    return raw[skip : skip + set_count * kernels.WORDS].reshape(set_count, kernels.WORDS)


@dataclass(slots=True)
class _HitRatio:
    """The hit ratio of the cycle under way, and of those before it."""

    hits: int = 0  # of this cycle
    look_ups: int = 0  # of this cycle
    usual: float = 0.0  # average of the cycles before, recent ones weigh more
    last: float = 0.0  # of the cycle before

    def add(self, hits: int, look_ups: int) -> None:
        """Count some look-ups."""
        self.hits += hits
        self.look_ups += look_ups

    def end_cycle(self) -> bool:
        """Return whether the cycle's hit ratio was far below the usual one."""
        if not self.look_ups:
            return False
        self.last = self.hits / self.look_ups
        broken = self.last < _BREAK * self.usual
        self.usual = self.last if broken else self.usual + _WEIGHT * (self.last - self.usual)
        self.hits = self.look_ups = 0
        return broken
