"""The memory equations of X-HYBRIDJOIN, and the split of a budget that follows from them.

`xhybridjoin.txt`, equation 1, both parts of the disk buffer of one size, and equation 4, tuned::

    M = 2·v_P + α·(M − 2·v_P) + (1 − α)·(M − 2·v_P)
    M = (k + l)·v_P + α·(M − (k + l)·v_P) + (1 − α)·(M − (k + l)·v_P)

Ours, with the symbols bound in `semistream.budget.sizes`: HYBRIDJOIN's equation, and
`pinned_bytes(l)` for the l pinned pages, which hold all their columns at once, where the b = k
pages of the swappable part hold one at a time.
"""

from bisect import bisect_right
from dataclasses import replace

from semistream.budget.indexjoin import (
    IndexJoinSettings,
    least_memory_bytes,
    settings_for_budget,
    urgency_bytes,
)
from semistream.budget.sizes import Sizes
from semistream.budget.split import USUAL, Split

# Where the model does not choose: between none, which is best without skew, and the share that is
# best with strong skew. `docs/model-validation.md` has its loss against the tuned share.
PINNED_SHARE = 1 / 4


def equal_parts(
    sizes: Sizes, budget_bytes: int, least_pages: int, split: Split = USUAL
) -> IndexJoinSettings:
    """Return settings with as many pinned pages as the swappable part has (equation 1)."""
    split = _usual(split)
    plain = settings_for_budget("xhybridjoin", sizes, budget_bytes, least_pages, split)
    room = budget_bytes - least_memory_bytes(sizes, least_pages)
    pages = min(plain.pages_per_read, _most_pinned(sizes, room))
    while pages:
        left = budget_bytes - sizes.pinned_bytes(pages)
        rest = settings_for_budget("xhybridjoin", sizes, left, least_pages, split)
        if rest.pages_per_read >= pages >= least_pages:
            return _more_tuples(sizes, replace(rest, pinned_pages=pages), pages)
        pages = min(pages - 1, rest.pages_per_read)
    return plain


def tuned_parts(
    sizes: Sizes, budget_bytes: int, least_pages: int, split: Split = USUAL
) -> IndexJoinSettings:
    """Return settings with each part of its own size (equation 4): as requested, or usual."""
    split = _usual(split)
    room = budget_bytes - least_memory_bytes(sizes, least_pages)
    pages = _most_pinned(sizes, min(room, int(budget_bytes * PINNED_SHARE)))
    if split.pinned_pages is not None:
        pages = min(split.pinned_pages, _most_pinned(sizes, room))
    left = budget_bytes - sizes.pinned_bytes(pages)
    rest = settings_for_budget("xhybridjoin", sizes, left, least_pages, split)
    return replace(rest, pinned_pages=pages)


def _usual(split: Split) -> Split:
    """Return a split in which the oldest tuple picks, unless it says otherwise.

    The pages that most tuples wait for are pinned; between the others urgency gains little.
    """
    return replace(split, oldest_picks=split.oldest_picks is not False)


def _most_pinned(sizes: Sizes, size_bytes: int) -> int:
    return bisect_right(range(1, sizes.page_count + 1), size_bytes, key=sizes.pinned_bytes)


def _read_bytes(sizes: Sizes, settings: IndexJoinSettings, pages: int) -> int:
    urgent = urgency_bytes(sizes, pages, oldest_picks=settings.oldest_picks)
    return sizes.disk_bytes(pages) + urgent


def _more_tuples(sizes: Sizes, settings: IndexJoinSettings, pages: int) -> IndexJoinSettings:
    """Shrink the swappable part to this many pages and let more tuples wait instead."""
    freed = _read_bytes(sizes, settings, settings.pages_per_read)
    freed -= _read_bytes(sizes, settings, pages)
    more = max(1, settings.waiting_tuples + freed // sizes.tuple_bytes)
    return replace(settings, pages_per_read=pages, waiting_tuples=more)
