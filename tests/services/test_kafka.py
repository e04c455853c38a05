"""A workload through a real Kafka broker: written as a topic, read by Spark, joined."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.cli.main import main
from semistream.testing import same_rows
from semistream.workload.registry import make_workload
from tests.oracle import duckdb_join
from tests.services.kafka import broker, fetch_jars
from tests.spark.frames import with_spark_types
from tests.spark.services import environment, run_driver

ROWS = 20_000
DRIVER = Path(__file__).parent / "kafka_driver.py"


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jars")
    fetch_jars(folder)
    return folder


@pytest.fixture(scope="module")
def server(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a broker without topics."""
    with broker(jars, tmp_path_factory.mktemp("kafka")) as address:
        yield address


def test_a_topic_is_joined_by_spark(server: str, jars: Path, tmp_path: Path) -> None:
    workload = make_workload("zipf", relation_rows=1_000, payload_bytes=8)
    generate = "generate zipf --relation-rows 1000 --set payload_bytes=8"
    assert main(f"{generate} --rows {ROWS} --out kafka://{server}/sales".split()) == 0

    products = pa.Table.from_batches(workload.relation_batches())
    relation = tmp_path / "products.rel"
    ss.build_relation(products, relation, key="k", partitions=2)
    source = ",".join(str(jar) for jar in (jars / "source").iterdir())
    schema = "k long, quantity int, price double"
    arguments = [source, server, "sales", schema, str(relation), str(tmp_path)]
    taken = json.loads(run_driver(str(DRIVER), *arguments, env=environment()))
    assert len(taken) > 1  # micro-batches
    assert sum(taken) == ROWS

    sales = pa.Table.from_batches([workload.stream_rows(0, ROWS)])
    expected = with_spark_types(duckdb_join(sales, products, on="k"))
    assert same_rows(pq.read_table(tmp_path / "out"), expected)
