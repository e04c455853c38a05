"""Conditions, versions and ordered output on Spark, against Spark's own join with the same text."""

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import semistream as ss
from semistream.errors import OptionError
from tests.spark.frames import SPARK_HOW, from_arrow, same_frames


@pytest.fixture(scope="module")
def tables() -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(2)
    start = datetime(2024, 1, 1)
    days = [start + timedelta(days=int(d)) for d in rng.integers(0, 300, 400)]
    relation = pa.table(
        {
            "k": [f"k{i % 130}" for i in range(400)],
            "least": pa.array(rng.integers(0, 100, 400), mask=rng.random(400) < 0.1),
            "begins": [start + timedelta(days=100 * (i // 130)) for i in range(400)],
            "ends": [start + timedelta(days=100 * (i // 130) + 90) for i in range(400)],
            "word": [f"w{i}" for i in range(400)],
        }
    )
    stream = pa.table(
        {
            "k": [None if i % 17 == 0 else f"k{i}" for i in rng.integers(0, 150, 400)],
            "amount": rng.integers(0, 100, 400),
            "at": days,
            "n": np.arange(400),
        }
    )
    return stream, relation


@pytest.fixture(scope="module")
def relation(
    tables: tuple[pa.Table, pa.Table], tmp_path_factory: pytest.TempPathFactory
) -> ss.Relation:
    place = tmp_path_factory.mktemp("options") / "r.rel"
    validity = ("begins", "ends")
    return ss.build_relation(
        tables[1], place, key="k", partitions=3, page_size=2_000, validity=validity
    )


VALID = "s.at >= r.begins AND s.at < r.ends"
CASES = [
    ("left", "shuffle", {"condition": "s.amount >= r.least AND r.word LIKE '%1'"}),
    ("anti", "local", {"condition": "s.amount >= r.least AND r.word LIKE '%1'"}),
    ("left", "shuffle", {"valid_at": "at"}),
    ("semi", "local", {"valid_at": "at", "ordered": "stream"}),
    ("left", "auto", {"on": [], "condition": "s.amount = r.least AND s.at < r.begins"}),
    ("anti", "auto", {"on": [], "condition": "s.amount = r.least AND s.at < r.begins"}),
]


@pytest.mark.parametrize(("how", "routing", "options"), CASES)
def test_as_spark(
    spark: SparkSession,
    tables: tuple[pa.Table, pa.Table],
    relation: ss.Relation,
    how: str,
    routing: str,
    options: dict[str, object],
) -> None:
    stream, right = (from_arrow(spark, table) for table in tables)
    stream = stream.repartition(3)
    text = str(options.get("condition", VALID))
    same = F.expr(text if options.get("on") == [] else f"s.k = r.k AND {text}")
    added = ["r.least", "r.word"] if how == "left" else []
    joined = stream.alias("s").join(right.alias("r"), same, SPARK_HOW[how])
    expected = joined.select("s.k", "s.amount", "s.at", "s.n", *added)
    actual = ss.enrich(
        stream,
        relation,
        how=how,
        columns=["least", "word"],
        memory="20MB",
        routing=routing,
        **options,
    )
    assert same_frames(actual, expected)
    assert expected.count()


def test_the_order_of_a_partition(
    spark: SparkSession, tables: tuple[pa.Table, pa.Table], relation: ss.Relation
) -> None:
    stream = from_arrow(spark, tables[0]).coalesce(1).sortWithinPartitions("n")
    options = {"memory": "20MB", "valid_at": "at", "ordered": "stream"}
    rows = ss.enrich(stream, relation, columns=["word"], **options).collect()
    assert [row.n for row in rows] == list(range(400))


def test_what_cannot_be(
    spark: SparkSession, tables: tuple[pa.Table, pa.Table], relation: ss.Relation, tmp_path: Path
) -> None:
    stream = from_arrow(spark, tables[0])
    with pytest.raises(OptionError, match="does not keep the order"):
        ss.enrich(stream, relation, ordered="stream", routing="shuffle")
    with pytest.raises(OptionError, match="every partition"):
        ss.enrich(stream, relation, on=[], condition="amount = least", routing="shuffle")
    with pytest.raises(OptionError, match="cannot be read"):
        ss.enrich(stream, relation, condition="amount = = least")
