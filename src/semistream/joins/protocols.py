"""What the parts of a join are to each other.

::

    stream ──► FrontStage ──► Waiting (a window) ──► output
                   ▲              ▲
                   │ learners     │ a tactic decides what enters, what is read, what leaves
                   └────────── RelationSide (the disk buffer)

A *tactic* is what one algorithm decides; a driver (`scanjoin.py`, `indexjoin.py`) does the work.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.indexjoin import IndexJoinSettings
from semistream.budget.meshjoin import MeshJoinSettings
from semistream.joins.indexwindow import IndexWindow
from semistream.joins.rows import Slots
from semistream.joins.scanwindow import ScanWindow
from semistream.joins.stopwatch import Stopwatch
from semistream.joins.telemetry import Telemetry
from semistream.memory import MemoryLedger
from semistream.relation.reader import PageReader

Codes: TypeAlias = NDArray[np.int64]
Rows: TypeAlias = NDArray[np.int64]


class Operator(Protocol):
    """A join, ready to run once."""

    @property
    def ledger(self) -> MemoryLedger:
        """What it has reserved of its budget."""
        ...

    @property
    def telemetry(self) -> Telemetry:
        """What it has counted."""
        ...

    @property
    def stopwatch(self) -> Stopwatch:
        """Where its time went."""
        ...

    def join(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join a stream with the relation; every input row is resolved when this ends."""
        ...


# ── both sides of a match ───────────────────────────────────────────────────────────────────────


class StreamSide(Protocol):
    """Stream tuples by slot, and what is known of their matches."""

    matched: NDArray[np.uint8]

    def sizes(self, slots: Slots) -> NDArray[np.int64] | None:
        """Return the size in bytes of each row's variable-width values; None without any."""
        ...

    def gather(self, slots: Slots, columns: Sequence[int] | None = None) -> list[pa.Array]:
        """Return columns of the rows at these slots."""
        ...

    def codes_at(self, slots: Slots) -> Codes:
        """Return the key codes at these slots."""
        ...


class Waiting(StreamSide, Protocol):
    """Stream tuples that wait, with their rows: the window of a scan join or of an index join."""

    capacity: int

    @property
    def count(self) -> int:
        """How many tuples wait."""
        ...

    def room(self, batch: pa.RecordBatch) -> int:
        """Return how many of the batch's first rows can enter now."""
        ...

    def insert(self, batch: pa.RecordBatch, codes: Codes) -> None:
        """Let tuples in; there must be room."""
        ...


class LocatedRows(Protocol):
    """Rows of R whose place is known, and which can be fetched."""

    @property
    def sizes(self) -> NDArray[np.int64] | None:
        """The size in bytes of each row's variable-width values; None if there are none."""
        ...

    def gather(self) -> list[pa.Array]:
        """Return the columns of the rows, as new arrays."""
        ...


class RelationSide(Protocol):
    """Rows of R in memory: the disk buffer, or a front stage."""

    def locate(self, rows: Rows) -> LocatedRows:
        """Find out where the columns of these rows lie, and how wide they are."""
        ...


