"""`auto` against named algorithms, over a grid of columns, budgets, skews and lengths.

For each point all of them take turns on the same stream; answers are checked, and the best of each
one's rounds counts. The table ends with the points at which `auto` did worst.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa

import semistream as ss
from benchmarks.data import BATCH_ROWS, fingerprint, paper_workload, stream_table
from benchmarks.engine import answer_to
from benchmarks.report import Report
from semistream.advice.auto import SelfTuningJoin
from semistream.embedded import prepare
from semistream.errors import BudgetError

ALGORITHMS = ("lookup", "hybridjoin", "chybridjoin", "binlj", "cbinlj", "cmeshjoin", "rmeshjoin")
TARGET = 0.9
_SHORT = 200_000  # rows of a stream up to which it is run more often
_WORST = 12  # points shown at the end


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the grid."""

    relation_rows: int
    columns: int
    share: float  # of R, that the budget is
    exponent: float
    stream_rows: int

    def __str__(self) -> str:
        """Name it in a table."""
        skew = f"Zipf {self.exponent:g}" if self.exponent else "uniform"
        return (
            f"R {self.relation_rows / 1e6:g}M, {self.columns} columns, {self.share:.0%}, {skew}, "
            f"{self.stream_rows:,} rows"
        )


def points(quick: bool) -> Iterator[Point]:
    """Yield the grid, or a small part of it."""
    if quick:
        yield from (Point(350_000, *rest) for rest in product((2,), (0.05,), (0.0, 1.0), (10_000,)))
        return
    rows = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
    for relation_rows, columns, share, exponent, stream_rows in product(
        (350_000, 3_500_000, 25_000_000), (2, 14), (0.01, 0.05, 0.2), (0.0, 0.5, 1.0, 1.2), rows
    ):
        yield Point(relation_rows, columns, share, exponent, stream_rows)


def main() -> None:
    """Run the grid, or the part of it that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grid", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few points only, to try it out")
    parser.add_argument("--relation-rows", type=int, help="only this size of R")
    parser.add_argument("--columns", type=int, help="only this number of columns")
    parser.add_argument("--share", type=float, help="only this share of R")
    parser.add_argument("--exponent", type=float, help="only this skew")
    parser.add_argument("--stream-rows", type=int, help="only streams of this length")
    parser.add_argument("--most-rows", type=int, default=10**9, help="no longer streams than this")
    arguments = parser.parse_args()
    names = ("relation_rows", "columns", "share", "exponent", "stream_rows")
    wanted = {name: getattr(arguments, name) for name in names}
    chosen = [
        point
        for point in points(arguments.quick)
        if all(value in (None, getattr(point, name)) for name, value in wanted.items())
        and point.stream_rows <= arguments.most_rows
    ]
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    report = Report("grid", {})
    found: list[tuple[float, list[str]]] = []
    for relation_rows in sorted({point.relation_rows for point in chosen}):
        with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder:
            table = paper_workload(relation_rows).relation().combine_chunks()
            relation = ss.build_relation(table, Path(folder) / "r.rel", key="k", partitions=1)
            here = [point for point in chosen if point.relation_rows == relation_rows]
            found += [_run(point, table, relation, report) for point in here]
    found.sort(key=lambda entry: entry[0])
    header = ["point", "best", "ms", "auto chose", "ms", "auto / best"]
    report.show("The worst points", header, [row for _, row in found[:_WORST]])
    reached = sum(ratio >= TARGET for ratio, _ in found)
    print(f"auto reached {TARGET} of the best at {reached} of {len(found)} points")


def _run(
    point: Point, table: pa.Table, relation: ss.Relation, report: Report
) -> tuple[float, list[str]]:
    stream = stream_table(paper_workload(point.relation_rows, point.exponent), point.stream_rows)
    batches = stream.to_batches(max_chunksize=BATCH_ROWS)
    columns = [f"c{i}" for i in range(point.columns)]
    answer = answer_to(table, stream, columns)
    budget = int(relation.size_bytes * point.share)
    best: dict[str, float] = {}
    chose = ""
    rounds = 5 if point.stream_rows <= _SHORT else 2
    for turn in range(rounds):
        for name in ("auto", *ALGORITHMS):
            started = perf_counter()
            try:
                joined, chosen = _join(batches, relation, columns, budget, name)
            except BudgetError:
                continue
            seconds = perf_counter() - started
            if turn == 0 and fingerprint(joined) != answer:
                raise AssertionError(f"{name} gave a wrong answer at {point}")
            best[name] = min(best.get(name, seconds), seconds)
            chose = chosen or chose
    named = {name: seconds for name, seconds in best.items() if name != "auto"}
    winner = min(named, key=lambda name: named[name])
    ratio = named[winner] / best["auto"]
    row = [str(point), winner, f"{1e3 * named[winner]:.1f}", chose]
    row += [f"{1e3 * best['auto']:.1f}", f"{ratio:.2f}"]
    print("  ".join(row), {n: round(1e3 * s, 1) for n, s in best.items()}, flush=True)
    report.add(str(point), best=winner, auto=chose, ratio=ratio, seconds=best)
    return ratio, row


def _join(
    batches: list[pa.RecordBatch],
    relation: ss.Relation,
    columns: list[str],
    budget: int,
    name: str,
) -> tuple[list[pa.RecordBatch], str]:
    """Return the result, and what `auto` chose."""
    options: dict[str, Any] = {"on": "k", "how": "inner", "columns": columns}
    operator, stream = prepare(batches, relation, memory=budget, algorithm=name, **options)
    assert operator is not None
    joined = list(operator.join(stream))
    changes = operator.changes if isinstance(operator, SelfTuningJoin) else []
    return joined, " → ".join(change.algorithm for change in changes)


if __name__ == "__main__":
    main()
