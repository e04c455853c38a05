"""The split of a budget for look-ups in the order of R (`joins/lookupjoin.py`).

::

    M = disk_bytes(b) + h_S·tuple_bytes + window_base_bytes
        + input_bytes + output_bytes + table_bytes

The disk buffer is two buffers of the read plan, for key codes and for columns. They need not be
larger than the processor's cache: the rest goes to the window, which needs no more places than the
stream has rows.
"""

from semistream.budget.indexjoin import IndexJoinSettings, least_memory_bytes
from semistream.budget.sizes import Sizes
from semistream.budget.split import DISK_SHARE, USUAL, Spare, Split, too_small


def settings_for_budget(sizes: Sizes, budget_bytes: int, split: Split = USUAL) -> IndexJoinSettings:
    """Split a budget between buffers, window and output; raise an error if it is too small."""
    least = least_memory_bytes(sizes, sizes.least_pages)
    if budget_bytes < least:
        raise too_small("lookup", sizes, budget_bytes, least, sizes.least_pages)
    spare = Spare.usual(sizes, budget_bytes)
    pages = _pages(sizes, int(spare.size_bytes * DISK_SHARE))
    tuples = spare.tuples_beside(sizes, sizes.disk_bytes(pages))
    if tuples < 1:
        spare, pages = Spare.tightest(sizes, budget_bytes), sizes.least_pages
        tuples = spare.tuples_beside(sizes, sizes.disk_bytes(pages))
    if split.most_tuples is not None:
        tuples = min(tuples, max(1, split.most_tuples))
    return IndexJoinSettings(pages, tuples, *spare.buffers)


def _pages(sizes: Sizes, size_bytes: int) -> int:
    """Return how many pages the buffers are sized for: halved until they fit."""
    full_bytes = sizes.disk_bytes(sizes.page_count)  # no larger ones are ever of use
    pages = min(sizes.page_count, 1 + full_bytes // max(1, sizes.disk_bytes(1)))
    while pages > sizes.least_pages and sizes.disk_bytes(pages) > size_bytes:
        pages = max(sizes.least_pages, pages // 2)
    return pages
