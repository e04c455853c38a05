"""HYBRIDJOIN: the tuple that has waited longest picks the pages, and all they settle leave.

From `hybridjoin.txt`, section 4.

::

    stream ──► room for h_S tuples ─────────────────────► joined rows, misses
                 oldest │            ▲ everyone at home on the pages leaves
                        ▼            │
                  index on R ──► b pages

Algorithm (figure 5 of the paper), one iteration:

1. take the oldest tuple in Q (line 2) and read the b pages that its home is among (line 3);
2. every waiting tuple on these pages is joined and leaves, from H and from Q (lines 4-10);
3. as many new tuples enter as have left, if the stream has them (lines 11-14).

Reading is not tied to input: while the stream pauses, the loop goes on until nobody waits.

What the paper leaves open. *Keys that R does not have*: the index leads to the page where they
would be; having read it, the tuple is a miss and leaves. *Duplicate keys in R*: a tuple leaves when
all pages that may hold its key have been read together; see `joins/indexjoin.py`. *Unmatched tuples
on a page*: R is sorted, so they are misses, and leave too.

Invariants: each load settles at least the oldest tuple, so a tuple waits for at most as many loads
as there are tuples before it, h_S. A page is not read again before a tuple that came after that
read has become the oldest (theorem 1); at most one load per tuple (theorem 2).

Memory: equation 1, `semistream.cost.hybridjoin`. Cost: one load serves all tuples at home on b
pages; skew and locality make these many.
"""

from semistream.budget.indexjoin import IndexJoinSettings, settings_for_budget
from semistream.budget.sizes import Sizes
from semistream.budget.split import USUAL, Split
from semistream.joins.room import WaitingRoom


class HybridJoin:
    """The tactic of HYBRIDJOIN."""

    def settings(
        self, sizes: Sizes, budget_bytes: int, least_pages: int, split: Split = USUAL
    ) -> IndexJoinSettings:
        """Split the budget."""
        return settings_for_budget("hybridjoin", sizes, budget_bytes, least_pages, split)

    def may_enter(self, room: WaitingRoom) -> bool:
        """Lines 11-14: whenever there is room."""
        return True

    def next_home(self, room: WaitingRoom, after: int) -> int:
        """Lines 2-3: the oldest tuple picks."""
        return room.oldest_home()

    def home_after(self, room: WaitingRoom, first: int, last: int) -> int | None:
        """The oldest tuple that is not served now."""
        return room.oldest_home_outside(first, last)

    def pages_around(self, home: int, end: int, most: int, page_count: int) -> tuple[int, int]:
        """The whole read that the home is part of.

        Reads are laid out like a scan's, b pages each from the start of R, so that they do not
        overlap. Only where a home's keys run on into the next read is it shifted.
        """
        first = home // most * most
        last = min(first + most, page_count)
        return (first, last) if end <= last else (end - most, end)
