"""A workload through a real Kafka broker: written as a topic, read by Spark, joined."""

import json
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer

import semistream as ss
from semistream.cli.main import main
from semistream.testing import same_rows
from semistream.workload.registry import make_workload
from tests.oracle import duckdb_join
from tests.services.kafka import Broker, spark_settings
from tests.services.session import run_with_packages
from tests.spark.frames import with_spark_types
from tests.spark.services import PATIENCE_SECONDS

ROWS = 20_000
DRIVER = Path(__file__).parent / "kafka_driver.py"


def test_a_topic_is_joined_by_spark_though_the_broker_is_restarted(
    jars: Path, tmp_path: Path
) -> None:
    workload = make_workload("zipf", relation_rows=1_000, payload_bytes=8)
    generate = "generate zipf --relation-rows 1000 --set payload_bytes=8"
    products = pa.Table.from_batches(workload.relation_batches())
    relation = tmp_path / "products.rel"
    ss.build_relation(products, relation, key="k", partitions=2)
    settings = json.dumps(spark_settings(jars))
    schema = "k long, quantity int, price double"
    broker = Broker(jars, tmp_path)
    arguments = [settings, broker.address, "sales", schema, str(relation), str(tmp_path)]
    with ThreadPoolExecutor(1) as pool:
        with broker.running():
            assert (
                main(f"{generate} --rows {ROWS} --out kafka://{broker.address}/sales".split()) == 0
            )
            driver = pool.submit(run_with_packages, DRIVER, *arguments)
            wait_for_output(tmp_path / "out", driver)
        assert not driver.done(), "the query has ended before the broker was stopped"
        with broker.running():
            taken = json.loads(driver.result())
    assert len(taken) > 1  # micro-batches
    assert sum(taken) == ROWS

    sales = pa.Table.from_batches([workload.stream_rows(0, ROWS)])
    expected = with_spark_types(duckdb_join(sales, products, on="k"))
    assert same_rows(pq.read_table(tmp_path / "out"), expected)


def wait_for_output(folder: Path, driver: Future[str]) -> None:
    """Return when the query has written its first micro-batch."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not list(folder.glob("_spark_metadata/0")):
        assert not driver.done(), driver.result()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_topic_of_changes_keeps_a_relation_up_to_date(
    server: str, jars: Path, tmp_path: Path
) -> None:
    products = pa.table({"k": range(50), "v": [f"v{i}" for i in range(50)]})
    relation = ss.build_relation(products, tmp_path / "products.rel", key="k", partitions=2)
    expected = dict(zip(*(c.to_pylist() for c in products.columns), strict=True))
    producer = Producer({"bootstrap.servers": server})
    rng = np.random.default_rng(5)
    settings = json.dumps(spark_settings(jars))
    for run in range(2):  # the second run goes on from the checkpoint
        for i, k in enumerate(rng.integers(0, 80, 100).tolist()):
            after = None if i % 4 == 0 else {"k": k, "v": f"run {run}, change {i}"}
            event = {"before": {"k": k}, "after": after, "op": "d" if after is None else "u"}
            producer.produce("changes", json.dumps(event), json.dumps({"k": k}))
            if after is None:
                expected.pop(k, None)
                producer.produce("changes", None, json.dumps({"k": k}))
            else:
                expected[k] = after["v"]
        producer.flush()
        about = [settings, server, "changes", relation.location, str(tmp_path)]
        driver = DRIVER.with_name("maintain_driver.py")
        assert int(run_with_packages(driver, *about)) > 1  # micro-batches
        keys = pa.table({"k": range(100)})
        now = ss.Relation.open(relation.location)
        found = pa.Table.from_batches(list(ss.join(keys, now, how="inner")))
        stored = pa.table({"k": list(expected), "v": list(expected.values())})
        assert same_rows(found, stored)
