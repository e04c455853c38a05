"""HYBRIDJOIN: pages are read that many tuples wait for, or some for long; all they resolve leave.

From `hybridjoin.txt`, section 4.

::

    stream ──► window of h_S tuples ────────────────────► joined rows, misses
           most urgent │             ▲ all tuples that belong to the pages leave
                       ▼             │
                  index on R ──► b pages

Algorithm (figure 5 of the paper), one iteration:

1. take the most urgent load (line 2) and read its b pages (line 3);
2. every waiting tuple on these pages is joined and leaves, from H and from Q (lines 4-10);
3. as many new tuples enter as have left, if the stream has them (lines 11-14).

Reading is not tied to input: while the stream pauses, the loop goes on until no tuple waits.

*Which pages next.* In the paper the oldest tuple picks, so every load with a waiting tuple is read
once a cycle, whether one tuple waits for it or a thousand. Of all ways to share the reads out, the
fewest are needed if a load is read as often as the root of its share of the stream. That comes of
itself if the load is read next for which (tuples that wait) × (loads that the oldest of them has
waited) is greatest: its *urgency*. Tuples of a cold load then wait longer than a cycle, but their
age counts too, and after two cycles the oldest picks. `oldest_picks` is the paper's rule;
`docs/algorithms/hybridjoin.md` has what urgency gains.

What the paper leaves open. *Keys that R does not have*: the index leads to the page where they
would be; having read it, the tuple is a miss and leaves. *Duplicate keys in R*: a tuple leaves when
all pages that may hold its key have been read together; see `joins/indexjoin.py`. *Unmatched tuples
on a page*: R is sorted, so they are misses, and leave too.

Invariants: each load resolves at least one tuple: at most one load per tuple (theorem 2). A page is
not read again before a tuple that came after that read waits for it (theorem 1). A tuple waits for
at most `_MOST_CYCLES` cycles of R, and one load for each tuple that is older then. If the oldest
picks, a tuple waits for at most as many loads as there are tuples before it, h_S.

Memory: equation 1, `semistream.budget.indexjoin`. Cost: `semistream.cost.hybridjoin`; one load
serves all tuples that belong to b pages, and skew and locality make these many.

Degenerate cases: R of one read, every load resolves all tuples; a window of one tuple is INLJ.
"""

from dataclasses import dataclass

from semistream.budget.indexjoin import IndexJoinSettings
from semistream.joins.indexwindow import IndexWindow

_MOST_CYCLES = 2  # of R, that a tuple waits; then it picks


@dataclass(frozen=True, slots=True)
class HybridJoin:
    """The tactic of HYBRIDJOIN."""

    settings: IndexJoinSettings
    page_count: int  # N_R

    def entering(self, window: IndexWindow) -> int:
        """Lines 11-14: as many as have left."""
        return window.capacity - window.count

    def next_page(self, window: IndexWindow, after: int) -> int:
        """Lines 2-3: the most urgent load, or that of the oldest tuple."""
        if self.settings.oldest_picks:
            return window.oldest_page()
        loads = -(-self.page_count // self.settings.pages_per_read)  # that cover R
        return window.urgent_page(_MOST_CYCLES * loads)

    def page_after(self, window: IndexWindow, first: int, last: int) -> int | None:
        """The page that is next unless a new tuple changes that."""
        if self.settings.oldest_picks:
            return window.oldest_page_outside(first, last)
        return window.urgent_page_outside(first, last)

    def pages_around(self, page: int, end: int) -> tuple[int, int]:
        """The whole read that the page is part of.

        Reads are laid out like a scan's, b pages each from the start of R, so that they do not
        overlap. Only where a page's keys run on into the next read is it shifted.
        """
        most = self.settings.pages_per_read
        first = page // most * most
        last = min(first + most, self.page_count)
        return (first, last) if end <= last else (end - most, end)
