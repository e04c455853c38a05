"""`latency`: micro-batches of half of it, with the memory that they need, or one warning."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Observation, SparkSession

import semistream as ss
from semistream.advice.calibration.sparkcosts import common_costs
from semistream.errors import OptionError
from semistream.spark import prediction
from semistream.testing import same_rows
from tests.oracle import duckdb_join

R_ROWS = 200_000
RATE = 20_000.0


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pa.table({"k": np.arange(R_ROWS), "v": np.arange(R_ROWS) * 7})


@pytest.fixture(scope="module")
def relation(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    place: Path = tmp_path_factory.mktemp("latency") / "r.rel"
    return ss.build_relation(table, place, key="k", partitions=2)


@pytest.fixture
def stream(spark: SparkSession) -> DataFrame:
    return spark.range(0, 40_000, 1, 2).selectExpr("id * 7 as k", "id as q")


def spark_takes(monkeypatch: pytest.MonkeyPatch, batch_s: float) -> None:
    """Let Spark's own part of a micro-batch be this, and nothing for each row."""
    nothing = dict.fromkeys(("task_s", "row_s", "value_s", "stage_s", "shuffle_s"), 0.0)
    known = common_costs()
    costs = replace(known.costs, batch_s=batch_s, **nothing)
    monkeypatch.setattr(prediction, "known_costs", lambda: replace(known, costs=costs))


def test_the_less_time_is_left_the_more_memory_is_used(
    stream: DataFrame,
    relation: ss.Relation,
    table: pa.Table,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A micro-batch of 20,000 rows may take 1 s; all rows are joined, whatever Spark leaves."""
    expected = duckdb_join(stream.toArrow(), table, on="k", how="left")
    peaks = []
    for own_s in (0.1, 0.99, 5.0):
        spark_takes(monkeypatch, own_s)
        counted = Observation()
        options = {"memory": "2MB", "routing": "shuffle", "name": counted}
        with caplog.at_level(logging.WARNING, logger="semistream"):
            joined = ss.enrich(stream, relation, rate=RATE, latency="2s", **options)
            assert same_rows(joined.toArrow(), expected)
        peaks.append(counted.get["metrics"]["memory_bytes_peak"])
    assert peaks[0] < 0.9 * peaks[1]
    assert peaks[1] < 0.9 * peaks[2], "all of it, if none is enough"
    (said,) = [record.message for record in caplog.records]
    assert said.startswith("latency=2.0 s is not held: a micro-batch of 20,000 rows may take half")
    assert "5.0 s of it for Spark's own part. Use more cores, request fewer columns" in said
    assert "raise memory" not in said


def test_a_join_that_is_too_slow(
    stream: DataFrame,
    relation: ss.Relation,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Spark leaves a microsecond: then memory may help."""
    spark_takes(monkeypatch, 1 - 1e-6)
    with caplog.at_level(logging.WARNING, logger="semistream"):
        ss.enrich(stream, relation, rate=RATE, latency="2s", memory="2MB")
    (said,) = [record.message for record in caplog.records]
    assert "raise memory, allow a longer latency" in said


def test_what_is_wrong_with_a_latency(stream: DataFrame, relation: ss.Relation) -> None:
    with pytest.raises(OptionError, match=r"latency needs rate, .* got rate=None and 'auto'"):
        ss.enrich(stream, relation, latency="2s")
    with pytest.raises(OptionError, match="algorithm='auto'; got rate=5 and 'lookup'"):
        ss.enrich(stream, relation, latency="2s", rate=5, algorithm="lookup")


def test_a_relation_without_rows(stream: DataFrame, tmp_path: Path, table: pa.Table) -> None:
    empty = ss.build_relation(table[:0], tmp_path / "empty.rel", key="k", partitions=2)
    joined = ss.enrich(stream, empty, rate=RATE, latency="2s").toArrow()
    assert joined.num_rows == joined["v"].null_count == 40_000
