"""Retunings at any moment, from any choice to any other: nothing is lost, and the budget holds."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.advice.auto import AUTO
from semistream.budget.split import Split
from semistream.spec import resolve
from semistream.testing import nested_loop_join, same_rows
from tests.contract.pressure import SKEWED_COUNT, TIGHT_COUNT, least_budget, skewed, tight
from tests.retunings import Choice, RetunedJoin
from tests.workloads import Workload, check_against_oracle, workloads

# Index joins follow each other with larger and smaller windows, disk buffers and front stages, in
# one order or another; the others are drained, and drain.
CHOICES: list[Choice] = [
    ("chybridjoin", Split()),
    ("hybridjoin", Split()),
    ("hybridjoin", Split(pages_per_read=1, oldest_picks=True)),
    ("chybridjoin", Split(pages_per_read=3)),
    ("xhybridjoin", Split()),
    ("binlj", Split(pages_per_read=2)),
    ("chybridjoin", Split(front_bytes=2_000)),
    ("cbinlj", Split()),
    ("cmeshjoin", Split()),
    ("chybridjoin", Split(pages_per_read=1)),
    ("lookup", Split()),
    ("hybridjoin", Split()),
]


@contextmanager
def retuned(every: int, first: int = 0) -> Iterator[type[RetunedJoin]]:
    """Let `auto` make these choices, one after the other, at every few batches."""
    choices = CHOICES[first:] + CHOICES[:first]
    joins = RetunedJoin.with_choices(choices, every)
    # To return freed memory takes longer than these joins do.
    no_return = patch("semistream.advice.auto.return_free_memory", lambda: None)
    with patch("semistream.advice.auto.SelfTuningJoin", joins), no_return:
        yield joins


def check(workload: Workload, every: int, first: int, factor: float) -> list[int]:
    """Compare with the oracle; return how many tuples each join has taken over."""
    _, table = workload.tables()
    relation = workload.build(table)
    with retuned(every, first):
        least = least_budget(AUTO, workload, relation)
    with retuned(every, first) as joins:
        memory = 1 << 20 if least is None else int(least * factor)
        check_against_oracle(workload, relation, AUTO, memory)
        return joins.handed_over


@settings(max_examples=40)
@given(
    workload=workloads(),
    every=st.integers(1, 4),
    first=st.integers(0, len(CHOICES) - 1),
    factor=st.sampled_from([1.5, 2, 5, 40]),  # later rows may be wider than the first
)
def test_oracle_generated(workload: Workload, every: int, first: int, factor: float) -> None:
    check(workload, every, first, factor)


def test_oracle_when_memory_is_short() -> None:
    """Keys of all kinds, duplicates over several pages, misses, nulls, texts and lists."""
    handed_over = []
    for seed in range(TIGHT_COUNT):
        workload = replace(tight(seed), batch_rows=(7, 20, 45)[seed % 3])
        first, factor = 5 * seed % len(CHOICES), (1.5, 2.0, 5.0)[seed // 3 % 3]
        handed_over.append(check(workload, 1 + seed % 3, first, factor))
    assert sum(sum(taken) > 0 for taken in handed_over) > TIGHT_COUNT / 2, handed_over


def test_oracle_with_front_stages() -> None:
    """Rows are cached, taken over and evicted; one to three rows a key, some of them wide."""
    handed_over = []
    for seed in range(SKEWED_COUNT):
        handed_over += check(skewed(seed), 1 + seed % 2, seed, (3.0, 5.0)[seed % 2])
    assert sum(taken > 0 for taken in handed_over) > len(handed_over) / 4, handed_over


def test_rows_that_become_wider(tmp_path: Path) -> None:
    """The window that follows is sized by the rows that wait, not only by those that came first."""
    rng = np.random.default_rng(1)
    table = pa.table({"k": rng.permutation(1_500), "a": np.arange(1_500)})
    relation = ss.build_relation(table, tmp_path / "r", key="k", partitions=1, page_size=400)
    notes = ["n" * (2 if i < 500 else 150) for i in range(1_500)]
    stream = pa.table({"k": rng.integers(0, 1_800, 1_500), "note": notes})
    spec = resolve(relation, stream.schema, how="left")
    for most in (20, 55):  # of 60 pages: the window has what they leave
        assert relation.page_count == 60
        choices = [("hybridjoin", Split(pages_per_read=pages)) for pages in (1, most)]
        join = RetunedJoin.with_choices(choices, 4)(relation, spec, 60_000)
        out = pa.Table.from_batches(list(join.join(stream.to_batches(max_chunksize=60))))
        assert same_rows(out, nested_loop_join(stream, table, on="k"))
        assert join.ledger.peak_bytes <= 60_000
        assert all(join.handed_over[1:]), join.handed_over
