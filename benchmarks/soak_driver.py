"""The query of the soak, run as a program: a bursty, drifting stream through `enrich`, for ever.

Arguments: a folder, rows per second, rows of R. Its metrics are served on the port in ``port``.
"""

import sys
from pathlib import Path

import semistream as ss
from semistream.spark import register_workloads, workload_relation
from semistream.spark.session import local_session

DRIFT = {"every_rows": 20_000, "share": 0.1, "exponent": 1.0}


def main(folder: Path, rate: int, relation_rows: int) -> None:
    spark = local_session("soak", folder, memory="1g")
    place = str(folder / "r.rel")
    about = {"relation_rows": relation_rows, **DRIFT}
    relation = workload_relation(spark, "drifting", **about)
    ss.build_relation(relation, place, key="k", partitions=4)
    server = ss.serve_metrics(spark, port=0)
    register_workloads(spark)
    stream = spark.readStream.format("semistream-workload").option("workload", "drifting")
    stream = stream.options(**about).option("rate", rate).option("arrivals", "bursty")
    stream = stream.option("rowsPerBatch", 6 * rate)  # so that a burst becomes a backlog
    # With a shuffle hot rows stay warm in shared memory, also of a relation that is in the cache.
    joined = ss.enrich(stream.load(), place, on="k", memory="8%", routing="shuffle", name="r")
    writer = joined.writeStream.format("noop").queryName("soak")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(processingTime="2 seconds").start()
    (folder / "port").write_text(str(server.port))
    query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
