"""The budget against the process: how far resident memory really grows while MESHJOIN runs.

Each budget runs in a process of its own, which first loads the kernels with a small join, then
resets its peak and joins a stream that is generated as it goes, dropping the output.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import semistream as ss
from benchmarks.data import paper_workload
from benchmarks.report import Report
from semistream.units import format_bytes

SHARES = (0.01, 0.05, 0.10)
CONSTANT_BYTES = 16_000_000  # allocator, interpreter, the batch in flight on either side


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--measure", nargs=2, metavar=("RELATION", "BUDGET"))
    arguments = parser.parse_args()
    if arguments.measure:
        print(_growth(arguments.measure[0], int(arguments.measure[1])))
        return
    workload = paper_workload(350_000) if arguments.quick else paper_workload()
    report = Report("memory", {"relation_rows": workload.relation_rows})
    rows = []
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder:
        path = str(Path(folder) / "r.rel")
        relation = ss.build_relation(workload.relation(), path, key="k", partitions=1)
        for share in SHARES:
            budget = int(relation.size_bytes * share)
            command = [sys.executable, "-m", "benchmarks.memory", "--measure", path, str(budget)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            growth = int(done.stdout)
            if growth > budget * 1.1 + CONSTANT_BYTES:
                raise AssertionError(f"the process grew by {growth} with a budget of {budget}")
            report.add("meshjoin", budget_bytes=budget, process_growth_bytes=growth)
            rows.append([f"{share:.0%} of R", format_bytes(budget), format_bytes(growth)])
    report.show(
        f"Memory of the process, R {workload.relation_rows:,} × 120 B "
        f"(must stay within the budget + 10 % + {format_bytes(CONSTANT_BYTES)})",
        ["budget", "bytes", "process grew by"],
        rows,
    )


def _growth(path: str, budget: int) -> int:
    relation = ss.Relation.open(path)
    _join(relation, budget=10_000_000, rows=20_000)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    _join(relation, budget, rows=2_000_000)
    return _status("VmHWM") - before


def _join(relation: ss.Relation, budget: int, rows: int) -> None:
    # An inner join: R has every key, so a row that is not there has lost its match.
    options = {"on": "k", "how": "inner", "columns": ["c0", "c1"], "algorithm": "meshjoin"}
    source = _stream(relation.row_count, rows)
    joined = ss.join(source, relation, memory=budget, **options)  # type: ignore[arg-type]
    assert sum(batch.num_rows for batch in joined) == rows


def _stream(domain: int, rows: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(1)
    for at in range(0, rows, 10_000):
        count = min(10_000, rows - at)
        yield pa.record_batch(
            {
                "k": rng.integers(0, domain, count),
                "quantity": rng.integers(1, 10, count, dtype=np.int32),
                "price": rng.random(count),
            }
        )


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no {field} in /proc/self/status")


if __name__ == "__main__":
    main()
