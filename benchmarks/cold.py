"""R really too big for memory: micro-batches in a control group whose page cache is small.

Root and control groups of the first version are needed; else this says so and ends. R of 50M rows,
6 GB, in a control group of 700 MB; caches are dropped before each micro-batch; one core, a budget
of 100 MB, 2 columns. With ``--against`` another checkout of Semistream runs the same micro-batches
in turn: its `hybridjoin` is what `auto` is compared with.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import semistream as ss
from benchmarks.controlgroup import NOT_POSSIBLE, control_group, is_possible
from benchmarks.microbatches import build, check, micro_batch
from benchmarks.report import Report

ROWS = (10_000, 400_000)
TARGETS = {10_000: 0.4, 400_000: 0.9}  # of the other's time
_LIMIT_BYTES = 700_000_000
_BUDGET_BYTES = 100_000_000
_ROUNDS = 3


def main() -> None:
    """Build R, then run each micro-batch in a process of its own in the control group."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, to try it out")
    parser.add_argument("--relation", type=Path, help="R, if it was built before")
    parser.add_argument("--against", type=Path, help="a checkout to compare with")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)  # algorithm, rows, seed
    arguments = parser.parse_args()
    if arguments.run:
        name, rows, seed = arguments.run
        print(json.dumps(_run(arguments.relation, name, int(rows), int(seed))))
        return
    if not is_possible():
        print(NOT_POSSIBLE)
        return
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder:
        relation = arguments.relation or Path(folder) / "r.rel"
        if arguments.relation is None:
            build(relation, 5_000_000 if arguments.quick else 50_000_000, partitions=16)
        limit = _LIMIT_BYTES // (10 if arguments.quick else 1)
        _compare(relation, arguments.against, max(limit, 300_000_000))


def _compare(relation: Path, against: Path | None, limit_bytes: int) -> None:
    ours, root = Path(ss.__file__).parents[1], Path(__file__).parents[1]
    contestants = [("auto", ours), ("lookup", ours), ("hybridjoin", ours)]
    if against is not None:
        contestants.append(("hybridjoin", against / "src"))
    report = Report("cold", {})
    rows_shown = []
    for rows in ROWS:
        times: dict[str, list[float]] = {}
        for seed in range(_ROUNDS):
            for name, source in contestants:
                label = name if source == ours else f"{name} of {against}"
                command = [sys.executable, "-m", "benchmarks.cold", "--relation", str(relation)]
                command += ["--run", name, str(rows), str(seed)]
                path = os.pathsep.join([str(source), str(root)])
                environment = {**os.environ, "PYTHONPATH": path}
                times.setdefault(label, []).append(_limited(command, environment, limit_bytes))
        medians = {label: statistics.median(found) for label, found in times.items()}
        for label, seconds in medians.items():
            report.add(label, stream_rows=rows, seconds=seconds)
            ratio = medians["auto"] / seconds
            rows_shown.append([f"{rows:,}", label, f"{seconds:.3f}", f"{ratio:.2f}"])
    title = f"Cold micro-batches, control group of {limit_bytes / 1e6:.0f} MB"
    report.show(title, ["rows", "algorithm", "median s", "auto ÷ this"], rows_shown)


def _limited(command: list[str], environment: dict[str, str], limit_bytes: int) -> float:
    """Run a process in a control group of its own, with nothing cached; return its seconds."""
    with control_group() as group:
        group.limit(limit_bytes)
        found = subprocess.run(
            command,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            preexec_fn=group.enter,
        )
        return float(json.loads(found.stdout.splitlines()[-1]))


def _run(path: Path, name: str, rows: int, seed: int) -> float:
    """Return the seconds of one micro-batch, after kernels were compiled on a small relation."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    options: dict[str, Any] = {
        "on": "k",
        "how": "inner",
        "columns": ["c0", "c1"],
        "memory": _BUDGET_BYTES,
    }
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder:
        small = build(Path(folder) / "small.rel", 200_000)
        for few in (10, 50_000):
            batches = micro_batch(np.random.default_rng(0), 200_000, few)
            for kernels in (name, "hybridjoin"):
                list(ss.join(batches, small, algorithm=kernels, **(options | {"memory": "2MB"})))
    relation = ss.Relation.open(path)
    batches = micro_batch(np.random.default_rng(seed), relation.row_count, rows)
    started = perf_counter()
    joined = list(ss.join(batches, relation, algorithm=name, **options))
    seconds = perf_counter() - started
    check(joined, rows)
    return seconds


if __name__ == "__main__":
    main()
