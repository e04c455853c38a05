"""What options cost: ordered output and conditions, against the same join without them.

Zipf 1, memory 10 % of R, one core. All contestants take turns, round after round; the best CPU time
of each one's rounds counts, and every answer is checked: its rows, and in ordered output their
order.
"""

import argparse
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa

import semistream as ss
from benchmarks.data import BATCH_ROWS, fingerprint, paper_workload, shuffled_relation, stream_table
from benchmarks.report import Report

COLUMNS = ["c0", "c1"]
ALGORITHMS = ("auto", "lookup", "hybridjoin", "chybridjoin", "meshjoin", "cmeshjoin")
MOST_ORDERED, MOST_CONDITION = 0.25, 0.15  # of the rate, that `auto` may lose
_SHARE = 0.1
_ROUNDS = 7
_FIRST_HALF = 1 << 59  # of the values of R's columns, which are below 2**60


@dataclass(frozen=True)
class Contestant:
    """An option of `join`, and the rows of the joined table that it keeps."""

    name: str
    options: dict[str, Any]
    kept: str = "all"
    at_most: float | None = None  # of the rate, that it may cost with `auto`


PLAIN = Contestant("no option", {})
CONTESTANTS = (
    PLAIN,
    Contestant("ordered", {"ordered": "stream"}, at_most=MOST_ORDERED),
    Contestant("ordered by key", {"ordered": "key"}, at_most=MOST_ORDERED),
    Contestant(
        "condition, all pass", {"condition": "s.quantity <= r.c0 + 10"}, at_most=MOST_CONDITION
    ),
    Contestant(
        "condition, half pass", {"condition": f"r.c0 < {_FIRST_HALF}"}, "half", MOST_CONDITION
    ),
)
_ORDERED_BY = {"auto", "lookup"}  # behind a front stage most rows wait for a few


def main() -> None:
    """Run all algorithms with every option."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.options", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, to try it out")
    parser.add_argument("--algorithms", nargs="*", default=list(ALGORITHMS))
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    given = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    relation_rows, stream_rows = (350_000, 300_000) if given.quick else (3_500_000, 3_000_000)
    workload = paper_workload(relation_rows)
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder:
        table = shuffled_relation(workload)
        relation = ss.build_relation(table, Path(folder) / "r.rel", key="k", partitions=1)
        stream = stream_table(workload, stream_rows)
        joined = _joined(table, stream)
        best = _best_times(given.algorithms, given.rounds, relation, stream, joined)
    about = {"relation_rows": relation_rows, "stream_rows": stream_rows, "memory_share": _SHARE}
    report = Report("options", about)
    rows = []
    limits = {one.name: one.at_most for one in CONTESTANTS}
    for (algorithm, name), seconds in best.items():
        lost = 1 - best[algorithm, PLAIN.name] / seconds
        report.add(f"{algorithm}, {name}", cpu_s=seconds, lost=lost)
        limit = limits[name] if algorithm == "auto" else None
        at_most = "" if limit is None else f"{limit:.0%}"
        rate = f"{stream_rows / seconds:,.0f}"
        rows.append([algorithm, name, rate, f"{lost:.1%}", at_most])
    report.show(
        f"Options, CPU time, Zipf 1, memory {_SHARE:.0%} of R, R {relation_rows:,} × 120 B",
        ["algorithm", "option", "tuples/s", "less than without", "at most"],
        rows,
    )


def _joined(table: pa.Table, stream: pa.Table) -> pa.RecordBatch:
    """Return the right answer in the order of the stream, by direct addressing."""
    rows = np.empty(table.num_rows, np.int64)
    rows[table["k"].to_numpy()] = np.arange(table.num_rows)
    matched = rows[stream["k"].to_numpy()]
    added = {name: table[name].to_numpy()[matched] for name in COLUMNS}
    return pa.record_batch({**{n: stream[n].to_numpy() for n in stream.column_names}, **added})


def _best_times(
    algorithms: list[str],
    rounds: int,
    relation: ss.Relation,
    stream: pa.Table,
    joined: pa.RecordBatch,
) -> dict[tuple[str, str], float]:
    """Return each one's best CPU time, every answer checked."""
    batches = stream.to_batches(max_chunksize=BATCH_ROWS)
    half = joined.filter(pa.array(joined["c0"].to_numpy() < _FIRST_HALF))
    answers = {"all": fingerprint([joined]), "half": fingerprint([half])}
    best: dict[tuple[str, str], float] = {}
    for _ in range(rounds):
        for algorithm in algorithms:
            for one in CONTESTANTS:
                if "ordered" in one.options and algorithm not in _ORDERED_BY:
                    continue
                about: dict[str, Any] = {"how": "inner", "columns": COLUMNS, "algorithm": algorithm}
                memory = int(_SHARE * relation.size_bytes)
                started = process_time()
                found = list(ss.join(batches, relation, memory=memory, **about, **one.options))
                seconds = process_time() - started
                if fingerprint(found) != answers[one.kept]:
                    raise AssertionError(f"{algorithm}, {one.name}: a wrong answer")
                if "ordered" in one.options and not _is_in_order(found, joined):
                    raise AssertionError(f"{algorithm}: rows in a wrong order")
                best[algorithm, one.name] = min(seconds, best.get((algorithm, one.name), seconds))
    return best


def _is_in_order(found: list[pa.RecordBatch], joined: pa.RecordBatch) -> bool:
    prices = np.concatenate([batch.column("price").to_numpy() for batch in found])
    return np.array_equal(prices, joined["price"].to_numpy())


if __name__ == "__main__":
    main()
