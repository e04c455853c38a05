"""What a tenth of R on delta pages costs each algorithm: the rate with them, by that without.

R twice with the same rows: as it was built, and after an upsert of a tenth of it. Keys are integers
or texts. The answers must be equal before anything counts. The two take turns, and of each the
least processor time counts, so that other load on the machine matters little. The goal is 0.8.
"""

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import semistream as ss
from benchmarks.data import (
    Fingerprint,
    fingerprint,
    paper_workload,
    shuffled_relation,
    stream_table,
)
from benchmarks.report import Report

KEY = "k"
COLUMNS = ["c0", "c1"]
MEMORY_SHARE, CHANGED_SHARE = 0.05, 0.1
ALGORITHMS = ("meshjoin", "hybridjoin", "xhybridjoin", "lookup", "chybridjoin", "cmeshjoin")
ROUNDS = 5
GOAL = 0.8


@dataclass(frozen=True)
class Case:
    """Keys of R and of the stream."""

    name: str
    exponent: float
    is_text: bool
    relation_rows: int
    stream_rows: int

    def tables(self, scale: int) -> tuple[pa.Table, pa.Table]:
        """Return R and the stream."""
        workload = paper_workload(self.relation_rows // scale, self.exponent)
        stream = stream_table(workload, self.stream_rows // scale)
        return self._keyed(shuffled_relation(workload)), self._keyed(stream)

    def _keyed(self, table: pa.Table) -> pa.Table:
        if not self.is_text:
            return table
        texts = pc.binary_join_element_wise("key", table[KEY].cast(pa.string()), "-")
        return table.set_column(table.schema.get_field_index(KEY), KEY, texts)


CASES = (
    Case("integers, uniform", 0.0, False, 3_500_000, 2_000_000),
    Case("integers, Zipf 1", 1.0, False, 3_500_000, 2_000_000),
    Case("texts, uniform", 0.0, True, 1_500_000, 1_000_000),
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--case", choices=[case.name for case in CASES])
    parser.add_argument("--algorithm", choices=ALGORITHMS)
    asked = parser.parse_args()
    scale = 10 if asked.quick else 1
    for case in CASES:
        if asked.case in (None, case.name):
            measure(case, [asked.algorithm] if asked.algorithm else list(ALGORITHMS), scale)


def measure(case: Case, algorithms: list[str], scale: int) -> None:
    table, stream = case.tables(scale)
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder:
        before, after = relations(table, Path(folder))
        about = {"case": case.name, "relation_rows": table.num_rows, "scale": scale}
        report, lines = Report("deltas", about), []
        for algorithm in algorithms:
            without_s, with_s = least_times(algorithm, stream, before, after)
            kept = without_s / with_s
            report.add(algorithm, cpu_s=round(with_s, 4), kept=round(kept, 3))
            rate = f"{stream.num_rows / with_s:,.0f}"
            lines.append([algorithm, rate, f"{kept:.2f}", "yes" if kept >= GOAL else "no"])
    title = f"{case.name}: {table.num_rows:,} rows, a tenth on delta pages"
    report.show(title, ["", "tuples per CPU second", "of the rate without", f">= {GOAL}"], lines)


def relations(table: pa.Table, folder: Path) -> tuple[ss.Relation, ss.Relation]:
    """Return R as it was built, and with a tenth of its rows on delta pages."""
    made = [ss.build_relation(table, folder / n, key=KEY, partitions=1) for n in ("a", "b")]
    rng = np.random.default_rng(1)
    changed = rng.permutation(table.num_rows)[: int(CHANGED_SHARE * table.num_rows)]
    return made[0], made[1].upsert(table.take(np.sort(changed)))


def least_times(
    algorithm: str, stream: pa.Table, before: ss.Relation, after: ss.Relation
) -> tuple[float, float]:
    """Return the least processor time of a join with each; their answers are compared."""
    memory = int(MEMORY_SHARE * before.size_bytes)
    times: tuple[list[float], list[float]] = ([], [])
    answers: set[Fingerprint] = set()
    for number in range(ROUNDS + 1):
        for relation, found in zip((before, after), times, strict=True):
            began_s = process_time()
            batches = list(joined(algorithm, stream, relation, memory))
            if number:
                found.append(process_time() - began_s)
            else:
                numbers = [n for n in batches[0].schema.names if n != KEY]
                answers.add(fingerprint(batch.select(numbers) for batch in batches))
    assert len(answers) == 1, f"the answers differ: {answers}"
    return min(times[0]), min(times[1])


def joined(
    algorithm: str, stream: pa.Table, relation: ss.Relation, memory: int
) -> Iterator[pa.RecordBatch]:
    joining = ss.join(
        stream, relation, on=KEY, how="inner", columns=COLUMNS, memory=memory, algorithm=algorithm
    )
    return iter(joining)


if __name__ == "__main__":
    main()
