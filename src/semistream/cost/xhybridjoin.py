"""The cost of X-HYBRIDJOIN: HYBRIDJOIN's, behind the pages that are pinned in memory."""

import numpy as np

from semistream.budget.indexjoin import IndexJoinSettings
from semistream.cost import hybridjoin
from semistream.cost.conditions import Conditions
from semistream.cost.factors import at_size
from semistream.cost.frontstage import behind_front
from semistream.cost.prediction import Prediction


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
