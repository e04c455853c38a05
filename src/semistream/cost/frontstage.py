"""The cost model of the front stage, before any back stage.

`cmeshjoin-front-stage.txt`, section 3.2, with the front stage's h_R rows of `entry` bytes::

    p_N(h_R)  = Σ_{x ≤ h_R} 1/x  /  Σ_{x ≤ R_t} 1/x                    (1)
    μ_dp(M)   ≈ (M − (8 + v_R)·h_R) / (R_t·v_R)                        (3), only proportional
    μ_cm(h_R) ≈ μ_dp(M) / (1 − p_N(h_R))                               (4)

Ours: p_N by the measured demand and by sets of seven places; μ_dp by the back
stage's own model with the memory that is left; and each look-up has a cost::

    1/μ_cm = (1 − p_N)/μ_dp + c_look-up + p_N·c_hit + (1 − p_N)·c_learn

and each loop of the back stage a fixed one.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from semistream.budget.frontsizes import MOST_ROWS_PER_KEY, WAYS
from semistream.cost.conditions import Conditions
from semistream.cost.factors import FrontCosts, StepCosts, at_size
from semistream.cost.prediction import Prediction

_MOST_HITS = 1 - 1e-6


def predict(
    conditions: Conditions,
    cached_rows: int,
    back: Callable[[Conditions], Prediction],
    places: int,
) -> Prediction:
    """Return what a loop of the back stage serves together with a front stage of `cached_rows`.

    The back stage has `places` for waiting tuples. With only one, no row ever matches two of them,
    so the front stage cannot see that a row is requested more often than those it has.
    """
    factors = conditions.factors
    demand = conditions.demand
    policy = conditions.front
    if places == 1:
        hit_ratio, rest = demand.first_come_share(cached_rows)
    else:
        hit_ratio, rest = demand.cached_share(cached_rows // WAYS, WAYS)
    cost = at_size(factors.front, cached_rows)
    if conditions.layout.rows_per_key > MOST_ROWS_PER_KEY:
        hit_ratio = 0.0
    if hit_ratio < policy.least_skew * cached_rows / max(1, conditions.layout.row_count):
        # It is bypassed, and tried again for one cycle of nine.
        awake = 1 / (1 + policy.cycles_of_rest)
        tried = replace(
            cost,
            look_up_s=cost.look_up_s * awake,
            learn_s=cost.learn_s * awake,
            loop_s=cost.loop_s * awake,
        )
        return behind_front(conditions, back(conditions), 0.0, tried, factors.index)
    behind = back(conditions.with_demand(rest))
    # Even if hardly any tuple has to wait, a load is made for those that do.
    fewest = behind.tuples_per_loop / (policy.patience * places)
    return behind_front(
        conditions, behind, min(hit_ratio, max(0.0, 1 - fewest)), cost, factors.index
    )


def behind_front(
    conditions: Conditions,
    back: Prediction,
    hit_ratio: float,
    cost: FrontCosts,
    steps: Sequence[StepCosts],
) -> Prediction:
    """Return a back stage's prediction with the hits and the costs of a front stage before it."""
    passing = back.tuples_per_loop
    hit_ratio = min(hit_ratio, _MOST_HITS)
    total = passing / (1 - hit_ratio)
    hit_s = cost.look_up_s + steps[0].read_s + cost.hit_s
    loop_s = back.loop_s + (total - passing) * hit_s + passing * (cost.look_up_s + cost.learn_s)
    loop_s += cost.loop_s
    slower = loop_s / back.loop_s if back.loop_s else 1.0
    latency_s = back.latency_s * (1 - hit_ratio) * slower
    about = (back.pages_per_loop, latency_s, hit_ratio, hit_s, back.io_s, back.bytes_per_loop)
    return Prediction(loop_s, total, *about)
