"""Index nested loops: the papers' baseline, and the batched variant people would really run.

`Inlj` (`meshjoin.txt` section 4.1, `hybridjoin.txt` section 3): one stream tuple at a time is
looked up through the index on R: one random read of a page per tuple, nothing shared.

`BatchedInlj` (ours): look-ups are collected and dealt with in the order of R, sweep after sweep, as
an elevator goes from floor to floor; a page serves all that wait for it, and reads go forward. A
tuple leaves as soon as its page has passed and another one takes its slot, so a slot serves two
tuples a sweep on average, where a window that holds each for a whole cycle serves one.

Memory: equation 1 of `hybridjoin.txt` with h_S = 1 for `Inlj`. Cost: c_IO(v_P) per tuple for
`Inlj`; for `BatchedInlj` one sweep over the pages that anyone waits for, shared by 2·h_S tuples.
"""

from semistream.budget.indexjoin import IndexJoinSettings, settings_for_budget
from semistream.budget.sizes import Sizes
from semistream.budget.split import USUAL, Split
from semistream.joins.room import WaitingRoom


class Inlj:
    """The tactic of the index nested-loops join: a room for one."""

    def settings(
        self, sizes: Sizes, budget_bytes: int, least_pages: int, split: Split = USUAL
    ) -> IndexJoinSettings:
        """Return the settings for one waiting tuple."""
        return settings_for_budget("inlj", sizes, budget_bytes, least_pages, split, most_tuples=1)

    def may_enter(self, room: WaitingRoom) -> bool:
        """The next tuple enters when the one before has left."""
        return room.count == 0

    def next_home(self, room: WaitingRoom, after: int) -> int:
        """The tuple's own page."""
        return room.oldest_home()

    def home_after(self, room: WaitingRoom, first: int, last: int) -> int | None:
        """Nobody waits but the one who is served."""
        return None

    def pages_around(self, home: int, end: int, most: int, page_count: int) -> tuple[int, int]:
        """Only what the tuple needs is read."""
        return home, end


class BatchedInlj:
    """The tactic of the batched variant: pages in the order of R, each once per sweep."""

    def settings(
        self, sizes: Sizes, budget_bytes: int, least_pages: int, split: Split = USUAL
    ) -> IndexJoinSettings:
        """Split the budget."""
        return settings_for_budget("binlj", sizes, budget_bytes, least_pages, split)

    def may_enter(self, room: WaitingRoom) -> bool:
        """Whenever there is room: those who come too late for this sweep wait for the next."""
        return True

    def next_home(self, room: WaitingRoom, after: int) -> int:
        """The next page on the way through R that anyone waits for."""
        return room.home_from(after)

    def home_after(self, room: WaitingRoom, first: int, last: int) -> int | None:
        """The next page on the way through R."""
        home = room.home_from(last)
        return None if first <= home < last else home

    def pages_around(self, home: int, end: int, most: int, page_count: int) -> tuple[int, int]:
        """The pages that follow as well: in a full room they are wanted."""
        return home, min(home + most, page_count)
