"""The cost of index nested loops, one tuple at a time (`inlj`) and in sweeps (`binlj`).

`meshjoin.txt` only says, after equation 4, that each tuple costs at least one random read. The
memory equation is HYBRIDJOIN's, with one waiting tuple for `inlj`.
"""

from dataclasses import replace

import numpy as np

from semistream.budget.indexjoin import IndexJoinSettings
from semistream.cost.conditions import Conditions, in_loads
from semistream.cost.hybridjoin import loop_of
from semistream.cost.prediction import Prediction


def predict_sweep(conditions: Conditions, settings: IndexJoinSettings) -> Prediction:
    """Return the same for look-ups in the order of R (`binlj`), sweep after sweep.

    A page's tuples are those of one sweep of A arrivals; on average half of them have come, so
    A/2 = h_S − w/2, or A = 2·h_S·n/(n + 1) for n loads. A read begins at the next page
    that has waiting tuples.
    """
    pages = conditions.page_shares
    requested = float(-np.expm1(-2.0 * settings.waiting_tuples * pages).mean())
    skipped = (1 - requested) / max(requested, 1e-9)
    loads = max(1.0, np.ceil(len(pages) / (settings.pages_per_read + skipped)))
    arrivals = 2.0 * settings.waiting_tuples * loads / (loads + 1)
    awaited = -np.expm1(-arrivals * pages)
    touched = in_loads(awaited, settings.pages_per_read)
    asks = np.zeros_like(touched)
    touched[:, 0] = asks[:, 0] = 1.0
    waiting = arrivals * in_loads(pages, settings.pages_per_read).sum(axis=1)
    served = max(1.0, arrivals / loads)
    return loop_of(conditions, settings, served, touched, waiting, asks=asks, are_scattered=False)


def predict_one(conditions: Conditions, settings: IndexJoinSettings) -> Prediction:
    """Return the same for one tuple at a time (`inlj`): a page is read for each."""
    one_page = replace(conditions, layout=replace(conditions.layout, page_count=1))
    return loop_of(one_page, settings, 1.0, np.ones((1, 1)), np.ones(1), asks=np.ones((1, 1)))
