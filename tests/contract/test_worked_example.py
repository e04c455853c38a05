"""The worked example of CONTRIBUTING.md: its code is run, and its algorithm keeps the contract.

A block that begins with the path of a file is run in the namespace of that module; one without a
path is a user's code.
"""

import importlib
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from semistream.budget.indexjoin import IndexJoinSettings
from semistream.budget.rules import RULES
from semistream.cost.models import MODELS
from semistream.errors import BudgetError
from semistream.joins.registry import ALGORITHMS
from tests.contract.pressure import least_budget, tight
from tests.workloads import check_against_oracle

GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"
NAME = "busiestjoin"
FILE = f"semistream.joins.{NAME}"


def blocks() -> list[tuple[str, str]]:
    """Return the module and the code of each block of Python; no module for a user's code."""
    found = re.findall(r"```python\n(?:# (\S+)\.py\n)?(.*?)```", GUIDE.read_text(), re.DOTALL)
    return [(f"semistream.{path.replace('/', '.')}" if path else "", code) for path, code in found]


@pytest.fixture(autouse=True)
def _algorithm() -> Iterator[None]:
    """Register the algorithm as the guide says, for the time of a test."""
    registries: tuple[dict[str, Any], ...] = (ALGORITHMS, RULES, MODELS)
    before = [dict(registry) for registry in registries]
    try:
        for module, code in blocks():
            if module:
                exec(code, namespace_of(module))
        yield
    finally:
        for registry, kept in zip(registries, before, strict=True):
            registry.clear()
            registry.update(kept)
        sys.modules.pop(FILE, None)


def namespace_of(name: str) -> dict[str, Any]:
    """Return the names of a module that exists, or those of a new one."""
    if name == FILE:
        sys.modules[name] = ModuleType(name)
        return vars(sys.modules[name])
    return dict(vars(importlib.import_module(name)))


def test_every_part_is_registered() -> None:
    assert all(NAME in registry for registry in (ALGORITHMS, RULES, MODELS))
    assert ALGORITHMS[NAME].name == NAME
    assert MODELS[NAME].rules is RULES[NAME]


def test_the_example_runs() -> None:
    (code,) = (code for module, code in blocks() if not module)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["joined"].num_rows == names["sales"].num_rows


def test_it_reads_the_busiest_page_and_then_the_oldest() -> None:
    tactic = sys.modules[FILE].BusiestJoin(IndexJoinSettings(1, 10, 10), 3)
    window: Any = SimpleNamespace(waiting=np.array([1, 2, 7]), oldest_page=lambda: 0)
    assert [tactic.next_page(window, 0) for _ in range(8)] == [2, 2, 2, 0, 2, 2, 2, 0]


@pytest.mark.parametrize("factor", [1.0, 1.3, 5.0])
@pytest.mark.parametrize("seed", range(6))
def test_oracle_when_memory_is_short(seed: int, factor: float) -> None:
    workload = replace(tight(seed), stream_rows=120)
    relation = workload.build(workload.tables()[1])
    least = least_budget(NAME, workload, relation)
    assert least is not None
    check_against_oracle(workload, relation, NAME, int(least * factor))
    with pytest.raises(BudgetError, match=f"{NAME} cannot run in"):
        check_against_oracle(workload, relation, NAME, least - 1)
