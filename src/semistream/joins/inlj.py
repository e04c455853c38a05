"""Index nested loops: the papers' baseline, and the batched variant people would really run.

`Inlj` (`meshjoin.txt` section 4.1, `hybridjoin.txt` section 3): one stream tuple at a time is
looked up through the index on R: one random read of a page per tuple, nothing shared.

::

    Inlj         one tuple ──► index on R ──► its page ──► joined row or miss
    BatchedInlj  window of h_S tuples ──► the next requested page of R ──► all its tuples

`BatchedInlj` (ours): look-ups are collected and served in the order of R, sweep after sweep, as
an elevator goes from floor to floor; a page serves all tuples that wait for it, and reads go
forward. A tuple leaves as soon as its page has passed and another one takes its slot, so a slot
serves two tuples a sweep on average, where a window that holds each for a whole cycle serves one.

Invariants: a sweep passes each requested page once, so a tuple leaves by the end of the sweep after
the one in which it entered.

Memory: equation 1 of `hybridjoin.txt` (`semistream.budget.indexjoin`) with h_S = 1 for `Inlj`. Cost
(`semistream.cost.inlj`): c_IO(v_P) per tuple for `Inlj`; for `BatchedInlj` one sweep over the
requested pages, shared by 2·h_S tuples.

Degenerate cases: a key that runs over several pages; `Inlj` reads them all.
"""

from dataclasses import dataclass

from semistream.budget.indexjoin import IndexJoinSettings
from semistream.joins.indexwindow import IndexWindow


@dataclass(frozen=True, slots=True)
class Inlj:
    """The tactic of the index nested-loops join: a window of one tuple."""

    settings: IndexJoinSettings
    page_count: int  # N_R

    def entering(self, window: IndexWindow) -> int:
        """The next tuple enters when the one before has left."""
        return window.capacity - window.count

    def next_page(self, window: IndexWindow, after: int) -> int:
        """The tuple's own page."""
        return window.oldest_page()

    def page_after(self, window: IndexWindow, first: int, last: int) -> int | None:
        """None: no other tuple waits."""
        return None

    def pages_around(self, page: int, end: int) -> tuple[int, int]:
        """Only what the tuple needs is read."""
        return page, end


@dataclass(frozen=True, slots=True)
class BatchedInlj:
    """The tactic of the batched variant: pages in the order of R, each once per sweep."""

    settings: IndexJoinSettings
    page_count: int  # N_R

    def entering(self, window: IndexWindow) -> int:
        """As many as have left; a tuple whose page has passed waits for the next sweep."""
        return window.capacity - window.count

    def next_page(self, window: IndexWindow, after: int) -> int:
        """The next requested page on the way through R."""
        return window.requested_page_from(after)

    def page_after(self, window: IndexWindow, first: int, last: int) -> int | None:
        """The next requested page on the way through R."""
        page = window.requested_page_from(last)
        return None if first <= page < last else page

    def pages_around(self, page: int, end: int) -> tuple[int, int]:
        """The pages that follow as well: with a full window they are requested too."""
        return page, min(page + self.settings.pages_per_read, self.page_count)
