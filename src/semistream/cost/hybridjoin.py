"""The cost of HYBRIDJOIN and the index joins: what a load costs, how many tuples it serves."""

import numpy as np
from numpy.typing import NDArray

from semistream.budget.indexjoin import IndexJoinSettings
from semistream.cost.conditions import Conditions, Loads, in_loads
from semistream.cost.demand import falling_root
from semistream.cost.factors import at_size
from semistream.cost.prediction import Prediction, Work


def predict(conditions: Conditions, settings: IndexJoinSettings) -> Prediction:
    """Return what a loop costs and serves (equations 2 to 4).

    The paper fits w = 1.36·h_S·d/R_t to its machine. It can be derived. The share p_g of the stream
    belongs to a load g of b pages. After it was read, its next tuple comes after 1/p_g others,
    becomes the oldest after T more, and g is read again. So per tuple that arrives there are
    Σ p_g/(1 + p_g·T) loads, and w is the inverse of that. A tuple that arrives for g has missed it
    by half a cycle on average, but those that fill up the window after g itself was read, the share
    p_g of all, have just missed it; so the number of waiting tuples is::

        h_S = Σ T·(1 + p_g·T·(1 + p_g)/2)·p_g / (1 + p_g·T)

    which T solves. Without skew w tends to 2·h_S/(n + 1) for n loads: a slot serves two tuples a
    cycle. If one load has most of the stream, a slot hardly serves more than one.

    That is if the oldest tuple picks. If the most urgent load is read, each has a T of its own: it
    is read when (1 + p_g·T_g) tuples that have waited for T_g reach the same urgency as all others,
    so T_g = (√(1 + 4·p_g·U) − 1)/(2·p_g), and U solves the equation.
    """
    loads = in_loads(conditions.page_shares, settings.pages_per_read)
    shares = loads.sum(axis=1)
    if not shares.any():  # a stage before this one resolves everything
        nothing = np.zeros((1, settings.pages_per_read))
        return loop_of(conditions, settings, settings.waiting_tuples, nothing, np.zeros(1))

    requested = shares > 0
    loads, shares = loads[requested], shares[requested]

    def waits(wait: float) -> NDArray[np.float64] | float:
        """Return T of each load, if it is `wait` for one with an equal share of the stream."""
        if settings.oldest_picks:
            return wait
        urgency = wait * (1 + wait / len(shares))
        return np.asarray(2 * urgency / (np.sqrt(1 + 4 * shares * urgency) + 1), np.float64)

    def free_slots(wait: float) -> float:
        met = shares * waits(wait)
        waiting = (met * (1 + met * (1 + shares) / 2) / (1 + met)).sum()
        return float(settings.waiting_tuples - waiting)

    most = (4.0 * settings.waiting_tuples + 4.0) * np.sqrt(len(shares))
    waiting = 1 + shares * waits(falling_root(free_slots, 0.0, float(most)))
    often = shares / waiting
    asks = loads / shares[:, None]
    touched = 1 - (1 - asks) * np.exp(-asks * (waiting - 1)[:, None])
    served = max(1.0, 1 / often.sum())
    return loop_of(conditions, settings, served, touched, waiting, often, asks)


def drain(conditions: Conditions, settings: IndexJoinSettings, tuples: float) -> Work:
    """Return what tuples take that all fit the window: each requested load is read once."""
    loads = in_loads(conditions.page_shares, settings.pages_per_read)
    shares = loads.sum(axis=1)
    requested = shares > 0
    if not requested.any():
        return Work(0.0, 0.0, 0.0)
    loads, shares = loads[requested], shares[requested]
    often = -np.expm1(-tuples * shares)  # the probability that a load is requested
    touched = -np.expm1(-tuples * loads) / often[:, None]
    count = max(1.0, float(often.sum()))
    waiting, asks = tuples * shares / often, loads / shares[:, None]
    loop = loop_of(conditions, settings, tuples / count, touched, waiting, often, asks)
    return loop.work(count)


def loop_of(
    conditions: Conditions,
    settings: IndexJoinSettings,
    served: float,
    touched: NDArray[np.float64],
    waiting: NDArray[np.float64],
    often: NDArray[np.float64] | None = None,
    asks: NDArray[np.float64] | None = None,
    *,
    are_scattered: bool = True,
) -> Prediction:
    """Return equation 3 for loads that serve `served` tuples on average, and `waiting` each.

    ::

        c_loop = c_I/O(b) + w·(c_H + σ·c_O + c_E + c_S + c_A) + c_0

    Tuples probe pages here, not pages tuples, so c_H is per tuple. A load is made for one of its
    pages, with the probabilities `asks`, and reads only the pages that are `touched`.
    """
    pages = min(touched.shape[1], conditions.layout.page_count / len(touched))
    step = at_size(conditions.factors.index, settings.waiting_tuples)
    # Pieces are whole pages where they can be: on average half a page is left out of each.
    per_piece = max(settings.output_rows / 2, settings.output_rows - served / pages / 2)
    matches = conditions.match_share * served
    found = conditions.match_share * waiting
    loads = Loads(pages, touched, found, per_piece, often, are_scattered, asks)
    io_s, io_bytes, read = conditions.io(loads)
    loop_s = io_s + served * (step.tuple_s + step.probe_s) + matches * step.output_s
    loop_s += served * conditions.repeat_s(step) + step.loop_s + step.entry_s
    latency_s = settings.waiting_tuples / served * loop_s  # Little's law
    return Prediction(loop_s, served, read, latency_s, io_s=io_s, bytes_per_loop=io_bytes)