class LoadedPages(RelationSide, Protocol):
    """Pages of R in the disk buffer; rows count from the first of them."""

    codes: Codes

    @property
    def is_read(self) -> NDArray[np.bool_]:
        """By page: whether its codes are here."""
        ...

    def tally(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return one index for each different row among these, and how often it occurs."""
        ...


# ── the front stage ─────────────────────────────────────────────────────────────────────────────


class FrontStage(RelationSide, Protocol):
    """Resolves stream tuples before they have to wait. Learning is an optional part."""

    pairs_per_tuple: int  # pairs that a tuple may have in one step of `matches`

    @property
    def capacity(self) -> int:
        """How many rows of R it can hold."""
        ...

    @property
    def is_bypassed(self) -> bool:
        """Whether tuples need not be shown to it now: it has nothing, or it rests."""
        ...

    @property
    def match_learner(self) -> "MatchLearner | None":
        """What is told of matches, if it learns from them."""
        ...

    @property
    def page_learner(self) -> "PageLearner | None":
        """What is told of pages that are loaded, if it learns from them."""
        ...

    def matches(
        self, codes: Codes, waits: NDArray[np.bool_]
    ) -> Iterator[tuple[NDArray[np.int64], Rows]]:
        """Yield (index of a code, row) pairs, and say in `waits` which tuples must wait.

        The others are resolved: the pairs are all that R has for them.
        """
        ...


class Learner(Protocol):
    """Changes what a front stage holds, by what the back stage sees."""

    def end_cycle(self) -> None:
        """Note that about as many pages have been read as R has."""
        ...


class MatchLearner(Learner, Protocol):
    """Learns which rows match waiting tuples."""

    @property
    def is_resting(self) -> bool:
        """Whether it does not observe anything now."""
        ...

    def observe_matches(self, matched: "Matched") -> None:
        """Note which rows of some pages waiting tuples have matched."""
        ...

    def observe_missing(self, codes: Codes) -> None:
        """Note that waiting tuples had keys which R does not have."""
        ...


class PageLearner(Learner, Protocol):
    """Learns from pages that are in the disk buffer."""

    def observe_pages(self, first: int, last: int, pages: LoadedPages) -> None:
        """Note that the pages ``first … last - 1`` are loaded."""
        ...


@dataclass(frozen=True, slots=True)
class Matched:
    """Rows of the pages in the disk buffer that matched waiting tuples, each once."""

    page_codes: Codes  # of all rows on the pages
    rows: Rows
    tallies: NDArray[np.uint8]  # f: how many tuples each of them matched
    sizes: NDArray[np.int64] | None  # of their variable-width values, in bytes
    take: Callable[[NDArray[np.int64]], list[pa.Array]]  # columns of some of the rows
    locate: Callable[[Rows], LocatedRows]  # columns of any rows on the pages


class MakeFront(Protocol):
    """Makes a front stage, once its share of the budget is known."""

    def __call__(
        self, reader: PageReader, columns: Sequence[str], budget_bytes: int, telemetry: Telemetry
    ) -> FrontStage | None:
        """Return a front stage of at most `budget_bytes`, or None if that is too little."""
        ...


# ── tactics ─────────────────────────────────────────────────────────────────────────────────────


class ScanTactic(Protocol):
    """What an algorithm decides that scans R in a cycle. Its state is its own."""

    @property
    def settings(self) -> MeshJoinSettings:
        """Its operating parameters."""
        ...

    def leaving(self, window: ScanWindow) -> int:
        """Return how many of the oldest tuples have met all of R and leave."""
        ...

    def entering(self, window: ScanWindow) -> int:
        """Return how many new tuples may enter."""
        ...

    def next_pages(self, window: ScanWindow) -> tuple[int, int]:
        """Return the first and last (exclusive) page to read."""
        ...


class IndexTactic(Protocol):
    """What an algorithm decides that reads pages by index."""

    @property
    def settings(self) -> IndexJoinSettings:
        """Its operating parameters."""
        ...

    def entering(self, window: IndexWindow) -> int:
        """Return how many new tuples may enter."""
        ...

    def next_page(self, window: IndexWindow, after: int) -> int:
        """Return the requested page to read next; `after` is the page behind the last resolved."""
        ...

    def page_after(self, window: IndexWindow, first: int, last: int) -> int | None:
        """Return the page that would be next once these are resolved; None if there is none."""
        ...

    def pages_around(self, page: int, end: int) -> tuple[int, int]:
        """Return what to read for a page whose keys end before page `end`, as far as b allows."""
        ...


# A tactic is made once, from the settings that its budget rules give and the pages of R.
MakeScanTactic: TypeAlias = Callable[[Any, int], ScanTactic]
MakeIndexTactic: TypeAlias = Callable[[Any, int], IndexTactic]
