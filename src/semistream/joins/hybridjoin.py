"""HYBRIDJOIN: the tuple that has waited longest picks the pages, and all they resolve leave.

From `hybridjoin.txt`, section 4.

::

    stream ──► window of h_S tuples ────────────────────► joined rows, misses
                 oldest │            ▲ all tuples that belong to the pages leave
                        ▼            │
                  index on R ──► b pages

Algorithm (figure 5 of the paper), one iteration:

1. take the oldest tuple in Q (line 2) and read the b pages that its page is among (line 3);
2. every waiting tuple on these pages is joined and leaves, from H and from Q (lines 4-10);
3. as many new tuples enter as have left, if the stream has them (lines 11-14).

Reading is not tied to input: while the stream pauses, the loop goes on until no tuple waits.

What the paper leaves open. *Keys that R does not have*: the index leads to the page where they
would be; having read it, the tuple is a miss and leaves. *Duplicate keys in R*: a tuple leaves when
all pages that may hold its key have been read together; see `joins/indexjoin.py`. *Unmatched tuples
on a page*: R is sorted, so they are misses, and leave too.

Invariants: each load resolves at least the oldest tuple, so a tuple waits for at most as many loads
as there are tuples before it, h_S. A page is not read again before a tuple that came after that
read has become the oldest (theorem 1); at most one load per tuple (theorem 2).

Memory: equation 1, `semistream.budget.indexjoin`. Cost: `semistream.cost.hybridjoin`; one load
serves all tuples that belong to b pages, and skew and locality make these many.

Degenerate cases: R of one read, every load resolves all tuples; a window of one tuple is INLJ.
"""

from dataclasses import dataclass

from semistream.budget.indexjoin import IndexJoinSettings
from semistream.joins.indexwindow import IndexWindow


@dataclass(frozen=True, slots=True)
class HybridJoin:
    """The tactic of HYBRIDJOIN."""

    settings: IndexJoinSettings
    page_count: int  # N_R

    def entering(self, window: IndexWindow) -> int:
        """Lines 11-14: as many as have left."""
        return window.capacity - window.count

    def next_page(self, window: IndexWindow, after: int) -> int:
        """Lines 2-3: the oldest tuple picks."""
        return window.oldest_page()

    def page_after(self, window: IndexWindow, first: int, last: int) -> int | None:
        """The page of the oldest tuple that is not resolved now."""
        return window.oldest_page_outside(first, last)

    def pages_around(self, page: int, end: int) -> tuple[int, int]:
        """The whole read that the page is part of.

        Reads are laid out like a scan's, b pages each from the start of R, so that they do not
        overlap. Only where a page's keys run on into the next read is it shifted.
        """
        most = self.settings.pages_per_read
        first = page // most * most
        last = min(first + most, self.page_count)
        return (first, last) if end <= last else (end - most, end)
