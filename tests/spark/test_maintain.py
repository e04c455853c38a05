"""Streams of changes are folded into a relation, exactly once.

The messages have the columns of Spark's Kafka source but come from files; `tests/services` has a
test with a real broker.
"""

import base64
import json
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import semistream as ss
from semistream.errors import ColumnError, OptionError
from semistream.relation import change
from semistream.spark.maintaining import Fold
from semistream.testing import same_rows
from tests.arriving import arriving

MESSAGE = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("offset", pa.int64())])
PRODUCTS = pa.table(
    {"k": [1, 2, 3, 4], "name": ["a", "b", "c", None], "price": [1.5, 2.5, None, 4.5]}
)
Change = tuple[int, dict[str, Any] | None]


class Topic:
    """Messages in files, one micro-batch each, and the relation they are folded into."""

    def __init__(self, spark: SparkSession, folder: Path, products: pa.Table = PRODUCTS) -> None:
        self.spark, self.folder, self.offset, self.files = spark, folder, 0, 0
        self.relation = ss.build_relation(products, folder / "r.rel", key="k", partitions=2)
        (folder / "in").mkdir()

    def send(self, messages: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        offsets = range(self.offset, self.offset + len(messages))
        keys, values = zip(*messages, strict=True)
        table = pa.table([keys, values, offsets], schema=MESSAGE)
        path = self.folder / "in" / f"{self.files:03d}.parquet"
        with arriving(path, self.files) as unfinished:
            pq.write_table(table, unfinished)
        self.offset, self.files = self.offset + len(messages), self.files + 1

    def stream(self) -> DataFrame:
        reader = self.spark.readStream.schema("key binary, value binary, offset long")
        return reader.option("maxFilesPerTrigger", 1).parquet(str(self.folder / "in"))

    def maintain(self, **options: Any) -> None:
        query = ss.maintain(
            self.stream(),
            self.relation,
            checkpoint=self.folder / "checkpoint",
            trigger="available now",
            **options,
        )
        query.awaitTermination(120)

    def rows(self) -> pa.Table:
        return _rows(self.folder / "r.rel")


def _rows(location: Path) -> pa.Table:
    """Return all rows of a relation, by a join with its keys."""
    relation = ss.Relation.open(location)
    keys = pa.table({"k": pa.array(range(-50, 200), pa.int64())})
    return pa.Table.from_batches(list(ss.join(keys, relation, how="inner", memory="20MB")))


def _debezium(op: str, before: Any, after: Any, wrapped: bool = False) -> bytes:
    event = {"before": before, "after": after, "op": op, "ts_ms": 1}
    return json.dumps({"schema": {}, "payload": event} if wrapped else event).encode()


@pytest.fixture
def topic(spark: SparkSession, tmp_path: Path) -> Topic:
    return Topic(spark, tmp_path)


def test_debezium(topic: Topic) -> None:
    key = b'{"k": 1}'
    topic.send(
        [
            (key, _debezium("u", {"k": 1}, {"k": 1, "name": "A", "price": 9.5})),
            (b'{"k": 2}', _debezium("d", {"k": 2, "name": "b", "price": 2.5}, None)),
            (b'{"k": 2}', None),  # the tombstone after a deletion
            (b'{"k": 7}', _debezium("c", None, {"k": 7, "name": None, "price": 7}, wrapped=True)),
            (b'{"k": 8}', _debezium("c", None, {"k": 8, "name": "x", "price": 8})),
        ]
    )
    topic.send(
        [
            (b'{"k": 8}', _debezium("u", None, {"k": 8, "name": "y", "price": 8})),
            (b'{"k": 8}', _debezium("d", {"k": 8}, None)),
            (b'{"k": 3}', _debezium("d", {"k": 3}, None)),
            (b'{"k": 3}', _debezium("c", None, {"k": 3, "name": "again", "price": None})),
        ]
    )
    topic.maintain()
    expected = pa.table(
        {"k": [1, 3, 4, 7], "name": ["A", "again", None, None], "price": [9.5, None, 4.5, 7.0]}
    )
    assert same_rows(topic.rows(), expected)
    assert len(topic.relation.snapshots()) == 3


def test_key_and_value(topic: Topic) -> None:
    topic.send(
        [(b"1", b'{"name": "A", "price": 1}'), (b"2", None), (b'{"k": 5}', b'{"name": "e"}')]
    )
    topic.maintain(format="key-value")
    expected = pa.table(
        {"k": [1, 3, 4, 5], "name": ["A", "c", None, "e"], "price": [1.0, None, 4.5, None]}
    )
    assert same_rows(topic.rows(), expected)


def maintain_rows(topic: Topic, changes: pa.Table, deletes: str) -> None:
    """Fold rows that have their place in the column `version` into the relation."""
    pq.write_table(changes, topic.folder / "in" / "0.parquet")
    schema = "k long, name string, price double, gone boolean, version long"
    stream = topic.spark.readStream.schema(schema).parquet(str(topic.folder / "in"))
    about = {"checkpoint": topic.folder / "c", "trigger": "available now", "format": "rows"}
    query = ss.maintain(stream, topic.relation, deletes=deletes, order="version", **about)
    query.awaitTermination(120)


def test_rows(spark: SparkSession, tmp_path: Path) -> None:
    topic = Topic(spark, tmp_path)
    changes = pa.table(
        {
            "k": [1, 1, 2, 9],
            "name": ["old", "new", None, "n"],
            "price": [0.0, 1.0, None, 9.0],
            "gone": [False, False, True, None],
            "version": [1, 2, 1, 1],
        }
    )
    maintain_rows(topic, changes, deletes="gone")
    expected = pa.table(
        {"k": [1, 3, 4, 9], "name": ["new", "c", None, "n"], "price": [1.0, None, 4.5, 9.0]}
    )
    assert same_rows(topic.rows(), expected)
    with pytest.raises(ColumnError, match="no column 'dead'"):
        maintain_rows(topic, changes, deletes="dead")


def test_of_changes_with_the_same_order_one_counts(spark: SparkSession, tmp_path: Path) -> None:
    """A deletion, or else one of them; one without an order is older than all others."""
    topic = Topic(spark, tmp_path)
    changes = pa.table(
        {
            "k": [1, 1, 2, 2, 7, 7, 8, 8],
            "name": ["a", "b", "a", None, "older", "newer", "x", "y"],
            "price": [1.0, 2.0, 1.0, None, 1.0, 2.0, 1.0, 1.0],
            "gone": [False, False, False, True, False, False, False, False],
            "version": [5, 5, 5, 5, None, 0, None, None],
        }
    )
    maintain_rows(topic, changes, deletes="gone")
    found = topic.rows().select(["k", "name"]).to_pylist()
    assert [row["name"] in "ab" for row in found if row["k"] == 1] == [True]
    assert not [row for row in found if row["k"] == 2]
    assert [row["name"] for row in found if row["k"] == 7] == ["newer"]
    # Nothing says which of these is the last: as without an order, both are rows of R.
    assert sorted(row["name"] for row in found if row["k"] == 8) == ["x", "y"]


def test_every_type_of_a_message(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table(
        {
            "k": pa.array([1], pa.int64()),
            "day": pa.array([date(2024, 2, 29)]),
            "at": pa.array([datetime(2024, 2, 29, 1, 2, 3, 4)], pa.timestamp("us")),
            "seen": pa.array([datetime(2024, 2, 29, 1, 2, 3, 4)], pa.timestamp("us", "UTC")),
            "cost": pa.array([Decimal("12.30")], pa.decimal128(10, 2)),
            "image": pa.array([b"\x00\xff"]),
            "is_new": pa.array([True]),
        }
    )
    topic = Topic(spark, tmp_path, rows)
    micros = 1_709_168_523_000_004
    after = {"day": 19782, "at": micros, "seen": "2024-02-29T01:02:03.000004Z", "cost": "12.30"}
    after |= {"image": base64.b64encode(b"\x00\xff").decode(), "is_new": True}
    topic.send([(b"{}", _debezium("c", None, after | {"k": 2}))])
    topic.maintain()
    expected = pa.concat_tables([rows, rows.set_column(0, "k", pa.array([2], pa.int64()))])
    assert same_rows(topic.rows(), expected)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (_debezium("c", None, {"k": 5, "price": "dear"}), "'price' cannot be read as double"),
        (_debezium("c", None, {"name": "x"}), "no value of the key column 'k'"),
        (_debezium("?", None, {"k": 5}), "has no op"),
        (b"not json", "has no op"),
        (_debezium("u", None, {"k": 1, "name": "__debezium_unavailable_value"}), "'name' cannot"),
    ],
)
def test_a_message_that_does_not_fit_ends_the_query(
    topic: Topic, message: bytes, problem: str
) -> None:
    topic.send([(b"{}", message)])
    with pytest.raises(StreamingQueryException, match=problem):
        topic.maintain()
    assert same_rows(topic.rows(), PRODUCTS)


