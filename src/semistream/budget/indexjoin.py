"""The memory equation of HYBRIDJOIN and of the index joins, and the split of a budget.

`hybridjoin.txt`, equation 1::

    M = v_P + α/(α+β)·(M − v_P) + β/(α+β)·(M − v_P)      disk buffer, hash table, queue

Ours, with the symbols bound in `semistream.budget.sizes`::

    M = disk_bytes(b) + h_S·tuple_bytes + window_base_bytes
        + input_bytes + output_bytes + table_bytes

where h_S is how many tuples wait; `tuple_bytes` is their share of the hash table, and the queue,
one entry a page, is in `window_base_bytes`. Beside `disk_bytes(b)` there are `urgency_bytes(b)`, 4
for each load. The paper reads one page at a time (b = 1).
"""

from dataclasses import dataclass

from semistream.budget.sizes import Sizes
from semistream.budget.split import USUAL, Spare, Split, fixed_bytes, too_small
from semistream.budget.tuplesizes import BYTES_PER_LOAD


@dataclass(frozen=True, slots=True)
class IndexJoinSettings:
    """The operating parameters of a join that reads pages by index."""

    pages_per_read: int  # b
    waiting_tuples: int  # h_S
    output_rows: int
    output_bytes: int = 0  # these two have no part in predictions
    input_bytes: int = 0
    pinned_pages: int = 0  # l of X-HYBRIDJOIN
    oldest_picks: bool = False  # the next pages of HYBRIDJOIN; else the most urgent ones are read

    @property
    def places(self) -> int:
        """How many tuples can wait."""
        return self.waiting_tuples


def urgency_bytes(sizes: Sizes, pages_per_read: int, *, oldest_picks: bool = False) -> int:
    """Return the size of what tells the most urgent load, where that is read next."""
    return 0 if oldest_picks else BYTES_PER_LOAD * -(-sizes.page_count // pages_per_read)


def least_memory_bytes(sizes: Sizes, least_pages: int, *, may_be_urgent: bool = True) -> int:
    """Return the least budget an index join can run in: one waiting tuple."""
    urgent = urgency_bytes(sizes, least_pages, oldest_picks=not may_be_urgent)
    beside = sizes.disk_bytes(least_pages) + urgent
    return fixed_bytes(sizes) + beside + sizes.window_bytes(1)


def settings_for_budget(
    name: str,
    sizes: Sizes,
    budget_bytes: int,
    least_pages: int,
    split: Split = USUAL,
    most_tuples: int | None = None,
    *,
    may_be_urgent: bool = True,
) -> IndexJoinSettings:
    """Split a budget between disk buffer, window and output; raise an error if it is too small.

    If it `may_be_urgent`, the most urgent load is read next, unless the split says otherwise.
    """
    least = least_memory_bytes(sizes, least_pages, may_be_urgent=may_be_urgent)
    if budget_bytes < least:
        raise too_small(name, sizes, budget_bytes, least, least_pages)
    spare = Spare.usual(sizes, budget_bytes)
    pages = spare.pages(sizes, least_pages, split.pages_per_read)
    oldest_picks = bool(split.oldest_picks) or not may_be_urgent

    def tuples_beside(pages: int) -> int:
        urgent = urgency_bytes(sizes, pages, oldest_picks=oldest_picks)
        return spare.tuples_beside(sizes, sizes.disk_bytes(pages) + urgent)

    tuples = tuples_beside(pages)
    if tuples < 1:
        spare, pages = Spare.tightest(sizes, budget_bytes), least_pages
        tuples = tuples_beside(pages)
    tuples = tuples if most_tuples is None else min(tuples, most_tuples)
    return IndexJoinSettings(pages, tuples, *spare.buffers, oldest_picks=oldest_picks)
