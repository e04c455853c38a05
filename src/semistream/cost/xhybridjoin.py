"""The cost of X-HYBRIDJOIN: HYBRIDJOIN's, behind the pages that are pinned in memory."""

import numpy as np

from semistream.budget.indexjoin import IndexJoinSettings
from semistream.cost import hybridjoin
from semistream.cost.conditions import Conditions
from semistream.cost.factors import at_size
from semistream.cost.frontstage import behind_front
from semistream.cost.prediction import Prediction, Work

# Cycles without a pinned page: pages are chosen when the first cycle ends, and pinned when they are
# read next.
_CYCLES_UNPINNED = 1.5


def predict(conditions: Conditions, settings: IndexJoinSettings) -> Prediction:
    """Return what a loop costs and serves (equations 5 and 6).

    The l most requested pages resolve the share p_N; HYBRIDJOIN's model gives the cost of the rest.
    """
    if not settings.pinned_pages:
        return hybridjoin.predict(conditions, settings)
    pages = conditions.page_shares
    pinned = np.argpartition(pages, -settings.pinned_pages)[-settings.pinned_pages :]
    hit_ratio = float(pages[pinned].sum())
    rest = pages.copy()
    rest[pinned] = 0.0
    left = max(1e-9, 1.0 - hit_ratio)
    back = hybridjoin.predict(conditions.with_page_shares(rest / left), settings)
    rows = settings.pinned_pages * conditions.layout.rows_per_page
    cost = at_size(conditions.factors.pinned, rows)
    return behind_front(conditions, back, hit_ratio, cost, conditions.factors.index)


def work_from_first_cycle(
    conditions: Conditions, settings: IndexJoinSettings, loop: Prediction, tuples: int
) -> Work:
    """Return what tuples take in a join that begins without pinned pages; `loop` is a later one."""
    unpinned = hybridjoin.predict(conditions, settings)
    loops = _CYCLES_UNPINNED * conditions.layout.page_count / settings.pages_per_read
    at_first = min(tuples, loops * unpinned.tuples_per_loop)
    work = unpinned.work(at_first / unpinned.tuples_per_loop)
    if at_first < tuples:
        work += _pinning(conditions, settings.pinned_pages)
    return work + loop.work((tuples - at_first) / loop.tuples_per_loop)


def _pinning(conditions: Conditions, pages: int) -> Work:
    """Return what it takes to pin pages: each is read alone, a request for each of its parts."""
    if conditions.layout.whole_pages:
        return Work(0.0, 0.0, 0.0)  # they are in the disk buffer
    sizes = conditions.layout.part_bytes
    each_s = sum(conditions.factors.io(size) for size in sizes)
    return Work(pages * each_s, 0.0, pages * sum(sizes))
