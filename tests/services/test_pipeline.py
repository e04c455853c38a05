"""Pipelines from a real Kafka broker to PostgreSQL, MariaDB and Kafka, against plain Python."""

import json
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Message, Producer

import semistream as ss
from tests.databases.fill import Filled
from tests.services.databases import PASSWORD, mariadb, postgresql
from tests.services.kafka import spark_settings
from tests.services.session import FETCHED, quiet_settings, run_with_packages
from tests.spark.services import PATIENCE_SECONDS

DRIVER = Path(__file__).parent / "pipeline_driver.py"
ROWS = 400
PRODUCTS = 50
AVRO = {
    "type": "record",
    "name": "sale",
    "fields": [
        {"name": "product_id", "type": "long"},
        {"name": "price", "type": "double"},
        {"name": "note", "type": ["null", "string"]},
    ],
}
OUT = {
    "type": "record",
    "name": "enriched",
    "fields": [
        {"name": "product_id", "type": ["null", "long"]},
        {"name": "price", "type": ["null", "double"]},
        {"name": "name", "type": ["null", "string"]},
    ],
}


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folders = [tmp_path_factory.mktemp(name) for name in ("postgresql", "mariadb")]
    with postgresql(folders[0]) as first, mariadb(folders[1]) as second:
        yield first.url, second.url


def avro(product: int, price: float, note: str | None) -> bytes:
    """Encode a sale by the rules of Avro's specification."""
    text = b"\x00" if note is None else b"\x02" + zigzag(len(note)) + note.encode()
    return zigzag(product) + struct.pack("<d", price) + text


def avro_out(i: int) -> bytes:
    """Encode an enriched sale by the schema `OUT`, in which every value may be null."""
    text = name(i)
    encoded = b"\x00" if text is None else b"\x02" + zigzag(len(text)) + text.encode()
    return b"\x02" + zigzag(i % 60) + b"\x02" + struct.pack("<d", i / 4) + encoded


def zigzag(number: int) -> bytes:
    number = number << 1 if number >= 0 else (-number << 1) - 1
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def produce(address: str) -> None:
    """Send sales as JSON, as CSV and as Avro; every ninth message is broken."""
    producer = Producer({"bootstrap.servers": address})
    for i in range(ROWS):
        sale = {"product_id": i % 60, "price": i / 4, "n": i}
        value = "{broken" if i % 9 == 4 else json.dumps(sale)
        producer.produce("in-json", value, key=f"k{i}")
        value = b"\xff\xff" if i % 9 == 4 else avro(i % 60, i / 4, f"n{i}" if i % 2 else None)
        producer.produce("in-csv", "many,1.5" if i % 9 == 4 else f"{i % 60},{i / 4}")
        producer.produce("in-avro", value, key=f"k{i}", headers=[("trace", f"t{i}".encode())])
    producer.flush()


def consume(address: str, topic: str, count: int) -> list[Message]:
    group = {"bootstrap.servers": address, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**group, "enable.auto.commit": False})
    consumer.subscribe([topic])
    found: list[Message] = []
    try:
        while len(found) < count:
            batch = consumer.consume(count, PATIENCE_SECONDS / 4)
            assert batch, f"{len(found)} of {count} messages of {topic}"
            found += batch
        assert not consumer.consume(1, 0.5)  # and no more
    finally:
        consumer.close()
    return found


