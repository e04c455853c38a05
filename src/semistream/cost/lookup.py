"""The cost of look-ups in the order of R: what is read for a window, and what each tuple costs.

Ours; see `joins/lookupjoin.py`. A window of w tuples is one loop::

    c_loop = c_plan(w) + w·(c_S + c_A + c_H + σ·c_O) + c_0

where c_plan(w) is what the read plan requests: the pages on which w tuples may match, all parts of
those with a match (`conditions.planned_seconds`).
"""

from semistream.budget.indexjoin import IndexJoinSettings
from semistream.cost.conditions import Conditions, Layout, planned_seconds
from semistream.cost.factors import CostFactors, at_size
from semistream.cost.prediction import Prediction


def predict(conditions: Conditions, settings: IndexJoinSettings) -> Prediction:
    """Return what a loop over a full window costs."""
    return loop_of(conditions, settings.waiting_tuples)


def loop_of(conditions: Conditions, tuples: float) -> Prediction:
    """Return what a loop over so many tuples costs."""
    pages = conditions.requested_pages(tuples)
    return loop_over(conditions.layout, conditions.factors, tuples, pages, conditions.match_share)


def loop_over(
    layout: Layout, factors: CostFactors, tuples: float, pages: float, match_share: float = 1.0
) -> Prediction:
    """Return the same for tuples that request so many pages."""
    step = at_size(factors.look_up, tuples)
    io_s = planned_seconds(layout, factors.requests, pages)
    matches = match_share * tuples
    loop_s = io_s + tuples * (step.tuple_s + step.probe_s) + matches * step.output_s
    loop_s += step.loop_s + step.entry_s
    return Prediction(loop_s, tuples, pages, loop_s, io_s=io_s)


def drain_s(conditions: Conditions, settings: IndexJoinSettings, tuples: float) -> float:
    """Return the time for tuples that all fit the window."""
    return loop_of(conditions, tuples).loop_s
