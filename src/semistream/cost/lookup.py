"""The cost of look-ups in the order of R: what is read for a window, and what each tuple costs.

Ours; see `joins/lookupjoin.py`. A window of w tuples is one loop::

    c_loop = c_plan(w) + w·(c_S + c_A + c_H + σ·c_O) + c_0

where c_plan(w) is what the read plan costs: the pages on which w tuples may match, all parts of
those with a match, or the rows in a mapped file (`conditions.planned_io`).
"""

from semistream.budget.indexjoin import IndexJoinSettings
from semistream.cost.conditions import Conditions, Layout, planned_io
from semistream.cost.factors import CostFactors, at_size
from semistream.cost.prediction import Prediction, Work


def predict(conditions: Conditions, settings: IndexJoinSettings) -> Prediction:
    """Return what a loop over a full window costs."""
    return _loop_of(conditions, settings, settings.waiting_tuples)


def drain(conditions: Conditions, settings: IndexJoinSettings, tuples: float) -> Work:
    """Return what tuples take that all fit the window: one loop."""
    return _loop_of(conditions, settings, tuples).work(1)


def loop_over(
    layout: Layout,
    factors: CostFactors,
    settings: IndexJoinSettings,
    tuples: float,
    pages: float,
    match_share: float = 1.0,
) -> Prediction:
    """Return what a loop over `tuples` tuples costs that request `pages` pages."""
    step = at_size(factors.look_up, tuples)
    matches = match_share * tuples
    pieces = max(1.0, matches / settings.output_rows)
    about = (pages, settings.pages_per_read, pieces, tuples)
    io_s, io_bytes = planned_io(layout, factors.requests, *about)
    loop_s = io_s + tuples * (step.tuple_s + step.probe_s) + matches * step.output_s
    loop_s += step.loop_s + step.entry_s
    return Prediction(loop_s, tuples, pages, loop_s, io_s=io_s, bytes_per_loop=io_bytes)


def _loop_of(conditions: Conditions, settings: IndexJoinSettings, tuples: float) -> Prediction:
    pages = conditions.requested_pages(tuples)
    about = (conditions.layout, conditions.factors, settings)
    return loop_over(*about, tuples, pages, conditions.match_share)
