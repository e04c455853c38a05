"""``make cluster-demo``: a cluster on this machine, a worker that dies, a result that is proved.

A standalone master and two workers of Spark, and an S3 server of Moto's, all on 127.0.0.1. A stream
of files is enriched twice: with R on a path that both workers see, and with R in the S3 bucket. In
the middle of each query one worker is killed with all its processes, and later another one joins.
Each row of the result is compared with what it must be.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import semistream as ss
from tests.spark.services import (
    PATIENCE_SECONDS,
    SPARK_HOME,
    environment,
    free_port,
    service,
    wait_until_listening,
)

R_ROWS = 200_000
BATCHES = 12
BATCH_ROWS = 5_000
KILLED_AT, JOINS_AT = 4, 8  # micro-batches
BUCKET = "warehouse"
KEYS = {
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "nothing",
    "AWS_EC2_METADATA_DISABLED": "true",
}
_CLASS = "org.apache.spark.deploy"
_LISTEN = ("--host", "127.0.0.1", "--webui-port", "0")


class Cluster:
    """A master, its workers, and an S3 server; all of them end with the stack."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack, self._folder = stack, folder
        self._env = environment(**KEYS)
        self._workers: list[subprocess.Popen[bytes]] = []
        port = free_port()
        self._start("master", [*_LISTEN, "--port", str(port)], "master.Master", port)
        self.url = f"spark://127.0.0.1:{port}"
        self.s3 = self._start_s3()

    def _start(
        self, name: str, arguments: list[str], kind: str, port: int | None = None
    ) -> subprocess.Popen[bytes]:
        log = self._folder / f"{name}.log"
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"{_CLASS}.{kind}", *arguments]
        process = self._stack.enter_context(service(command, log, self._env))
        if port is not None:
            wait_until_listening(process, port, log)
        return process

    def _start_s3(self) -> str:
        port, log = free_port(), self._folder / "s3.log"
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        wait_until_listening(self._stack.enter_context(service(command, log, self._env)), port, log)
        address = f"http://127.0.0.1:{port}"
        boto3.client("s3", endpoint_url=address, region_name="us-east-1").create_bucket(
            Bucket=BUCKET
        )
        return f"s3://{BUCKET}/products.rel?endpoint_override={address}&region=us-east-1"

    def add_worker(self) -> None:
        """Start another worker with one core."""
        number = len(self._workers) + 1
        limits = ["--cores", "1", "--memory", "1g"]
        place = ["--work-dir", str(self._folder / f"worker-{number}")]
        arguments = [*_LISTEN, *limits, *place, self.url]
        self._workers.append(self._start(f"worker-{number}", arguments, "worker.Worker"))

    def kill_worker(self) -> None:
        """Kill the newest worker with its executor, as a power failure would."""
        os.killpg(self._workers[-1].pid, signal.SIGKILL)


def session(cluster: Cluster, folder: Path) -> SparkSession:
    """Return a session on the cluster, which waits for both workers."""
    builder = SparkSession.Builder().master(cluster.url).appName("semistream-cluster-demo")
    settings = {
        "spark.cores.max": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.local.dir": str(folder / "local"),
        "spark.locality.wait": "0s",
        "spark.log.level": "OFF",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **{f"spark.executorEnv.{name}": value for name, value in KEYS.items()},
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return ss.configure_spark(builder).getOrCreate()


def sales(number: int) -> pa.Table:
    """Return a micro-batch: Zipf 1 keys, a tenth of which R does not have, and some nulls."""
    rng = np.random.default_rng(number)
    ranks = (R_ROWS ** rng.random(BATCH_ROWS)).astype(np.int64)
    keys = ranks * 7919 % R_ROWS * 2 + (rng.random(BATCH_ROWS) < 0.1)
    rows = np.arange(BATCH_ROWS) + number * BATCH_ROWS
    return pa.table({"k": pa.array(keys, mask=rng.random(BATCH_ROWS) < 0.02), "q": rows})


class Run:
    """A query that is fed one file after the other."""

    def __init__(self, spark: SparkSession, relation: ss.Relation, folder: Path) -> None:
        self._folder = folder
        (folder / "in").mkdir(parents=True)
        reader = spark.readStream.schema("k long, q long").option("maxFilesPerTrigger", 1)
        options = {"memory": "4MB", "routing": "shuffle", "name": "sales"}
        joined = ss.enrich(reader.parquet(str(folder / "in")), relation, on="k", **options)
        writer = joined.writeStream.format("parquet").option("path", str(folder / "out"))
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        self.query: StreamingQuery = writer.start()

    def feed(self, number: int) -> None:
        """Let a file arrive, and wait for its micro-batch."""
        path = self._folder / f"{number}.parquet"
        pq.write_table(sales(number), path)
        path.rename(self._folder / "in" / path.name)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(found := [p for p in self.query.recentProgress if p.numInputRows]) <= number:
            if not self.query.isActive or time.monotonic() > deadline:
                raise SystemExit(f"the query failed: {self.query.exception()}")
            time.sleep(0.1)
        metrics = found[number].observedMetrics["sales"].metrics
        seconds = found[number].durationMs["triggerExecution"] / 1000
        hits = metrics["front_hits"] / metrics["stream_rows"]
        print(f"  micro-batch {number + 1:2}: {seconds:5.1f} s, {hits:4.0%} answered by warm rows")

    def prove(self) -> None:
        """Stop; raise unless the result has each row once, with what R has for its key."""
        self.query.stop()
        found = pq.read_table(self._folder / "out").sort_by("q")
        expected = pa.concat_tables(sales(number) for number in range(BATCHES))
        keys = expected["k"].combine_chunks()
        in_r = np.array([k is not None and k % 2 == 0 for k in keys.to_pylist()])
        values = pa.array(keys.fill_null(0).to_numpy() * 3, mask=~in_r)
        if not found.equals(expected.append_column("v", values).select(found.column_names)):
            raise SystemExit("the result is wrong")
        print(f"  proved: {len(found):,} rows, each once, {in_r.sum():,} with their row of R\n")


def main() -> None:
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "")
    os.environ.update(KEYS)
    with tempfile.TemporaryDirectory(prefix="semistream-cluster-") as name, ExitStack() as stack:
        folder = Path(name)
        print("a master, two workers and an S3 server are started on 127.0.0.1 …")
        cluster = Cluster(stack, folder)
        cluster.add_worker()
        cluster.add_worker()
        spark = session(cluster, folder)
        stack.callback(spark.stop)
        products = spark.range(0, R_ROWS, 1, 2).selectExpr("id * 2 as k", "id * 6 as v")
        for place, path in (("a shared path", str(folder / "r.rel")), ("S3", cluster.s3)):
            print(f"R on {place}: {R_ROWS:,} rows, built by the executors")
            relation = ss.build_relation(products, path, key="k", partitions=2)
            run = Run(spark, relation, folder / place.replace(" ", "-"))
            for number in range(BATCHES):
                if number == KILLED_AT:
                    print("  a worker is killed")
                    cluster.kill_worker()
                if number == JOINS_AT:
                    print("  another worker joins")
                    cluster.add_worker()
                run.feed(number)
            run.prove()


if __name__ == "__main__":
    main()
