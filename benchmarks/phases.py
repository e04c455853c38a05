"""Where the time of one micro-batch goes, from the trigger to the commit.

Spark's own phases come from the progress of two queries over the same files: ours, and a bare
`mapInArrow`. The steps of one task are timed in this process, by the function that a worker runs,
over rows like those of the stream: the files that stay warm are read and written as on Spark, and
rows are joined by look-ups, as `auto` does for so few.
R has 10M rows × 120 B; medians over the micro-batches after the third.
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

import semistream as ss
from benchmarks.report import Report
from benchmarks.sparkdata import KEY, TWO, SparkData
from benchmarks.sparkjoins import MEMORY_SHARE, identity
from semistream.advice.auto import make_join
from semistream.spark import warmfiles
from semistream.spark.session import local_session
from semistream.spark.warm import WarmTask
from semistream.spark.warmfiles import WarmFolder
from semistream.spec import resolve

PHASES = (
    *("latestOffset", "queryPlanning", "getBatch", "walCommit", "addBatch", "commitOffsets"),
    "triggerExecution",
)
SKIPPED = 3  # micro-batches
STEPS = {
    "read": "decode the stream, key codes",
    "look_up": "front stage: look-ups",
    "hit": "front stage: joined rows",
    "append": "window",
    "io": "read R",
    "probe": "find the rows",
    "output": "joined rows",
    "learn": "front stage: learn",
    "loop": "everything else of the join",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, default=10_000, help="of a micro-batch")
    arguments = parser.parse_args()
    quick, rows = arguments.quick, arguments.rows
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder:
        spark = local_session("semistream-phases", Path(folder), memory="4g")
        data = SparkData(
            spark, Path(folder), 500_000 if quick else 10_000_000, rows, 8 if quick else 18
        )
        data.write()
        relation = ss.build_relation(data.relation(), Path(folder) / "r.rel", key=KEY, partitions=2)
        report = Report("phases", {"relation_rows": relation.row_count, "batch_rows": rows})
        _phases(data, relation, report)
        spark.stop()
        _steps(relation, rows // 2, report)


def _phases(data: SparkData, relation: ss.Relation, report: Report) -> None:
    memory = int(relation.size_bytes * MEMORY_SHARE)
    ours = partial(ss.enrich, relation=relation, on=KEY, columns=TWO, memory=memory)
    times = {
        "semistream": _durations(ours(data.stream())),
        "mapInArrow": _durations(data.stream().mapInArrow(identity, data.stream().schema)),
    }
    rows = []
    for phase in PHASES:
        figures = {name: found.get(phase, 0.0) for name, found in times.items()}
        report.add(phase, **{f"{name}_ms": value for name, value in figures.items()})
        rows.append([phase, *(f"{value:.0f}" for value in figures.values())])
    report.show("Spark's phases of a micro-batch, ms", ["phase", *times], rows)


def _durations(joined: DataFrame) -> dict[str, float]:
    query = joined.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    found = [p.durationMs for p in query.recentProgress if p.numInputRows][SKIPPED:]
    return {phase: median(d.get(phase, 0) for d in found) for phase in PHASES}


def _steps(relation: ss.Relation, rows: int, report: Report) -> None:
    """Time the parts of one task, which has half of the rows."""
    rng = np.random.default_rng(1)
    share_bytes = int(relation.size_bytes * MEMORY_SHARE) // 2
    folder = WarmFolder("profile", "join", ())
    found: dict[str, list[float]] = {}
    try:
        for number in range(15 + SKIPPED):
            keys = rng.integers(0, relation.row_count, rows)
            batch = pa.record_batch({KEY: keys, "quantity": np.arange(rows)})
            for step, seconds in _one_task(relation, batch, share_bytes, folder, number).items():
                found.setdefault(step, []).append(seconds * 1000)
    finally:
        warmfiles.remove("profile.")
    table = []
    for step, times in found.items():
        report.add(f"task: {step}", ms=round(median(times[SKIPPED:]), 3))
        table.append([step, f"{median(times[SKIPPED:]):.2f}"])
    report.show(f"One task with {rows:,} rows, ms", ["step", "ms"], table)


def _one_task(
    relation: ss.Relation, batch: pa.RecordBatch, share_bytes: int, folder: WarmFolder, number: int
) -> dict[str, float]:
    clock = [time.perf_counter()]

    def lap() -> float:
        clock.append(time.perf_counter())
        return clock[-1] - clock[-2]

    about = (folder, relation, "0", 0)
    warm = WarmTask.load(*about, batch=number, size_bytes=share_bytes // 9)
    steps = {"map the warm file": lap()}
    spec = resolve(relation, batch.schema, on=KEY, columns=TWO)
    kept = (warm.front, warm.history)
    join = make_join("lookup", relation, spec, share_bytes, front=kept[0], history=kept[1])
    if sum(joined.num_rows for joined in join.join([batch])) != batch.num_rows:
        raise AssertionError("a wrong answer")
    whole = lap()
    inside = {text: join.stopwatch.seconds(step) for step, text in STEPS.items()}
    steps["open R, load the front stage"] = max(0.0, whole - sum(inside.values()))
    warm.keep(join.telemetry.front_admissions)
    return {**steps, **inside, "write the warm file": lap()}


if __name__ == "__main__":
    main()
