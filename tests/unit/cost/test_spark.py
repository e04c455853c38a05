"""Spark's part of a micro-batch: the formula, and costs fitted to it."""

from dataclasses import astuple, replace
from itertools import product

import pytest

from semistream.cost.spark import Load, SparkCosts

COSTS = SparkCosts(batch_s=0.2, task_s=0.05, row_s=4e-7, value_s=5e-8, stage_s=0.1, shuffle_s=1e-7)


def test_the_formula() -> None:
    local = Load(rows=1_000, cores=2, tasks=5, values_in=3, values_out=5, is_shuffled=False)
    # Three waves of 200 rows.
    expected = 0.2 + 3 * (0.05 + 200 * (4e-7 + 8 * 5e-8))
    assert COSTS.own_s(local) == pytest.approx(expected)
    shuffled = replace(local, is_shuffled=True)
    assert COSTS.own_s(shuffled) == pytest.approx(expected + 0.1 + 500 * 3 * 1e-7)


def test_costs_are_found_again() -> None:
    loads = [
        Load(rows, 2, tasks, 3, out, is_shuffled)
        for rows, tasks, out, is_shuffled in product((2_000, 200_000), (2, 8), (5, 17), (0, 1))
    ]
    found = SparkCosts.fit([(load, COSTS.own_s(load), COSTS.own_s(load)) for load in loads])
    assert astuple(found) == pytest.approx(astuple(COSTS), rel=1e-6)


def test_no_cost_is_negative() -> None:
    small, large = (Load(rows, 2, 2, 3, 5, False) for rows in (2_000, 200_000))
    found = SparkCosts.fit([(small, 0.5, 0.6), (large, 0.3, 0.6)])
    assert min(astuple(found)) == 0
    assert found.own_s(small) == pytest.approx(0.4, rel=0.05)
