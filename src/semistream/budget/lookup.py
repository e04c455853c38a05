"""The split of a budget for look-ups in the order of R (`joins/lookupjoin.py`).

::

    M = disk_bytes(b) + h_S·tuple_bytes + window_base_bytes
        + input_bytes + output_bytes + table_bytes

The disk buffer is two buffers of the read plan, for key codes and for columns, and what may be
mapped of a file instead. They need not be larger than the processor's cache, or than a few gaps on
a device where requests are expensive. The rest goes to the window, which needs no more places than
the stream has rows.
"""

from semistream.budget.indexjoin import IndexJoinSettings, least_memory_bytes
from semistream.budget.sizes import Sizes
from semistream.budget.split import DISK_SHARE, USUAL, Spare, Split, most_pages, too_small


def settings_for_budget(sizes: Sizes, budget_bytes: int, split: Split = USUAL) -> IndexJoinSettings:
    """Split a budget between buffers, window and output; raise an error if it is too small."""
    least = least_memory_bytes(sizes, sizes.least_pages, may_be_urgent=False)
    if budget_bytes < least:
        raise too_small("lookup", sizes, budget_bytes, least, sizes.least_pages)
    spare = Spare.usual(sizes, budget_bytes)
    disk_bytes = int(spare.size_bytes * DISK_SHARE)
    if split.most_tuples is not None:  # what they leave free
        window_bytes = sizes.window_base_bytes + split.most_tuples * sizes.tuple_bytes
        disk_bytes = max(disk_bytes, spare.size_bytes - window_bytes)
    pages = max(sizes.least_pages, most_pages(sizes, disk_bytes))
    tuples = spare.tuples_beside(sizes, sizes.disk_bytes(pages))
    if tuples < 1:
        spare, pages = Spare.tightest(sizes, budget_bytes), sizes.least_pages
        tuples = spare.tuples_beside(sizes, sizes.disk_bytes(pages))
    if split.most_tuples is not None:
        tuples = min(tuples, max(1, split.most_tuples))
    return IndexJoinSettings(pages, tuples, *spare.buffers)
