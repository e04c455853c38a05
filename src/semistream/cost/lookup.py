"""The cost of look-ups in the order of R: what is read for a window, and what each tuple costs.

Ours; see `joins/lookupjoin.py`. A window of w tuples is one loop::

    c_loop = c_plan(w) + w·(c_S + c_A + c_H + σ·c_O) + c_0

where c_plan(w) is what the read plan requests: the pages on which w tuples may match, all parts of
those with a match (`Conditions.planned_seconds`).
"""

from semistream.budget.indexjoin import IndexJoinSettings
from semistream.cost.conditions import Conditions
from semistream.cost.factors import at_size
from semistream.cost.prediction import Prediction


def predict(conditions: Conditions, settings: IndexJoinSettings) -> Prediction:
    """Return what a loop over a full window costs."""
    return loop_of(conditions, settings.waiting_tuples)


def loop_of(conditions: Conditions, tuples: float) -> Prediction:
    """Return what a loop over so many tuples costs."""
    step = at_size(conditions.factors.look_up, tuples)
    io_s, pages = conditions.planned_seconds(tuples)
    matches = conditions.match_share * tuples
    loop_s = io_s + tuples * (step.tuple_s + step.probe_s) + matches * step.output_s
    loop_s += step.loop_s + step.entry_s
    return Prediction(loop_s, tuples, pages, loop_s, io_s=io_s)


def drain_s(conditions: Conditions, settings: IndexJoinSettings, tuples: float) -> float:
    """Return the time for tuples that all fit the window."""
    return loop_of(conditions, tuples).loop_s
