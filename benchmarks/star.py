"""`enrich_star` against a chain of `enrich` calls: the same relations, the same memory.

Two cases, sales of a shop in both. *Three keys*: products (1M rows), customers (300k) and stores
(500), whose rows stay in their tasks. *One key*: products, prices and stock of 1M rows each, which
are shuffled by the product. The chain gives each relation an equal part of the memory.

The answers must be equal before anything counts. Star and chain take turns, so that other load on
the machine hits both; the first turn of each is not counted. Reported are the median time of the
micro-batches after the first of a query, the processor time of all processes for a query, and how
often rows cross into Python and are shuffled, counted in Spark's plan. Ratios are of this run.
"""

import argparse
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import semistream as ss
from benchmarks.report import Report
from semistream.spark.session import local_session

MEMORY_BYTES = 48_000_000
BATCH_ROWS, BATCHES, ROUNDS = 200_000, 5, 3
Relations = Mapping[str, ss.Relation]
Times = dict[str, list[float]]  # in seconds, of chain and star


@dataclass(frozen=True)
class Case:
    """A star: its relations, and how rows come to the tasks."""

    name: str
    rows: Mapping[str, int]  # of each relation
    keys: Mapping[str, str]  # the key of each relation
    routing: str


CASES = (
    Case(
        "three keys",
        {"product": 1_000_000, "customer": 300_000, "store": 500},
        {"product": "product_id", "customer": "customer_id", "store": "store_id"},
        "auto",
    ),
    Case(
        "one key",
        {"product": 1_000_000, "price": 1_000_000, "stock": 1_000_000},
        dict.fromkeys(("product", "price", "stock"), "product_id"),
        "shuffle",
    ),
)


def tables(case: Case, scale: int) -> dict[str, pa.Table]:
    """Return the relations: an id, two numbers and a text each."""
    made = {}
    for name, rows in case.rows.items():
        numbers = np.arange(max(500, rows // scale))
        columns = {case.keys[name]: numbers, f"{name}_a": numbers * 3, f"{name}_b": -numbers}
        texts = pa.array([f"{name} {i:024d}" for i in numbers])
        made[name] = pa.table(columns).append_column(f"{name}_name", texts)
    return made


def sales(case: Case, rows: int, relations: Mapping[str, pa.Table], seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    sizes = {case.keys[name]: table.num_rows for name, table in relations.items()}
    keys = {key: rng.zipf(1.3, rows) % (size + 9) for key, size in sizes.items()}
    return pa.table({**keys, "price": rng.random(rows)})


def chain(case: Case, stream: DataFrame, relations: Relations) -> DataFrame:
    share = MEMORY_BYTES // len(relations)
    for name, relation in relations.items():
        about: dict[str, Any] = {"on": case.keys[name], "routing": case.routing, "name": name}
        stream = ss.enrich(stream, relation, memory=share, **about)
    return stream


def star(case: Case, stream: DataFrame, relations: Relations) -> DataFrame:
    asked = [
        (relation, {"on": case.keys[name], "routing": case.routing, "name": name})
        for name, relation in relations.items()
    ]
    return ss.enrich_star(stream, asked, memory=MEMORY_BYTES)


JOINS: dict[str, Callable[[Case, DataFrame, Relations], DataFrame]] = {
    "chain of enrich": chain,
    "enrich_star": star,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--case", choices=[case.name for case in CASES], help="only this one")
    asked = parser.parse_args()
    scale = 10 if asked.quick else 1
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as name:
        spark = local_session("semistream-bench", Path(name), memory="2g")
        for case in (each for each in CASES if asked.case in (None, each.name)):
            measure(case, spark, Path(name) / case.name, scale)
        spark.stop()


def measure(case: Case, spark: SparkSession, folder: Path, scale: int) -> None:
    made, rows = tables(case, scale), BATCH_ROWS // scale
    relations = {n: ss.build_relation(t, folder / n, key=case.keys[n]) for n, t in made.items()}
    (folder / "s").mkdir()
    for i in range(2 * BATCHES):
        pq.write_table(sales(case, rows // 2, made, i), folder / "s" / f"{i:02d}.parquet")
    batch = spark.read.parquet(str(folder / "s"))
    frames = {each: join(case, batch, relations) for each, join in JOINS.items()}
    answers = {each: _answer(frame) for each, frame in frames.items()}
    assert len(set(answers.values())) == 1, f"the answers differ: {answers}"
    reader = spark.readStream.schema(batch.schema).option("maxFilesPerTrigger", 2)
    stream = reader.parquet(str(folder / "s"))
    times: Times = {each: [] for each in JOINS}
    cpu: Times = {each: [] for each in JOINS}
    for number in range(ROUNDS + 1):
        for each, join in JOINS.items():
            found, used_s = _run(join(case, stream, relations))
            if number:
                times[each] += found
                cpu[each].append(used_s)
    report(case, scale, frames, times, cpu)


def report(
    case: Case, scale: int, frames: Mapping[str, DataFrame], times: Times, cpu: Times
) -> None:
    rows = BATCH_ROWS // scale
    about = {"case": case.name, "batch_rows": rows, "memory_bytes": MEMORY_BYTES, "scale": scale}
    made, lines = Report("star", about), []
    first = next(iter(JOINS))
    for each in JOINS:
        batch_s, cpu_s = median(times[each]), median(cpu[each])
        ratios = (median(times[first]) / batch_s, median(cpu[first]) / cpu_s)
        passes, shuffles = _counted(frames[each])
        made.add(
            each,
            batch_s=round(batch_s, 4),
            ratio=round(ratios[0], 2),
            cpu_s=round(cpu_s, 2),
            cpu_ratio=round(ratios[1], 2),
            passes=passes,
            shuffles=shuffles,
        )
        counts = [str(passes), str(shuffles)]
        shown = [f"{rows / batch_s:,.0f}", f"{batch_s:.2f} s", f"{ratios[0]:.2f} ×"]
        lines.append([each, *shown, f"{cpu_s:.1f} s", f"{ratios[1]:.2f} ×", *counts])
    titles = ["", "rows/s", "micro-batch", "speed", "CPU", "CPU saved", "passes", "shuffles"]
    memory = f"{MEMORY_BYTES / 1e6:.0f} MB"
    made.show(f"{case.name}, micro-batches of {rows:,} rows, {memory}", titles, lines)


def _run(joined: DataFrame) -> tuple[list[float], float]:
    """Run a query to its end; return the times of micro-batches, and the processor time."""
    before_s = _cpu_s()
    query = joined.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [p for p in query.recentProgress if p.numInputRows][1:]
    return [p.durationMs["addBatch"] / 1e3 for p in progress], _cpu_s() - before_s


def _cpu_s() -> float:
    """Return the processor time of Spark's JVM and of all Python workers so far."""
    found = [process.cpu_times() for process in psutil.Process().children(recursive=True)]
    return float(sum(t.user + t.system + t.children_user + t.children_system for t in found))


def _counted(frame: DataFrame) -> tuple[int, int]:
    """Return how often rows cross into Python, and how often they are shuffled."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return plan.count("MapInArrow "), plan.count("Exchange ")


def _answer(joined: DataFrame) -> tuple[int, int]:
    """Return how many rows there are, and a sum over all their values."""
    row = joined.select(F.xxhash64(*joined.columns).alias("h")).agg(
        F.count(F.lit(1)), F.sum(F.col("h").cast("decimal(38,0)"))
    ).collect()[0]  # fmt: skip
    return int(row[0]), int(row[1])


if __name__ == "__main__":
    main()