def test_a_replayed_micro_batch_is_applied_once(topic: Topic) -> None:
    topic.send([(b"1", b'{"name": "first"}')])
    topic.maintain(format="key-value")
    # As if Spark had died after the snapshot was made, before it noted that the batch was done.
    (topic.folder / "checkpoint" / "commits" / "0").unlink()
    (topic.folder / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    changed = topic.relation.upsert(pa.table({"k": [1], "name": ["by hand"], "price": [0.5]}))
    changed = changed.compact()
    topic.send([(b"2", b'{"name": "second"}')])
    topic.maintain(format="key-value")
    names = dict(
        zip(*(c.to_pylist() for c in topic.rows().select(["k", "name"]).columns), strict=True)
    )
    assert names[1] == "by hand"  # the replayed batch did not change it back
    assert names[2] == "second"
    (batches,) = [dict(ss.Relation.open(topic.relation.location).manifest.folded)]
    assert list(batches.values()) == [1]


def test_a_refresh_keeps_what_was_folded(topic: Topic) -> None:
    topic.send([(b"1", b'{"name": "first"}')])
    topic.maintain(format="key-value")
    before = ss.Relation.open(topic.relation.location).manifest.folded
    assert topic.relation.refresh(PRODUCTS).manifest.folded == before != ()


def test_another_writer_may_be_faster(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, tries = change.upsert, []

    def upsert(current: Any, *about: Any, **options: Any) -> Any:
        tries.append(current.snapshot)
        if len(tries) == 1:
            topic.relation.upsert(pa.table({"k": [3], "name": ["other"], "price": [3.0]}))
        return slow(current, *about, **options)

    fold = Fold(topic.relation.location, "", 0)
    fold._stream = "s"
    monkeypatch.setattr(change, "upsert", upsert)
    rows = pa.table({"k": [1], "name": ["A"], "price": [1.0], "__semistream_deleted": [False]})
    fold.apply(rows, 0)
    assert len(tries) == 3  # the other's own, one that lost, one that won
    names = dict(
        zip(*(c.to_pylist() for c in topic.rows().select(["k", "name"]).columns), strict=True)
    )
    assert (names[1], names[3]) == ("A", "other")


def test_changes_are_compacted_now_and_then(spark: SparkSession, tmp_path: Path) -> None:
    many = pa.table({"k": range(2_000), "name": ["x"] * 2_000, "price": [0.5] * 2_000})
    topic = Topic(spark, tmp_path, many)
    for i in range(4):
        topic.send([(b"1", json.dumps({"name": f"n{i}"}).encode())])
    topic.maintain(format="key-value", compact_every=2)
    origins = [entry.origin.operation for entry in topic.relation.history()]
    assert origins == ["build", "upsert", "upsert", "compact", "upsert", "upsert", "compact"]


def test_wrong_arguments(topic: Topic, spark: SparkSession) -> None:
    about = {"checkpoint": topic.folder / "c"}
    with pytest.raises(OptionError, match="Did you mean 'debezium'"):
        ss.maintain(topic.stream(), topic.relation, format="debezum", **about)
    with pytest.raises(OptionError, match="streaming DataFrame"):
        ss.maintain(spark.range(1), topic.relation, **about)
    with pytest.raises(ColumnError, match="Kafka source, but 'offset' is missing"):
        ss.maintain(topic.stream().drop("offset"), topic.relation, **about)
    with pytest.raises(OptionError, match="only for format='rows'"):
        ss.maintain(topic.stream(), topic.relation, deletes="gone", **about)
