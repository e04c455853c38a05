"""The hot loop of the cost models: which pages of a load are fetched together."""

import numpy as np

from semistream.jit import njit

_NEVER = 1e-18  # a probability that is as good as none: its logarithm need not be computed
_LOG_NEVER = np.log(_NEVER)


@njit(cache=True)
def count_runs(touched, asks, most_gap, out_runs, out_pages):
    """Write for each load the number of runs of pages that are fetched, and of pages in them.

    See `Loads.runs`. `asks` has a row for each load, or one for all.
    """
    count, pages = touched.shape
    asked, missed = np.zeros((2, pages + 1))  # Σ u_j and Σ log(1 − v_j) of the pages before
    none = np.empty(pages)  # 1 − v_j
    for i in range(count):
        asks_of = asks[i % len(asks)]
        for j in range(pages):
            others = (touched[i, j] - asks_of[j]) / max(1e-12, 1 - asks_of[j])
            none[j] = max(_NEVER, 1 - others)
            asked[j + 1] = asked[j] + asks_of[j]
            missed[j + 1] = missed[j] + (np.log(none[j]) if none[j] > _NEVER else _LOG_NEVER)
        runs = inside = 0.0
        for j in range(pages):
            # No match on the pages before this one, but on this one.
            before = max(0, j - most_gap - 1)
            free = 1 - asked[j] + asked[before]
            start = max(0.0, free) - max(0.0, free - asks_of[j]) * none[j]
            none_before = missed[j] - missed[before]
            start *= np.exp(none_before) if none_before > _LOG_NEVER else 0.0
            # On this one, and on none of those behind it.
            behind = min(pages, j + most_gap + 2)
            free = 1 - asked[behind] + asked[j + 1]
            end = max(0.0, free) - max(0.0, free - asks_of[j]) * none[j]
            none_behind = missed[behind] - missed[j + 1]
            end *= np.exp(none_behind) if none_behind > _LOG_NEVER else 0.0
            runs += start
            inside += end * (j + 1) - start * j
        out_runs[i] = runs
        out_pages[i] = max(0.0, inside)
