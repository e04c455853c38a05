"""The paper's cache policy before every back stage: exact, and within the budget."""

from collections import Counter
from dataclasses import replace

import pytest

from semistream.joins.registry import ALGORITHMS
from tests.contract.pressure import EVICTIONS, HITS, least_budget, seen, skewed, workloads_of
from tests.workloads import Workload, check_against_oracle

PAPER: dict[str, str | int] = {"cache_policy": "paper"}


def cases(algorithm: str) -> list[tuple[Workload, float, dict[str, int]]]:
    """Return workloads, factors of the least budget, and settings.

    Keys of several rows, which are not cached, in the least budget and more; keys of one row.
    """
    found: list[tuple[Workload, float, dict[str, int]]]
    found = [(*case, {}) for case in workloads_of(algorithm)[::4]]
    for seed, size_bytes in ((0, 40_000), (1, 140_000)):  # narrow rows, wide rows
        rows = 2_400 if algorithm == "cinlj" else 6_000  # it reads for each row
        unique = replace(skewed(seed), unique=True, rows_per_key=1, domain=2_600, stream_rows=rows)
        found.append((unique, 3.0, {"front_stage": size_bytes}))
    return found


@pytest.mark.parametrize("algorithm", [a.name for a in ALGORITHMS.values() if a.has_front])
def test_oracle_when_memory_is_short(algorithm: str) -> None:
    occurred: Counter[str] = Counter()
    for workload, factor, more in cases(algorithm):
        _, table = workload.tables()
        relation = workload.build(table)
        least = least_budget(algorithm, workload, relation)
        assert least is not None
        about = (workload, relation, algorithm, int(least * factor))
        operator = check_against_oracle(*about, settings=PAPER | more)
        occurred.update(seen(operator, relation, workload))
    assert HITS in occurred
    assert EVICTIONS in occurred
