"""The memory equation of HYBRIDJOIN and of the index joins, and the split of a budget.

`hybridjoin.txt`, equation 1::

    M = v_P + α/(α+β)·(M − v_P) + β/(α+β)·(M − v_P)      disk buffer, hash table, queue

Ours, with the symbols bound in `semistream.budget.sizes`::

    M = disk_bytes(b) + h_S·tuple_bytes + window_base_bytes
        + input_bytes + output_bytes + table_bytes

where h_S is how many tuples wait; `tuple_bytes` is their share of the hash table, and the queue,
one entry a page, is in `window_base_bytes`. The paper reads one page at a time (b = 1).
"""

from dataclasses import dataclass

from semistream.budget.sizes import Sizes
from semistream.budget.split import USUAL, Spare, Split, fixed_bytes, too_small


@dataclass(frozen=True, slots=True)
class IndexJoinSettings:
    """The operating parameters of a join that reads pages by index."""

    pages_per_read: int  # b
    waiting_tuples: int  # h_S
    output_rows: int
    output_bytes: int = 0  # these two have no part in predictions
    input_bytes: int = 0
    pinned_pages: int = 0  # l of X-HYBRIDJOIN

    @property
    def places(self) -> int:
        """How many tuples can wait."""
        return self.waiting_tuples


def least_memory_bytes(sizes: Sizes, least_pages: int) -> int:
    """Return the least budget an index join can run in: one waiting tuple."""
    return fixed_bytes(sizes) + sizes.disk_bytes(least_pages) + sizes.window_bytes(1)


def settings_for_budget(
    name: str,
    sizes: Sizes,
    budget_bytes: int,
    least_pages: int,
    split: Split = USUAL,
    most_tuples: int | None = None,
) -> IndexJoinSettings:
    """Split a budget between disk buffer, window and output; raise an error if it is too small."""
    least = least_memory_bytes(sizes, least_pages)
    if budget_bytes < least:
        raise too_small(name, sizes, budget_bytes, least, least_pages)
    spare = Spare.usual(sizes, budget_bytes)
    pages = spare.pages(sizes, least_pages, split.pages_per_read)
    tuples = spare.tuples_beside(sizes, sizes.disk_bytes(pages))
    if tuples < 1:
        spare, pages = Spare.tightest(sizes, budget_bytes), least_pages
        tuples = spare.tuples_beside(sizes, sizes.disk_bytes(pages))
    tuples = tuples if most_tuples is None else min(tuples, most_tuples)
    return IndexJoinSettings(pages, tuples, *spare.buffers)