def rows_of(url: str, table: str) -> list[tuple[Any, ...]]:
    with closing(Filled(url)._connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        return [tuple(row) for row in cursor.fetchall()]


def test_kafka_to_databases_and_kafka(
    server: str,
    jars: Path,
    databases: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.setenv("MYSQL_PWD", PASSWORD)
    monkeypatch.setenv("CLIENT", "from-the-environment")
    produce(server)
    products = pa.table({"id": range(PRODUCTS), "name": [f"p{i}" for i in range(PRODUCTS)]})
    ss.build_relation(products, tmp_path / "products.rel", key="id", partitions=2)
    common = {
        "configuration": {
            "spark.master": "local[2]",
            **quiet_settings(str(tmp_path)),
            **FETCHED,
            **spark_settings(jars),
        },
        "relations": {"products": str(tmp_path / "products.rel")},
        "steps": [{"enrich": {"relation": "products", "on": {"product_id": "id"}}}],
        "trigger": "available now",
    }
    kafka = {"format": "kafka", "servers": server}
    limit = {"limit": "20%"}
    to_databases = {
        "name": "json",
        "storage": str(tmp_path / "json"),
        "source": {
            **kafka,
            "topic": "in-json",
            "max_rows_per_trigger": 150,
            "options": {"kafka.client.id": "${env:CLIENT}"},
        },
        "parse": {"format": "json", "schema": "product_id long, price double, n int"},
        "sink": {"format": "sql", "url": databases[0], "table": "sales"},
        "dead_letters": {"sink": {"format": "sql", "url": databases[1], "table": "dead"}, **limit},
        **common,
    }
    to_kafka = {
        "name": "avro",
        "storage": str(tmp_path / "avro"),
        "source": {**kafka, "topic": "in-avro"},
        "parse": {"format": "avro", "schema": AVRO},
        "sink": {**kafka, "topic": "out"},
        "dead_letters": {"sink": {**kafka, "topic": "dead"}, **limit},
        **common,
    }
    to_avro = {
        "name": "csv",
        "storage": str(tmp_path / "csv"),
        "source": {**kafka, "topic": "in-csv"},
        "parse": {"format": "csv", "schema": "product_id long, price double"},
        "sink": {**kafka, "topic": "out-avro", "value": "avro", "schema": OUT, "key": "product_id"},
        "dead_letters": limit,
        **common,
    }
    path = tmp_path / "pipelines.json"
    started = [to_databases, to_kafka, to_avro, to_databases]
    path.write_text(json.dumps(started))
    batches = run_with_packages(DRIVER, str(path)).split()
    assert int(batches[0]) > 1
    assert int(batches[3]) == 0  # the second start goes on from the offsets in the checkpoint

    fine = [i for i in range(ROWS) if i % 9 != 4]
    sales = {(i % 60, i / 4, i, name(i)) for i in fine}
    written = rows_of(databases[0], "sales")
    assert len(written) == len(fine)
    assert set(written) == sales
    dead = rows_of(databases[1], "dead")
    assert len(dead) == ROWS - len(fine)
    assert {row[3] for row in dead} == {"{broken"}
    assert all("not JSON" in row[0] and row[1].startswith("in-json:") for row in dead)
    assert len({row[1] for row in dead}) == len(dead)  # each with its own offset

    out = consume(server, "out", len(fine))
    for message in out:
        i = int(message.key()[1:])
        note = f"n{i}" if i % 2 else None
        expected = {"product_id": i % 60, "price": i / 4, "note": note, "name": name(i)}
        assert json.loads(message.value()) == expected
        assert message.headers() == [("trace", f"t{i}".encode())]
    assert len({message.key() for message in out}) == len(fine)
    letters = [json.loads(m.value()) for m in consume(server, "dead", ROWS - len(fine))]
    assert all("not AVRO" in x["reason"] and x["source"].startswith("in-avro:") for x in letters)

    found = [(m.key(), m.value()) for m in consume(server, "out-avro", len(fine))]
    assert sorted(found) == sorted((str(i % 60).encode(), avro_out(i)) for i in fine)
    letters = pq.read_table(tmp_path / "csv" / "dead-letters").to_pylist()
    assert len(letters) == ROWS - len(fine)
    assert all(x["value"] == "many,1.5" and "not CSV" in x["reason"] for x in letters)


def name(i: int) -> str | None:
    return f"p{i % 60}" if i % 60 < PRODUCTS else None
