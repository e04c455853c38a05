"""Structured Streaming: enrich against Spark's own joins, and against a bare Python pass-through.

R has 10M rows × 120 B, a micro-batch 400k rows; the sink is Spark's no-op. Twice: adding two of R's
columns, and adding all fourteen. Every contestant's answer over all micro-batches is checked
against Spark's own before its times count. The figure is the median over the micro-batches after
the first; its ratio is to the best of plain Spark's joins.

Plain Spark can broadcast R, or shuffle it, or broadcast the micro-batch, which is the smaller side:
in an inner join by a hint, in a left join with `foreachBatch`. The floor is what any join in Python
costs at least: the same source through `mapInArrow`, with a shuffle and without.
"""

import argparse
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import semistream as ss
from benchmarks.report import Report
from benchmarks.sparkdata import SparkData
from semistream.spark.demo import broadcast_batch
from semistream.spark.session import local_session

MEMORY_SHARE = 0.05
KEY = "product_id"
TWO = ["surrogate_key", "supplier_id"]
ALL = [*TWO, *(f"a{i}" for i in range(12))]
# These use a micro-batch several times, in foreachBatch: a stream cannot be joined with itself.
BY_BATCH = ("plain: batch broadcast, inner and anti", "plain: batch broadcast, left")
Join = Callable[[DataFrame], DataFrame]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--columns", choices=["two", "all", "both"], default="both")
    arguments = parser.parse_args()
    quick = arguments.quick
    added = {"two": [TWO], "all": [ALL], "both": [TWO, ALL]}[arguments.columns]
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder:
        spark = local_session("semistream-bench", Path(folder), memory="8g")
        data = SparkData(spark, Path(folder))
        if quick:
            data = SparkData(spark, Path(folder), 1_000_000, 40_000, 3)
        data.write()
        relation = ss.build_relation(data.relation(), Path(folder) / "r.rel", key=KEY, partitions=2)
        for columns in added:
            _compare(data, relation, columns)
        spark.stop()


def _compare(data: SparkData, relation: ss.Relation, columns: list[str]) -> None:
    budget = int(relation.size_bytes * MEMORY_SHARE)
    contestants = contestants_of(data, relation, columns, budget)
    report = Report(
        "spark",
        {
            "relation_rows": data.relation_rows,
            "batch_rows": data.batch_rows,
            "columns_added": len(columns),
            "budget_bytes": budget,
        },
    )
    seconds: dict[str, float] = {}
    failures = {}
    answer = fingerprint(contestants["plain: sort-merge join"](data.all_batches()))
    for name, join in contestants.items():
        try:
            if not name.startswith("floor"):
                check(name, fingerprint(join(data.all_batches())), answer)
            seconds[name] = steady_seconds(data.stream(), join, name in BY_BATCH)
        except (PySparkException, Py4JJavaError) as error:  # a plain join that runs out of memory
            found = re.search(r"OutOfMemoryError[^\n]*", str(error))
            failures[name] = (found[0] if found else str(error).strip().splitlines()[0])[:80]
    best = min(s for name, s in seconds.items() if name.startswith("plain"))
    rows = []
    for name in contestants:
        if name in failures:
            report.add(name, failed=failures[name])
            rows.append([name, "failed", failures[name], ""])
            continue
        rate = data.batch_rows / seconds[name]
        report.add(name, seconds=seconds[name], rows_per_s=rate, x_plain=best / seconds[name])
        rows.append([name, f"{seconds[name]:.2f}", f"{rate:,.0f}", f"{best / seconds[name]:.1f}"])
    report.show(
        f"Spark, R {data.relation_rows:,} × 120 B, micro-batches of {data.batch_rows:,}, "
        f"{len(columns)} columns added, budget {MEMORY_SHARE:.0%} of R",
        ["contestant", "s per batch", "rows/s", "× best plain"],
        rows,
    )


def contestants_of(
    data: SparkData, relation: ss.Relation, columns: list[str], budget: int
) -> dict[str, Join]:
    """Return the joins by name. All keys of the stream are in R, so inner and left are the same."""
    r = data.relation().select(KEY, *columns)
    ours = partial(ss.enrich, relation=relation, on=KEY, columns=columns, memory=budget)
    code = F.pmod(KEY, F.lit(relation.partition_count)).cast("int")
    return {
        "semistream: auto, local routing": partial(ours, routing="local"),
        "semistream: auto, shuffle": partial(ours, routing="shuffle"),
        "plain: shuffled hash join": lambda s: s.join(r.hint("shuffle_hash"), KEY, "left"),
        "plain: sort-merge join": lambda s: s.join(r.hint("merge"), KEY, "left"),
        "plain: broadcast hash join": lambda s: s.join(F.broadcast(r), KEY, "left"),
        "plain: batch broadcast, inner": lambda s: F.broadcast(s).join(r, KEY),
        "plain: batch broadcast, inner and anti": lambda s: _inner_and_anti(s, r),
        "plain: batch broadcast, left": lambda s: broadcast_batch(s, r, KEY),
        "floor: mapInArrow, no join": lambda s: s.mapInArrow(identity, s.schema),
        "floor: shuffle and mapInArrow, no join": lambda s: s.repartitionById(
            relation.partition_count, code
        ).mapInArrow(identity, s.schema),
    }


def _inner_and_anti(batch: DataFrame, r: DataFrame) -> DataFrame:
    """Return the left join as the rows that match, and those that do not."""
    matched = F.broadcast(batch).join(r, KEY)
    missed = batch.join(F.broadcast(matched.select(KEY)), KEY, "left_anti")
    return matched.unionByName(missed, allowMissingColumns=True)


def check(name: str, actual: object, expected: object) -> None:
    if actual != expected:
        raise AssertionError(f"{name} gave a wrong answer: {actual}, not {expected}")


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def fingerprint(joined: DataFrame) -> object:
    """Return the columns, the row count and the sum of the rows' hashes, over all columns.

    A null does not change a hash, so whether each value is one is hashed as well.
    """
    names = sorted(joined.columns)
    are_null = [F.isnull(name) for name in names]
    row_hash = F.xxhash64(*names, *are_null).cast("decimal(38,0)")
    types = [(name, joined.schema[name].dataType) for name in names]
    return types, joined.agg(F.count("*"), F.sum(row_hash)).collect()[0]


def steady_seconds(stream: DataFrame, join: Join, by_batch: bool) -> float:
    """Return the median time of a micro-batch after the first."""

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()  # it is used several times
        join(batch).write.format("noop").mode("append").save()
        batch.unpersist()

    if by_batch:
        writer = stream.writeStream.foreachBatch(write)
    else:
        writer = join(stream).writeStream.format("noop")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    times = [
        p.durationMs["triggerExecution"] / 1000 for p in query.recentProgress if p.numInputRows
    ]
    return median(times[1:])


if __name__ == "__main__":
    main()
