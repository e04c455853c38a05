"""What the back stage tells a front stage that learns: matches, missing keys, pages, cycles."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.columns import take_rows
from semistream.joins.protocols import Codes, FrontStage, LoadedPages, LocatedRows, Matched, Rows
from semistream.joins.rows import Slots
from semistream.joins.stopwatch import Stopwatch
from semistream.joins.stream import StreamBuffer


class Learning:
    """Passes on what the back stage sees; does nothing without a front stage that learns."""

    def __init__(
        self,
        front: FrontStage | None,
        stream: StreamBuffer,
        page_count: int,
        stopwatch: Stopwatch,
        *,
        outlives: bool = False,
    ) -> None:
        """Begin at the start of a cycle. Say whether the front stage outlives the stream."""
        self._matches = None if front is None else front.match_learner  # told of matches
        self._pages = None if front is None else front.page_learner  # told of pages
        self._stream = stream
        self._outlives = outlives  # otherwise nothing is worth learning after the stream's end
        self._page_count = page_count  # of R: a cycle
        self._pages_of_cycle = 0  # pages read in the cycle under way
        self._stopwatch = stopwatch

    @property
    def is_active(self) -> bool:
        """Whether matches are observed now: do tuples arrive that could profit?"""
        if self._matches is None or (self._stream.is_exhausted and not self._outlives):
            return False
        return not self._matches.is_resting

    def observe_matches(
        self,
        pages: LoadedPages,
        rows: Rows,
        slots: Slots,
        columns: Sequence[pa.Array],
        sizes: NDArray[np.int64] | None,
    ) -> None:
        """Pass on which rows of the pages in the disk buffer have matched, with their columns."""
        assert self._matches is not None
        with self._stopwatch.phase("learn"):
            pairs, tallies = pages.tally(rows)
            self._matches.observe_matches(
                Matched(
                    pages.codes,
                    rows[pairs],
                    tallies,
                    None if sizes is None else sizes[pairs],
                    take=lambda which: [take_rows(column, pairs[which]) for column in columns],
                    locate=pages.locate,
                )
            )

    def observe_rows(
        self,
        codes: Codes,
        pairs: NDArray[np.int64],
        counts: NDArray[np.int64],
        columns: Sequence[pa.Array],
        sizes: NDArray[np.int64] | None,
    ) -> None:
        """Pass on rows with keys of their own: their codes, and how many tuples each has matched.

        `pairs` says where in `columns` and `sizes` each of them is.
        """
        assert self._matches is not None
        with self._stopwatch.phase("learn"):
            self._matches.observe_matches(
                Matched(
                    codes,
                    np.arange(len(codes)),
                    np.minimum(counts, 255).astype(np.uint8),
                    None if sizes is None else sizes[pairs],
                    take=lambda which: [take_rows(column, pairs[which]) for column in columns],
                    locate=_nowhere,
                )
            )

    def observe_missing(self, codes: Codes) -> None:
        """Pass on keys of waiting tuples that R does not have."""
        assert self._matches is not None
        self._matches.observe_missing(codes)

    def observe_pages(self, first: int, last: int, pages: LoadedPages) -> None:
        """Pass on which pages are in the disk buffer, and count them to the end of the cycle."""
        if self._pages is not None:
            self._pages.observe_pages(first, last, pages)
        self._pages_of_cycle += last - first
        if self._pages_of_cycle >= self._page_count:
            self._pages_of_cycle = 0
            for learner in (self._matches, self._pages):
                if learner is not None:
                    learner.end_cycle()


def _nowhere(rows: Rows) -> LocatedRows:
    raise AssertionError("rows with keys of their own have no others beside them")
