"""The budget is a promise about the process, not only about the ledger's arithmetic."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import semistream as ss
from semistream.advice.auto import AUTO
from semistream.joins.registry import ALGORITHMS
from tests.faults.memory_workloads import MB, Case, generated, relation_table

ROOT = Path(__file__).parents[2]
# `offline` holds the whole stream: a bound to compare with, not a join with a budget.
JOINS = [AUTO, *(name for name in ALGORITHMS if name != "offline")]
Found = dict[str, Any]


def most_growth(budget: int) -> float:
    """What a join may take: its budget, a tenth more, and what the allocators keep."""
    return 1.1 * budget + 8 * MB


@pytest.fixture(scope="module")
def measure(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[Case]], list[Found]]:
    """Return a function that runs cases in a process of their own, and checks the counts."""
    folder = tmp_path_factory.mktemp("memory")
    built: dict[tuple[str, str, int], str] = {}

    def location(case: Case) -> str:
        about = (case.shape, case.kind, case.partitions)
        if about not in built:
            table = relation_table(case.shape, case.kind)
            place = folder / f"{len(built)}.rel"
            ss.build_relation(table, place, key="k", partitions=case.partitions)
            built[about] = str(place)
        return built[about]

    def run(cases: list[Case]) -> list[Found]:
        asked = [{"case": asdict(case), "relation": location(case)} for case in cases]
        done = subprocess.run(
            [sys.executable, "-m", "tests.faults.memory_use"],
            input=json.dumps(asked),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = [json.loads(line) for line in done.stdout.splitlines()]
        for case, one in zip(cases, found, strict=True):
            check_counts(case, one)
        return found

    return run


def check_counts(case: Case, found: Found) -> None:
    if "error" in found:
        return
    assert found["reserved"] <= case.memory
    assert {name: found[name] for name in ("matched", "missed")} == found["expected"], case


@pytest.mark.parametrize("algorithm", JOINS)
def test_generated_workloads(measure: Callable[[list[Case]], list[Found]], algorithm: str) -> None:
    """Heavy-tailed widths, duplicates, nested and hashed keys, all batch sizes, many partitions."""
    cases = generated(algorithm, 2)
    found = measure(cases)
    for case, one in zip(cases, found, strict=True):
        assert one["growth"] <= most_growth(case.memory), (case, one)
    assert any("error" not in one for one in found), found


WIDE = Case("one wide row", "texts", 1, "even", 100_000, 5_000, 0.01, "", 20 * MB, "inner")


@pytest.mark.parametrize("algorithm", ["meshjoin", "hybridjoin", "chybridjoin", "lookup", "auto"])
def test_one_wide_row(measure: Callable[[list[Case]], list[Found]], algorithm: str) -> None:
    """A row of 1 MB that 1 to 2.3 % of the stream rows request: one to two gigabytes of output."""
    shares = (0.023,) if algorithm == "hybridjoin" else (0.01,)
    cases = [replace(WIDE, algorithm=algorithm, share=share) for share in shares]
    for one in measure(cases):
        assert one["growth"] <= most_growth(20 * MB), one
        assert MB <= one["most_bytes"] <= 4 * MB


@pytest.mark.parametrize("algorithm", ["rmeshjoin", "xhybridjoin", "cmeshjoin"])
def test_a_wide_row_that_half_of_the_stream_asks_for(
    measure: Callable[[list[Case]], list[Found]], algorithm: str
) -> None:
    case = replace(WIDE, shape="half wide", rows=60_000, share=0.5, algorithm=algorithm)
    (one,) = measure([case])
    assert one["growth"] <= most_growth(20 * MB), one


@pytest.mark.parametrize("algorithm", ["meshjoin", "hybridjoin", "lookup", "auto"])
def test_duplicates_met_by_a_stream_that_gets_wider(
    measure: Callable[[list[Case]], list[Found]], algorithm: str
) -> None:
    """75,000 rows of one key; stream rows of 1 byte, then of 10 KB."""
    case = replace(WIDE, shape="duplicates", stream="widening", rows=8, batch_rows=4)
    (one,) = measure([replace(case, share=1.0, algorithm=algorithm)])
    assert one["matched"] == 8 * 75_000
    assert one["growth"] <= most_growth(20 * MB), one


def test_conditions_and_order(measure: Callable[[list[Case]], list[Found]]) -> None:
    """What a condition makes of pairs, and the rows that wait for their turn, are in the budget."""
    condition = "r.n + 1 > 0 AND length(r.text) >= 0 AND coalesce(r.n, 0) * 2 >= 0"  # always true
    plain = Case("plain", "texts", 1, "skewed", 300_000, 20_000, 0.0, "", 30 * MB)
    options = {"condition": condition}
    cases = [
        replace(plain, algorithm="cmeshjoin", options=options),
        replace(plain, algorithm="hybridjoin", options=options | {"ordered": "stream"}),
        replace(plain, algorithm="lookup", options={"ordered": "stream"}),
    ]
    found = measure(cases)
    for case, one in zip(cases, found, strict=True):
        assert "error" not in one
        assert one["growth"] <= most_growth(case.memory), (case, one)


def test_all_of_r_in_memory(measure: Callable[[list[Case]], list[Found]]) -> None:
    case = replace(WIDE, shape="half wide", rows=60_000, share=0.5, algorithm="resident")
    (one,) = measure([replace(case, memory=64 * MB)])
    assert one["growth"] <= most_growth(64 * MB), one


@pytest.mark.parametrize(
    ("algorithm", "how"),
    [("meshjoin", "anti"), ("chybridjoin", "left"), ("lookup", "anti"), ("auto", "left")],
)
def test_wide_rows_that_cannot_match_come_first(
    measure: Callable[[list[Case]], list[Found]], algorithm: str, how: str
) -> None:
    """80 MB in one batch, before the first row that could be used to size anything by."""
    case = replace(WIDE, shape="many", stream="misses first", rows=16_000, batch_rows=8_000)
    (one,) = measure([replace(case, share=0.0, memory=6 * MB, algorithm=algorithm, how=how)])
    assert one["growth"] <= most_growth(6 * MB), one


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        ("meshjoin", "union"),
        ("chybridjoin", "nested"),
        ("lookup", "union"),
        ("lookup", "nested"),
        ("auto", "union"),
    ],
)
def test_nested_columns(
    measure: Callable[[list[Case]], list[Found]], algorithm: str, kind: str
) -> None:
    case = replace(WIDE, shape="heavy tail", kind=kind, rows=40_000, algorithm=algorithm)
    (one,) = measure([replace(case, memory=40 * MB)])
    assert one["growth"] <= most_growth(40 * MB), one


@pytest.mark.parametrize("algorithm", ["hybridjoin", "lookup", "auto"])
def test_a_huge_batch_is_not_copied(
    measure: Callable[[list[Case]], list[Found]], algorithm: str
) -> None:
    """One batch of more than 200 MB, which is the source's."""
    case = replace(WIDE, stream="widening", rows=40_000, batch_rows=20_000, share=0.0)
    (one,) = measure([replace(case, algorithm=algorithm, kind="hashed")])
    assert one["growth"] <= most_growth(20 * MB), one


@pytest.mark.parametrize("algorithm", ["meshjoin", "lookup", "auto"])
def test_many_small_pages(tmp_path: Path, algorithm: str) -> None:
    """A page table of several megabytes is reserved before it is loaded, or refused."""
    case = replace(WIDE, shape="many", partitions=64, rows=20_000, share=0.0, algorithm=algorithm)
    relation = ss.build_relation(
        relation_table("many", "texts"), tmp_path, key="k", partitions=64, page_size=256
    )
    program = [sys.executable, "-m", "tests.faults.memory_use"]
    cases = [replace(case, memory=memory) for memory in (MB, 12 * MB)]
    asked = json.dumps([{"case": asdict(c), "relation": relation.location} for c in cases])
    done = subprocess.run(
        program, input=asked, cwd=ROOT, capture_output=True, text=True, check=True
    )
    refused, joined = [json.loads(line) for line in done.stdout.splitlines()]
    assert "page table" in refused["error"]
    assert refused["growth"] <= 3 * MB
    assert joined["matched"] == joined["expected"]["matched"]
    assert joined["growth"] <= most_growth(12 * MB)
