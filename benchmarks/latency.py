"""Latency of small micro-batches: from the arrival of a row to the commit of its micro-batch.

Rows arrive evenly (Spark's `rate` source, which stamps them), a trigger fires every second, and the
sink is Spark's no-op. 1,000, 5,000 and 20,000 rows per second; R has 10M rows × 120 B, keys are
uniform or Zipf 1. Beside ours is the floor: the same source through a bare `mapInArrow`. A row
waits half a second for its trigger on average, so 0.5 s and the time of a micro-batch is the least.

Latencies are those of all rows after the warm-up: a micro-batch reports its first and its last
stamp, and its rows are evenly between them.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

import semistream as ss
from benchmarks.report import Report
from benchmarks.sparkdata import KEY, TWO, SparkData
from benchmarks.sparkjoins import MEMORY_SHARE, identity
from semistream.spark.session import local_session

RATES = (1_000, 5_000, 20_000)  # rows per second
PERCENTILES = (50, 90, 99)
WARM_UP = 3  # micro-batches
Floats = NDArray[np.float64]
Join = Callable[[DataFrame], DataFrame]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder:
        spark = local_session("semistream-latency", Path(folder), memory="4g")
        data = SparkData(spark, Path(folder), 200_000 if quick else 10_000_000, 1_000, 1)
        data.write()
        relation = ss.build_relation(data.relation(), Path(folder) / "r.rel", key=KEY, partitions=2)
        for skew in ("uniform", "Zipf 1"):
            for rate in RATES[:1] if quick else RATES:
                _compare(spark, relation, skew, rate, 6 if quick else 25)
        spark.stop()


def _compare(
    spark: SparkSession, relation: ss.Relation, skew: str, rate: int, batches: int
) -> None:
    memory = int(relation.size_bytes * MEMORY_SHARE)
    contestants: dict[str, Join] = {
        "floor: mapInArrow, no join": lambda s: s.mapInArrow(identity, s.schema),
        "semistream: auto": partial(
            ss.enrich, relation=relation, on=KEY, columns=TWO, memory=memory
        ),
    }
    setting = {"relation_rows": relation.row_count, "keys": skew, "rows_per_s": rate}
    report = Report("latency", setting)
    rows = []
    for name, join in contestants.items():
        stream = _stream(spark, relation.row_count, skew, rate)
        found = np.percentile(_latencies(join(stream), batches), PERCENTILES)
        named = {f"p{p}_s": round(float(s), 3) for p, s in zip(PERCENTILES, found, strict=True)}
        report.add(name, **named)
        rows.append([name, *(f"{s:.2f}" for s in found)])
    title = f"Latency in s, R {relation.row_count:,} × 120 B, {rate:,} rows/s, {skew} keys"
    report.show(title, ["contestant", *(f"p{p}" for p in PERCENTILES)], rows)


def _stream(spark: SparkSession, keys: int, skew: str, rate: int) -> DataFrame:
    """Return a stream with its stamps; Zipf 1 by its continuous form, keys^u for uniform u."""
    drawn = F.rand(1) * keys if skew == "uniform" else F.pow(F.lit(float(keys)), F.rand(1)) - 1
    source = spark.readStream.format("rate").option("rowsPerSecond", rate)
    source = source.option("numPartitions", 2)
    key = F.floor(drawn).alias(KEY)
    return source.load().select(key, F.col("value").alias("quantity"), "timestamp")


def _latencies(joined: DataFrame, batches: int) -> Floats:
    """Run a query for some micro-batches; return the latency of every row after the warm-up."""
    stamp = F.unix_micros("timestamp")
    stamps = (F.min(stamp), F.max(stamp), F.count("*"))
    names = ("first", "last", "rows")
    metrics = [column.alias(name) for column, name in zip(stamps, names, strict=True)]
    writer = joined.observe("stamps", *metrics).writeStream.format("noop")
    query = writer.trigger(processingTime="1 second").start()
    while len(_filled(query)) < batches + WARM_UP:
        error = query.exception()
        if error is not None:
            raise error
        time.sleep(0.2)
    query.stop()
    found = [_of_batch(progress) for progress in _filled(query)[WARM_UP:]]
    return np.concatenate(found)


def _filled(query: StreamingQuery) -> list[StreamingQueryProgress]:
    return [p for p in query.recentProgress if p.numInputRows]


def _of_batch(progress: StreamingQueryProgress) -> Floats:
    """Return the latencies of the rows of a micro-batch."""
    observed = progress.observedMetrics["stamps"]
    started = datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00")).timestamp()
    committed = started + progress.durationMs["triggerExecution"] / 1000
    first, last = observed["first"] / 1e6, observed["last"] / 1e6
    latencies: Floats = committed - np.linspace(first, last, observed["rows"])
    return latencies


if __name__ == "__main__":
    main()
