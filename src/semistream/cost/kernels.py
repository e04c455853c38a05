"""The hot loop of the cost models: which pages of a load are fetched together."""

import numpy as np

from semistream.jit import njit


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
            none[j] = max(1e-300, 1 - others)
            asked[j + 1] = asked[j] + asks_of[j]
            missed[j + 1] = missed[j] + np.log(none[j])
        runs = inside = 0.0
        for j in range(pages):
            # No match on the pages before this one, but on this one.
            before = max(0, j - most_gap - 1)
            free = 1 - asked[j] + asked[before]
            start = max(0.0, free) - max(0.0, free - asks_of[j]) * none[j]
            start *= np.exp(missed[j] - missed[before])
            # On this one, and on none of those behind it.
            behind = min(pages, j + most_gap + 2)
            free = 1 - asked[behind] + asked[j + 1]
            end = max(0.0, free) - max(0.0, free - asks_of[j]) * none[j]
            end *= np.exp(missed[behind] - missed[j + 1])
            runs += start
            inside += end * (j + 1) - start * j
        out_runs[i] = runs
        out_pages[i] = max(0.0, inside)
