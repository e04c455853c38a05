"""Index nested loops: the papers' baseline, and the batched variant people would really run.

`Inlj` (`meshjoin.txt` section 4.1, `hybridjoin.txt` section 3): one stream tuple at a time is
looked up through the index on R: one random read of a page per tuple, nothing shared.

`BatchedInlj`: fills the room, then reads each page that any of the waiting tuples needs once, in
the order of R, until the room is empty. So a page serves all tuples of the batch, and reads go
forward. (As in a sorted index look-up of a database; the papers do not have it.)

Memory: equation 1 of `hybridjoin.txt` with h_S = 1 for `Inlj`. Cost: c_IO(v_P) per tuple for
`Inlj`; for `BatchedInlj` a page per distinct home page in the batch.
"""

from semistream.cost.hybridjoin import IndexJoinSettings, settings_for_budget
from semistream.cost.sizes import Sizes
from semistream.joins.room import WaitingRoom


class Inlj:
    """The tactic of the index nested-loops join: a room for one."""

    def settings(self, sizes: Sizes, budget_bytes: int, least_pages: int) -> IndexJoinSettings:
        """Return the settings for one waiting tuple."""
        return settings_for_budget("inlj", sizes, budget_bytes, least_pages, most_tuples=1)

    def may_enter(self, room: WaitingRoom) -> bool:
        """The next tuple enters when the one before has left."""
        return room.count == 0

    def next_home(self, room: WaitingRoom) -> int:
        """The tuple's own page."""
        return room.oldest_home()

    def reads_ahead(self) -> bool:
        """Only what the tuple needs is read."""
        return False


class BatchedInlj:
    """The tactic of the batched variant: pages in the order of R, each once per batch."""

    def settings(self, sizes: Sizes, budget_bytes: int, least_pages: int) -> IndexJoinSettings:
        """Split the budget."""
        return settings_for_budget("binlj", sizes, budget_bytes, least_pages)

    def may_enter(self, room: WaitingRoom) -> bool:
        """A batch enters when the one before has been dealt with."""
        return room.count == 0

    def next_home(self, room: WaitingRoom) -> int:
        """The first page that anyone waits for."""
        return room.first_home()

    def reads_ahead(self) -> bool:
        """The disk buffer is filled with the pages that follow: in a full room they are wanted."""
        return True
