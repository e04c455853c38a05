"""The memory equations of X-HYBRIDJOIN, and the split of a budget that follows from them.

`xhybridjoin.txt`, equation 1, both parts of the disk buffer of one size, and equation 4, tuned::

    M = 2·v_P + α·(M − 2·v_P) + (1 − α)·(M − 2·v_P)
    M = (k + l)·v_P + α·(M − (k + l)·v_P) + (1 − α)·(M − (k + l)·v_P)

Ours, with the symbols bound in `semistream.cost.sizes`: HYBRIDJOIN's equation and `pinned_bytes(l)`
for the l pinned pages, which hold all their columns at once, where the b = k pages of the
swappable part hold one at a time.
"""

from bisect import bisect_right
from dataclasses import replace

from semistream.cost.hybridjoin import IndexJoinSettings, least_memory_bytes, settings_for_budget
from semistream.cost.sizes import Sizes

# Measured on Zipf 1 (`docs/algorithms/xhybridjoin.md`): what more pinned pages settle is soon worth
# less than the tuples that could wait in their place.
PINNED_SHARE = 1 / 4


def equal_parts(sizes: Sizes, budget_bytes: int, least_pages: int) -> IndexJoinSettings:
    """Return settings with as many pinned pages as the swappable part has (equation 1)."""
    plain = settings_for_budget("xhybridjoin", sizes, budget_bytes, least_pages)
    room = budget_bytes - least_memory_bytes(sizes, least_pages)
    pages = min(plain.pages_per_read, _most_pinned(sizes, room))
    while pages:
        split = settings_for_budget(
            "xhybridjoin", sizes, budget_bytes - sizes.pinned_bytes(pages), least_pages
        )
        if split.pages_per_read >= pages >= least_pages:
            return _more_tuples(sizes, replace(split, pinned_pages=pages), pages)
        pages = min(pages - 1, split.pages_per_read)
    return plain


def tuned_parts(sizes: Sizes, budget_bytes: int, least_pages: int) -> IndexJoinSettings:
    """Return settings with a fixed share of the budget for pinned pages (equation 4)."""
    room = budget_bytes - least_memory_bytes(sizes, least_pages)
    pages = _most_pinned(sizes, min(room, int(budget_bytes * PINNED_SHARE)))
    left = budget_bytes - sizes.pinned_bytes(pages)
    return replace(settings_for_budget("xhybridjoin", sizes, left, least_pages), pinned_pages=pages)


def _most_pinned(sizes: Sizes, size_bytes: int) -> int:
    return bisect_right(range(1, sizes.page_count + 1), size_bytes, key=sizes.pinned_bytes)


def _more_tuples(sizes: Sizes, settings: IndexJoinSettings, pages: int) -> IndexJoinSettings:
    """Shrink the swappable part to this many pages and let more tuples wait instead."""
    freed = sizes.disk_bytes(settings.pages_per_read) - sizes.disk_bytes(pages)
    more = settings.waiting_tuples + freed // sizes.tuple_bytes
    return replace(settings, pages_per_read=pages, waiting_tuples=more)
