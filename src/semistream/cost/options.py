"""What the options of a join cost, beside what its algorithm does.

They are factors of a common machine, by CPU time (``make bench ARGS=options``, or a profile of it);
they are not calibrated.
"""

from dataclasses import replace

from semistream.conditions.condition import BoundCondition, Likeness
from semistream.cost.factors import CostFactors, FrontCosts, StepCosts

PREDICATE_S = 25e-9  # to look at a pair of rows by a predicate
LIKENESS_S = 0.8e-6  # to say how alike two texts are
ORDERED_S = 60e-9  # to let a joined row wait, and to put it in order
IN_ORDER_S = 10e-9  # to let a result of look-ups wait, and to find it when it is its tuple's turn
WEIGHT_BYTES = 8  # of a tuple that may be shed


def condition_s(condition: BoundCondition | None, pairs_per_tuple: float) -> float:
    """Return what it costs to check a condition, for each tuple; nothing without one."""
    if condition is None:
        return 0.0
    likenesses = sum(isinstance(predicate, Likeness) for predicate in condition.predicates)
    others = len(condition.predicates) - likenesses
    return pairs_per_tuple * (PREDICATE_S * others + LIKENESS_S * likenesses)


def with_tuple_cost(factors: CostFactors, tuple_s: float) -> CostFactors:
    """Return the factors of a join that takes this much longer for each tuple with a match."""

    def steps(points: tuple[StepCosts, ...]) -> tuple[StepCosts, ...]:
        return tuple(replace(step, output_s=step.output_s + tuple_s) for step in points)

    def hits(points: tuple[FrontCosts, ...]) -> tuple[FrontCosts, ...]:
        return tuple(replace(cost, hit_s=cost.hit_s + tuple_s) for cost in points)

    return replace(
        factors,
        scan=steps(factors.scan),
        index=steps(factors.index),
        look_up=steps(factors.look_up),
        front=hits(factors.front),
        pinned=hits(factors.pinned),
        resident_s=factors.resident_s + tuple_s,
    )


def slowed(rate: float, tuple_s: float) -> float:
    """Return the rate of a join that takes this much longer for each tuple.

    >>> round(slowed(1e6, 50e-9))
    952381
    """
    return 1 / (1 / rate + tuple_s)


def kept_share(rate: float, served: float) -> float:
    """Return the share of the rows that is kept where more may be shed.

    >>> kept_share(100.0, 40.0), kept_share(10.0, 40.0)
    (0.4, 1.0)
    """
    return min(1.0, served / rate)
