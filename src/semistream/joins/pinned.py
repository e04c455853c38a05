"""The pinned part of X-HYBRIDJOIN's disk buffer: pages of R that stay in memory.

To the driver it is a front stage of whole pages. A tuple that belongs to a pinned page is resolved
when it arrives: the page has all its matches, or R has none. Others wait for the swappable part.

Which pages stay: those requested most. The paper sorts R by access frequency and pins its first
pages; so does this at first if R was built with ``order="frequency"``. Beyond the paper, every
arriving tuple counts for its page, and after each cycle the pages that were requested most of late
are chosen. A chosen page is pinned when the join reads it next, which costs its columns,
and works with R in any order.

Memory for each of the l places: the codes and all columns that are read, for as many rows as a page
has at most; 21 bytes for every page of R to choose by. A page is copied before it is pinned, so one
with far wider values than the average is not.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from semistream.budget.frontsizes import CachedColumns, most_rows_of_a_page
from semistream.budget.rowsizes import Widths, record_dtype, row_bytes
from semistream.joins import indexwindow_kernels as kernels
from semistream.joins.protocols import Codes, LoadedPages, LocatedRows, Rows
from semistream.joins.rows import RowStore, StoredRows
from semistream.joins.telemetry import Telemetry
from semistream.relation.deltas import are_live
from semistream.relation.pageindex import PageIndex
from semistream.relation.reader import PageReader

_NOWHERE = -1
_CLEARLY = 0.25
_MOST_WIDTH = 2.0  # of a page, in average pages


class PinnedPages:
    """At most `places` pages of R, those that the stream requests most."""

    pairs_per_tuple = 1  # a tuple with more matches goes on in the next pairs
    is_bypassed = False
    match_learner = None  # arrivals are counted instead

    def __init__(
        self,
        reader: PageReader,
        columns: Sequence[str],
        index: PageIndex,
        places: int,
        telemetry: Telemetry,
    ) -> None:
        """Allocate the places and choose the pages that they are kept for at first."""
        cached = CachedColumns.of(reader, columns)
        self._row_bounds = reader.row_bounds  # by page
        self._dead = reader.dead  # a bit for each row of R that is no row of it any more
        self._index = index  # from a code to its page
        self._telemetry = telemetry
        self._rows_per_place = most_rows_of_a_page(reader)
        self._codes = np.zeros((places, self._rows_per_place), np.int64)  # by place and row
        self._row_counts = np.zeros(places, np.int64)  # by place: rows of its page
        self._page_at = np.full(places, _NOWHERE, np.int64)  # by place
        self._place_of = np.full(reader.page_count, _NOWHERE, np.int32)  # by page
        self._demand = np.zeros(reader.page_count, np.uint32)  # by page: requests, fading
        self._is_chosen = np.zeros(reader.page_count, np.bool_)  # by page: pinned, or to be
        self._is_chosen[_most_frequent(reader, places)] = True
        codes = self._codes.reshape(-1)
        records = np.zeros(len(codes), record_dtype(cached.schema, cached.implied))
        widths = Widths.equal(cached.value_bytes)
        self._rows = RowStore(cached.schema, records, widths, cached.implied, codes)
        row = row_bytes(cached.schema, cached.value_bytes, cached.implied)
        self._most_page_bytes = int(_MOST_WIDTH * self._rows_per_place * row)  # of a copy

    @property
    def capacity(self) -> int:
        """How many rows of R it can hold."""
        return self._codes.size

    @property
    def page_learner(self) -> "PinnedPages":
        """Itself: a chosen page is pinned when it is loaded."""
        return self

    @property
    def pages(self) -> list[int]:
        """The pages that are pinned now."""
        return sorted(self._page_at[self._page_at != _NOWHERE].tolist())

    def matches(self, codes: Codes, waits: NDArray[np.bool_]) -> Iterator[tuple[Codes, Rows]]:
        """Resolve the tuples whose page is pinned; see `FrontStage.matches`."""
        pages = self._index.pages(codes)
        kernels.count_demand(pages, self._demand)
        places = self._place_of[pages]
        if not self._index.is_unique:
            # A key that the next page begins with may have rows there: both pages must be read.
            places[codes == self._index.first_code_after(pages)] = _NOWHERE
        waits[:] = places == _NOWHERE
        self._telemetry.front_hits += len(waits) - int(np.count_nonzero(waits))
        position = np.zeros(2, np.int64)
        probes = np.empty(len(codes), np.int64)
        rows = np.empty(len(codes), np.int64)
        while position[0] < len(codes):
            pinned = (self._codes, self._row_counts)
            found = kernels.match_pinned(codes, places, *pinned, position, rows, probes)
            if found:
                yield probes[:found], rows[:found]

    def locate(self, rows: Rows) -> LocatedRows:
        """Find rows on pinned pages."""
        return StoredRows(self._rows, rows)

    def observe_pages(self, first: int, last: int, pages: LoadedPages) -> None:
        """Pin those of the pages in the disk buffer that are chosen and have a place."""
        is_new = self._is_chosen[first:last] & (self._place_of[first:last] == _NOWHERE)
        is_new &= pages.is_read
        for page in (np.flatnonzero(is_new) + first).tolist():
            self._pin(page, first, pages)

    def end_cycle(self) -> None:
        """Choose the pages that were requested most of late; requests before count half.

        A page that is pinned goes only for one that is requested clearly more, by `_CLEARLY` of its
        own demand and beyond chance: to pin another costs a read of its columns.
        """
        places = min(len(self._page_at), len(self._demand))
        score = self._demand.astype(np.float32)
        pinned = self._place_of != _NOWHERE
        score[pinned] += _CLEARLY * score[pinned] + 2 * np.sqrt(score[pinned])
        most = np.argpartition(score, -places)[-places:]
        self._is_chosen[:] = False
        self._is_chosen[most] = True
        self._demand >>= 1

    def _pin(self, page: int, first: int, pages: LoadedPages) -> None:
        place = self._free_place()
        if place is None:
            return
        start = int(self._row_bounds[page] - self._row_bounds[first])
        count = int(self._row_bounds[page + 1] - self._row_bounds[page])
        rows = np.arange(start, start + count)
        rows = rows[are_live(self._dead, rows + self._row_bounds[first])]
        count = len(rows)
        located = pages.locate(rows)
        if located.sizes is not None and located.sizes.sum() > self._most_page_bytes:
            return
        columns = located.gather()
        slots = place * self._rows_per_place + np.arange(count)
        if self._rows.room(columns) < count:
            return  # its values are wider than the average; the next one may fit
        self._rows.put(slots, columns)
        self._codes[place, :count] = pages.codes[rows]
        self._row_counts[place] = count
        self._page_at[place] = page
        self._place_of[page] = place
        self._telemetry.front_admissions += count

    def _free_place(self) -> int | None:
        """Return a place without a page, or one whose page is no longer chosen; None if none is."""
        held = self._is_chosen[self._page_at] & (self._page_at != _NOWHERE)
        free = np.flatnonzero(~held)
        if not len(free):
            return None
        place = int(free[0])
        if self._page_at[place] != _NOWHERE:
            slots = place * self._rows_per_place + np.arange(self._row_counts[place])
            self._rows.drop(slots)
            self._place_of[self._page_at[place]] = _NOWHERE
            self._page_at[place] = _NOWHERE
            self._row_counts[place] = 0
        return place


def _most_frequent(reader: PageReader, places: int) -> NDArray[np.int64]:
    """Return the first hot pages of all partitions, if R is ordered by frequency."""
    hot = np.unique(reader.hot_pages).astype(np.int64)
    return hot[np.argsort(reader.places_in_partition(hot), kind="stable")][:places]
