"""The metrics of a join: the table of the guide, and what a query reports."""

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import semistream as ss
from semistream.advice.choice import CHOICES
from semistream.joins.telemetry import Telemetry
from semistream.spark import metrics
from semistream.spark.metrics import JoinClock, metric_names
from semistream.spark.routing import Given, Route
from tests.spark.pipelines import Pipeline, observed

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "operating.md"


def test_the_guide_explains_every_metric_and_no_other() -> None:
    section = GUIDE.read_text().partition("## Metrics")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*`) \| ([^|]+) \|([^|]*)\|$", section, re.MULTILINE)
    explained = [name for names, _, _ in rows for name in re.findall(r"`(\w+)`", names)]
    assert sorted(explained) == sorted(metric_names())
    assert set(Telemetry.names()) - {"shed_rows"} < set(explained)  # that has metrics of its own
    assert all(meaning.strip() for _, meaning, _ in rows)


def test_what_auto_chose_and_predicted_is_reported(
    pipeline: Pipeline, products: pa.Table, tmp_path: Path
) -> None:
    # With so little memory R does not fit, so that the model has to choose.
    wide = products.append_column("wide", pa.array(["x" * 2_000] * products.num_rows))
    relation = ss.build_relation(wide, tmp_path / "wide.rel", key="k", partitions=2)
    joined = ss.enrich(pipeline.source(), relation, memory="700KB", columns=["v", "wide"])
    for each in observed(pipeline.run(joined), "semistream:wide"):
        assert each["snapshot"] == relation.snapshot
        assert each["routing"] == "local"
        assert set(each["algorithms"].split(",")) <= set(CHOICES)
        assert each["predicted_us"] > 0
        assert each["join_us"] > 0
        parts = ["window", "disk", "table", "buffer"]
        assert all(0 < each[f"{p}_bytes_peak"] <= each["memory_bytes_peak"] for p in parts)


def test_metrics_are_added_up_over_the_tasks_of_a_join(spark: SparkSession) -> None:
    first, second = Telemetry(), Telemetry()
    first.stream_rows, first.memory_bytes_peak, first.algorithms = 10, 7, 0b101
    second.stream_rows, second.memory_bytes_peak, second.algorithms = 20, 3, 0b010
    snapshot = [5, 20260102, 3, 255]
    other = [9] * (len(Telemetry.names()) + len(snapshot))  # a join of the same tasks
    rows = [[*other, *each.values(), *snapshot] for each in (first, second, Telemetry())]
    frame = spark.createDataFrame([(row,) for row in [*rows, None]], "numbers array<long>")
    frame = frame.withColumnRenamed("numbers", metrics.TELEMETRY_COLUMN)
    width = len(other)
    route = Route(True, 2, Given(1, None), "")
    found = frame.agg(metrics._metrics(route, width, 2 * width)).collect()[0].metrics.asDict()
    assert tuple(found) == metric_names()
    assert found["stream_rows"] == 30
    assert found["memory_bytes_peak"] == 10  # two of 7 could run at once, but there was no more
    assert found["algorithms"] == "resident,inlj,binlj"
    assert found["snapshot"] == "20260102T000000000003-000000ff"
    assert found["relation_age_s"] == 5
    none = frame.filter("false").agg(metrics._metrics(route, width, 2 * width)).collect()
    assert none[0].metrics is None


def test_the_clock_leaves_out_what_the_join_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def rows() -> Iterator[int]:
        nonlocal now
        for i in range(3):
            now += 100.0  # Spark
            yield i

    def join(batches: Iterator[int]) -> Iterator[int]:
        nonlocal now
        for batch in batches:
            now += 1.0  # the join
            yield batch

    monkeypatch.setattr(metrics, "perf_counter", lambda: now)
    clock = JoinClock()
    joined = []
    for batch in clock.joined(join(clock.rows(rows()))):
        joined.append(batch)
        now += 10.0  # the sink
    assert joined == [0, 1, 2]
    assert clock.join_us == 3_000_000
