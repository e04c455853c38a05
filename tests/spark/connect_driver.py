"""Run by test_connect.py: a Spark Connect client. Prints what it found as one line of JSON.

Arguments: the server's port, a folder to work in.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkContext
from pyspark.sql import SparkSession

import semistream as ss
from semistream.spark import register_workloads
from semistream.spark.metrics import metric_names
from semistream.testing import nested_loop_join, same_rows
from semistream.workload.registry import make_workload

FILES = 3
ROWS_PER_FILE = 150


def main(port: str, folder: Path) -> None:
    products = pa.table({"k": [f"p{i % 200}" for i in range(600)], "v": range(600)})
    count = FILES * ROWS_PER_FILE
    keys = [None if i % 9 == 0 else f"p{i % 250}" for i in range(count)]
    sales = pa.table({"k": keys, "q": range(count)})
    (folder / "in").mkdir()
    for number in range(FILES):
        part = sales[number * ROWS_PER_FILE : (number + 1) * ROWS_PER_FILE]
        pq.write_table(part, folder / "in" / f"{number}.parquet")

    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    source = spark.createDataFrame(products)
    relation = ss.build_relation(source, folder / "products.rel", key="k", partitions=2)
    batch = spark.createDataFrame(sales).transform(ss.enrich_with(relation, memory="8MB"))
    joined = batch.toArrow()
    twice = ss.enrich(batch, relation, how="semi", memory="8MB")

    arriving = spark.readStream.schema("k string, q long").option("maxFilesPerTrigger", 1)
    query = (
        ss.enrich(arriving.parquet(str(folder / "in")), str(folder / "products.rel"), memory="8MB")
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    register_workloads(spark)
    generated = spark.read.format("semistream-workload").options(workload="zipf", rows=1_000)
    rows = generated.load().toArrow()
    twice_rows = twice.count()
    observed = [p["observedMetrics"] for p in query.recentProgress if p.numInputRows]
    spark.stop()

    expected = nested_loop_join(sales, products, on="k")
    written = pa.concat_tables(pq.read_table(f) for f in (folder / "out").glob("*.parquet"))
    # The client's progress has values without names.
    values = [o["semistream:products"]["values"][0]["values"] for o in observed]
    metrics = [dict(zip(metric_names(), each, strict=True)) for each in values]
    answer = {
        "session": type(spark).__module__,
        "jvm_in_client": SparkContext._gateway is not None,
        "relation_rows": relation.row_count,
        "expected_rows": expected.num_rows,
        "batch_is_right": same_rows(joined, expected),
        "twice_is_right": twice_rows
        == nested_loop_join(joined, products, on="k", how="semi").num_rows,
        "stream_is_right": same_rows(written, expected),
        "stream_rows": [m["stream_rows"] for m in metrics],
        "output_rows": sum(m["output_rows"] for m in metrics),
        "workload_is_right": same_rows(
            rows, pa.Table.from_batches([make_workload("zipf").stream_rows(0, 1_000)])
        ),
        "null_key_rows": sum(m["null_key_rows"] for m in metrics),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
