"""Building R from a DataFrame against Spark writing the same table as sorted, bucketed Parquet."""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import semistream as ss
from benchmarks.report import Report
from benchmarks.sparkdata import SparkData
from semistream.spark.session import local_session

PARTITIONS = 8
ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder:
        spark = local_session("semistream-bench", Path(folder), memory="8g")
        data = SparkData(spark, Path(folder), 1_000_000 if quick else 10_000_000, batches=1)
        data.write()
        rows = data.relation()

        def ours() -> None:
            relation = ss.build_relation(
                rows, Path(folder) / "r.rel", key="product_id", partitions=PARTITIONS
            )
            assert relation.row_count == data.relation_rows
            relation.prune(grace=0)

        def parquet() -> None:
            writer = rows.write.mode("overwrite").bucketBy(PARTITIONS, "product_id")
            writer.sortBy("product_id").saveAsTable("bucketed")

        seconds = {
            "semistream relation": _best(ours),
            "spark, sorted bucketed parquet": _best(parquet),
        }
        assert spark.table("bucketed").count() == data.relation_rows
        spark.stop()
    base = seconds["spark, sorted bucketed parquet"]
    report = Report("build", {"relation_rows": data.relation_rows})
    for name, value in seconds.items():
        report.add(name, seconds=value, x_parquet=value / base)
    report.show(
        f"Building R, {data.relation_rows:,} × 120 B, {PARTITIONS} partitions",
        ["contestant", "seconds", "× parquet"],
        [[n, f"{s:.1f}", f"{s / base:.2f}"] for n, s in seconds.items()],
    )


def _best(run: Callable[[], None]) -> float:
    times = []
    for _ in range(ROUNDS):
        started = perf_counter()
        run()
        times.append(perf_counter() - started)
    return min(times)


if __name__ == "__main__":
    main()
