"""Dividing one budget between several joins, so that all of them together are fastest.

Each join comes with what it would take in some budgets. The times of joins that follow each other
add up, so the best division has the least sum. It is found by taking one join after the other, and
keeping of the divisions so far those that are not beaten by another in both bytes and seconds.
"""

from collections.abc import Sequence
from dataclasses import replace

from semistream.advice.auto import AUTO, MESHJOIN
from semistream.advice.choice import LOOK_UP, RESIDENT, Advisor, are_few
from semistream.cost import resident
from semistream.cost.conditions import Conditions
from semistream.cost.models import MODELS
from semistream.cost.tuning import evaluate

_STEPS = 1024  # of a budget: of divisions that are closer than that, one is kept


def divide(
    budget_bytes: int, times_s: Sequence[Sequence[tuple[int, float]]]
) -> tuple[int, ...] | None:
    """Return the bytes of each join, by the time that each would take in some budgets.

    None if not even the least of all budgets go into `budget_bytes` together.

    >>> divide(100, [[(10, 9.0), (60, 1.0)], [(20, 5.0), (50, 4.0), (90, 0.0)]])
    (60, 20)
    """
    kept: list[tuple[int, float, tuple[int, ...]]] = [(0, 0.0, ())]
    step_bytes = max(1, budget_bytes // _STEPS)
    for options in times_s:
        found = sorted(
            (used + more, time_s + added_s, (*shares, more))
            for used, time_s, shares in kept
            for more, added_s in options
            if used + more <= budget_bytes
        )
        kept = []
        for each in found:
            if not kept or each[1] < kept[-1][1]:
                is_close = len(kept) > 1 and each[0] - kept[-2][0] < step_bytes
                kept[-1 if is_close else len(kept) :] = [each]
    return kept[-1][2] if kept else None


def task_s(
    algorithm: str, advisor: Advisor, conditions: Conditions, rows: int, budget_bytes: int
) -> float:
    """Return the predicted time of a task that joins `rows` rows, as `algorithm` would do it.

    Raises `BudgetError` if it cannot run in the budget.
    """
    conditions = replace(conditions, stream_rows=max(1, rows))
    if algorithm == AUTO:
        if are_few(rows, conditions.layout.page_count):
            algorithm = LOOK_UP
        elif advisor.fits(budget_bytes):
            algorithm = RESIDENT
        else:
            return float(advisor.choose(budget_bytes, conditions).tuned.prediction.stream_s)
    if algorithm == RESIDENT:
        load_s = resident.load_s(conditions.layout, conditions.factors)
        return float(load_s + rows / resident.predict(conditions.factors).rate)
    model = MODELS.get(algorithm, MODELS[MESHJOIN])  # bounds have no model
    sizes = advisor.sizes(algorithm if algorithm in MODELS else MESHJOIN)
    return float(evaluate(model, sizes, budget_bytes, conditions).prediction.stream_s)
