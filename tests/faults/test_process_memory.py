"""The budget is a promise about the process, not only about the ledger's arithmetic."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss

ROOT = Path(__file__).parents[2]
ROWS = 600_000
MB = 1_000_000
# What the interpreter and its allocators need besides, whatever the budget.
CONSTANT = 16 * MB


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A relation of more than 70 MB."""
    ids = np.arange(ROWS)
    texts = pa.array(ids).cast(pa.string())
    padding = pa.array(["x" * 90] * ROWS)
    table = pa.table({"id": ids, "price": ids / 4, "text": texts, "padding": padding})
    relation = ss.build_relation(table, tmp_path_factory.mktemp("memory"), key="id")
    assert relation.size_bytes > 70 * MB
    return relation.location


def measure(
    location: str, kind: str, budget: int, batches: int, algorithm: str = "meshjoin"
) -> dict[str, int]:
    """Return by how much a process grows that joins so many batches, and what it booked."""
    program = [sys.executable, "-m", "tests.faults.memory_use", location, algorithm, kind]
    done = subprocess.run(
        [*program, str(budget), str(batches)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    measured: dict[str, int] = json.loads(done.stdout)
    return measured


@pytest.mark.parametrize("budget", [4 * MB, 16 * MB, 48 * MB])
def test_growth_stays_within_the_budget(location: str, budget: int) -> None:
    measured = measure(location, "numbers", budget, batches=160)
    assert measured["booked"] <= budget
    assert measured["growth"] <= 1.1 * budget + CONSTANT
    if budget == 48 * MB:  # what is booked is also used, or the check above would mean nothing
        assert measured["growth"] > 0.5 * budget


@pytest.mark.parametrize("budget", [4 * MB, 48 * MB])
def test_growth_with_texts_in_the_stream(location: str, budget: int) -> None:
    measured = measure(location, "texts", budget, batches=100)
    assert measured["growth"] <= 1.1 * budget + CONSTANT


def test_growth_with_a_stream_that_mostly_misses(location: str) -> None:
    """Rows that cannot match are handed on, not gathered until enough others have come."""
    measured = measure(location, "misses", 4 * MB, batches=600)
    assert measured["growth"] <= 1.1 * 4 * MB + CONSTANT


@pytest.mark.parametrize(
    "algorithm",
    [
        "auto",
        "hybridjoin",
        "xhybridjoin",
        "binlj",
        "rmeshjoin",
        "cmeshjoin",
        "chybridjoin",
        "cbinlj",
    ],
)
@pytest.mark.parametrize("kind", ["texts", "skewed"])
def test_growth_of_the_other_joins(location: str, algorithm: str, kind: str) -> None:
    """Tuples leave in any order, caches fill and change hands, texts are squeezed together."""
    measured = measure(location, kind, 32 * MB, batches=120, algorithm=algorithm)
    assert measured["booked"] <= 32 * MB
    assert measured["growth"] <= 1.1 * 32 * MB + CONSTANT
