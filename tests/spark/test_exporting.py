"""The endpoint for Prometheus: scraped while a query runs, compared with the nested-loop oracle."""

import json
import re
import time
import urllib.request
from pathlib import Path

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

import semistream as ss
from semistream.spark.exporting import COUNTERS, GAUGES, _difference, serve_metrics
from tests.spark.pipelines import PATIENCE_SECONDS, Pipeline

ROOT = Path(__file__).parents[2]
Samples = dict[tuple[str, tuple[str, ...]], float]


def scrape(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_is_scraped_while_a_query_runs_is_what_the_oracle_counts(
    spark: SparkSession, pipeline: Pipeline, products: pa.Table, tmp_path: Path
) -> None:
    relation = ss.build_relation(products, tmp_path / "products.rel", key="k", partitions=2)
    events = tmp_path / "events.jsonl"
    with ss.log_json(events), serve_metrics(spark, port=0) as server:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", server.url)
        joined = ss.enrich(pipeline.source(), relation, memory="4MB", name="products")
        writer = joined.writeStream.format("noop").queryName("sales")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        stream = pa.concat_tables(pipeline.arrived)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = scrape(server.url)
            if found.get(("semistream_input_rows_total", ("sales",))) == stream.num_rows:
                break
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        assert query.isActive
        query.stop()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while scrape(server.url)[("semistream_query_up", ("sales",))]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    of_join = {name: v for (name, labels), v in found.items() if labels == ("products", "sales")}
    assert of_join["semistream_stream_rows_total"] == stream.num_rows
    assert (
        of_join["semistream_matched_pairs_total"] == pipeline.expected(products, "inner").num_rows
    )
    assert of_join["semistream_missed_rows_total"] == pipeline.expected(products, "anti").num_rows
    assert of_join["semistream_join_seconds_total"] > 0
    assert of_join["semistream_relation_age_seconds"] >= 0
    assert found[("semistream_query_up", ("sales",))] == 1
    assert 0 < found[("semistream_memory_bytes", ("products", "memory", "sales"))] <= 4_000_000
    batches = len(pipeline.arrived)
    assert found[("semistream_batch_seconds_count", ("sales",))] == batches
    assert found[("semistream_batch_seconds_bucket", ("+Inf", "sales"))] == batches
    with pytest.raises(OSError, match=r"refused"):
        urllib.request.urlopen(server.url, timeout=10)

    lines = [json.loads(line) for line in events.read_text().splitlines()]
    progress = [line for line in lines if line.get("event") == "progress"]
    assert sum(line["rows"] for line in progress) == stream.num_rows
    assert progress[0]["joins"]["products"]["snapshot"] == relation.snapshot
    assert [line["event"] for line in lines if line["logger"] == "semistream.query"][-1] == "ended"


def test_the_backlog_of_sources() -> None:
    assert _difference(30, 10) == 20
    kafka = {"sales": {"0": 100, "1": 50}}, {"sales": {"0": 90, "1": 45}}
    assert _difference(*kafka) == 15
    assert _difference({"sales": {"0": 5, "1": 7}}, {"sales": {"0": 5}}) == 7
    assert _difference(None, {"logOffset": 3}) is None
    assert _difference({"at": "monday"}, {"at": "sunday"}) is None


def test_the_board_and_the_guide_know_every_metric_and_no_other() -> None:
    """What the code can export, what the board draws, and what the guide explains."""
    source = (ROOT / "src" / "semistream" / "spark" / "exporting.py").read_text()
    written = set(re.findall(r'"(semistream_\w+)"', source))
    exported = written | set(COUNTERS.values()) | set(GAUGES.values())
    board = json.loads((ROOT / "docs" / "grafana.json").read_text())
    drawn = {
        re.sub(r"_(total|bucket)$", "", name)
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"semistream_\w+", target["expr"])
    }
    assert drawn <= exported
    guide = (ROOT / "docs" / "guides" / "running.md").read_text()
    explained = set(re.findall(r"`(semistream_\w+?)(?:_total)?`", guide))
    assert explained == exported
