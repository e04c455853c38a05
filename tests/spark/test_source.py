"""Workloads as a Spark source: the rows of the workload, each once, at the requested rate.

What a reader answers is tested without Spark, with a clock that stands where it is put.
"""

import json
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import semistream as ss
from semistream.errors import OptionError
from semistream.spark import register_workloads, workload_relation
from semistream.spark.source import Rows, RowsReader, StreamReader, WorkloadSource, split
from semistream.spark.source_options import SourceOptions, parse_options
from semistream.testing import same_rows
from semistream.workload.arrivals import Bursty, Intermittent, Steady
from semistream.workload.base import Workload
from semistream.workload.registry import WORKLOADS, make_workload
from tests.oracle import duckdb_join
from tests.spark.frames import with_spark_types

PATIENCE_SECONDS = 120
ROWS = 70_000  # more than a chunk
ROWS_PER_BATCH = 30_000
ZIPF = {"workload": "zipf", "relation_rows": "500", "exponent": "0.8", "payload_bytes": "8"}
STREAM_SCHEMA = WorkloadSource(dict(ZIPF)).schema()


def zipf() -> Workload:
    return make_workload("zipf", relation_rows=500, exponent=0.8, payload_bytes=8)


def options(**more: Any) -> SourceOptions:
    return parse_options(ZIPF | {name: str(value) for name, value in more.items()}, 2)


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def workloads(spark: SparkSession) -> SparkSession:
    register_workloads(spark)
    return spark


def stream(spark: SparkSession, **more: Any) -> DataFrame:
    return spark.readStream.format("semistream-workload").options(**ZIPF, **more).load()


def start(frame: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(**trigger).start(str(folder / "out"), "parquet")


def run(frame: DataFrame, folder: Path) -> StreamingQuery:
    query = start(frame, folder, availableNow=True)
    assert query.awaitTermination(PATIENCE_SECONDS)
    return query


def written(spark: SparkSession, folder: Path) -> pa.Table:
    return spark.read.parquet(str(folder / "out")).toArrow()


def table(first: int, count: int) -> pa.Table:
    return pa.Table.from_batches([zipf().stream_rows(first, count)])


def offsets(folder: Path) -> list[dict[str, int]]:
    """Return the end of every micro-batch, from the checkpoint."""
    logs = sorted((folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda p: int(p.name))
    return [json.loads(log.read_text().splitlines()[-1]) for log in logs]


# On Spark


def test_a_table_of_the_first_rows(workloads: SparkSession) -> None:
    frame = workloads.read.format("semistream-workload").options(**ZIPF, rows=ROWS, partitions=2)
    read = frame.load()
    assert read.dtypes == [("k", "bigint"), ("quantity", "int"), ("price", "double")]
    assert read.toArrow().to_pydict() == table(0, ROWS).to_pydict()  # and in order
    assert read.rdd.getNumPartitions() == 2


def test_the_relation(workloads: SparkSession) -> None:
    given = {k: v for k, v in ZIPF.items() if k != "workload"}
    relation = workload_relation(workloads, "zipf", **given)
    expected = pa.Table.from_batches(zipf().relation_batches())
    assert same_rows(relation.toArrow(), with_spark_types(expected))


def test_a_failure_and_a_restart_lose_and_double_nothing(
    workloads: SparkSession, tmp_path: Path
) -> None:
    """The second micro-batch fails when some of its rows have been written."""
    repaired, middle = tmp_path / "repaired", table(ROWS_PER_BATCH + 5_000, 1)["price"][0].as_py()

    def crash(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if middle in batch["price"].to_pylist() and not repaired.exists():
                raise RuntimeError("a crash in the middle")

    source = stream(workloads, rows=ROWS, rowsPerBatch=ROWS_PER_BATCH, partitions=1)
    query = start(source.mapInArrow(crash, source.schema), tmp_path, availableNow=True)
    with pytest.raises(PySparkException, match="a crash in the middle"):
        query.awaitTermination(PATIENCE_SECONDS)
    assert same_rows(written(workloads, tmp_path), table(0, ROWS_PER_BATCH))

    # From now on a micro-batch may take more, but the one that failed stays what it was.
    repaired.touch()
    source = stream(workloads, rows=ROWS, rowsPerBatch=ROWS, partitions=1)
    again = run(source.mapInArrow(crash, source.schema), tmp_path)
    taken = [p.numInputRows for p in again.recentProgress if p.numInputRows]
    assert taken == [ROWS_PER_BATCH, ROWS - 2 * ROWS_PER_BATCH]
    assert same_rows(written(workloads, tmp_path), table(0, ROWS))
    assert len({o["began_ms"] for o in offsets(tmp_path)}) == 1


def test_rows_that_arrive_while_the_query_is_down_wait_for_it(
    workloads: SparkSession, tmp_path: Path
) -> None:
    """All rows come within a second of the query's beginning, and most of them while it is down."""
    arriving = {"rows": ROWS, "rate": ROWS, "rowsPerBatch": ROWS_PER_BATCH, "partitions": 1}
    run(stream(workloads, **arriving), tmp_path)
    began_s = offsets(tmp_path)[0]["began_ms"] / 1000
    time.sleep(max(began_s + 1.1 - time.time(), 0))
    run(stream(workloads, **arriving), tmp_path)
    ends = offsets(tmp_path)
    assert {o["began_ms"] / 1000 for o in ends} == {began_s}
    assert ends[-1]["row"] == ROWS
    assert all(0 <= b["row"] - a["row"] <= ROWS_PER_BATCH for a, b in pairwise(ends))
    assert same_rows(written(workloads, tmp_path), table(0, ROWS))


def test_from_the_source_through_the_join(workloads: SparkSession, tmp_path: Path) -> None:
    products = pa.Table.from_batches(zipf().relation_batches())
    relation = ss.build_relation(products, tmp_path / "r", key="k", partitions=2)
    sales = stream(workloads, rows=ROWS, rowsPerBatch=ROWS_PER_BATCH)
    run(ss.enrich(sales, relation, memory="8MB", algorithm="meshjoin"), tmp_path)
    expected = duckdb_join(table(0, ROWS), products, on="k")
    assert same_rows(written(workloads, tmp_path), with_spark_types(expected))


def test_what_is_wrong_is_said_by_spark(workloads: SparkSession) -> None:
    with pytest.raises(PySparkException, match="Did you mean 'rowsPerBatch'"):
        stream(workloads, rowsPerBach=10)
    with pytest.raises(PySparkException, match="the stream has no end"):
        workloads.read.format("semistream-workload").options(**ZIPF).load().collect()


# Without Spark


def test_steady_rows_come_as_they_are_due() -> None:
    clock = Clock()
    reader = StreamReader(options(rate=100, rows=450), STREAM_SCHEMA, clock)
    at, limit = reader.initialOffset(), ReadMaxRows(200)
    seen = []
    for seconds in (0, 1.5, 0, -1, 0, 2, 0, 60, 0):  # clocks are put back, too
        clock.now += seconds
        at = reader.latestOffset(at, limit)
        seen.append(at["row"])
    assert seen == [0, 150, 150, 150, 150, 250, 250, 450, 450]
    assert reader.reportLatestOffset() == at


def test_a_restarted_reader_keeps_the_beginning_and_the_limit() -> None:
    clock = Clock()
    settings = options(rate=100, rowsPerBatch=40)
    first = StreamReader(settings, STREAM_SCHEMA, clock)
    clock.now += 1
    at = json.loads(json.dumps(first.latestOffset(first.initialOffset(), ReadMaxRows(1000))))
    assert at["row"] == 100

    clock.now += 1
    second = StreamReader(settings, STREAM_SCHEMA, clock)
    limit = second.getDefaultReadLimit()
    assert limit == ReadMaxRows(40)
    after = second.latestOffset(at, limit)
    assert after == {"row": 140, "began_ms": at["began_ms"]}
    assert second.reportLatestOffset() == {"row": 200, "began_ms": at["began_ms"]}
    assert second.latestOffset(after, ReadAllAvailable())["row"] == 200


def test_available_now_lets_no_more_rows_come() -> None:
    clock = Clock()
    reader = StreamReader(options(rate=100), STREAM_SCHEMA, clock)
    start_at = reader.initialOffset()
    clock.now += 1
    reader.prepareForTriggerAvailableNow()
    clock.now += 60
    at = reader.latestOffset(start_at, ReadMaxRows(80))
    assert at["row"] == 80
    at = reader.latestOffset(at, ReadMaxRows(80))
    assert at["row"] == 100
    assert reader.latestOffset(at, ReadMaxRows(80)) == at


def test_all_rows_of_an_endless_stream_are_refused() -> None:
    reader = StreamReader(options(), STREAM_SCHEMA, Clock())
    with pytest.raises(OptionError, match="needs an end"):
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with pytest.raises(OptionError, match=r"Trigger\.AvailableNow needs an end"):
        reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(reader.initialOffset(), ReadMaxRows(7))["row"] == 7
    assert reader.reportLatestOffset() is None


def test_a_stream_that_ends(tmp_path: Path) -> None:
    given = {"workload": "tpch-orders", "scale": "0.001", "folder": str(tmp_path)}
    workload = make_workload("tpch-orders", scale=0.001, folder=str(tmp_path))
    settings = parse_options(given | {"rate": "1000"}, 2)
    schema = WorkloadSource(given).schema()
    clock = Clock()
    reader = StreamReader(settings, schema, clock)
    at = reader.initialOffset()
    clock.now += 60
    at = reader.latestOffset(at, ReadMaxRows(10_000))
    assert at["row"] == settings.rows == 1_500
    assert reader.latestOffset(at, ReadMaxRows(10_000)) == at

    at_once = RowsReader(parse_options(given | {"rows": "10_000"}, 2), schema)
    batches = [b for p in at_once.partitions() for b in at_once.read(p)]
    expected = pa.Table.from_batches([workload.stream_rows(0, 1_500)])
    assert pa.Table.from_batches(batches).to_pydict() == expected.to_pydict()


@pytest.mark.parametrize("name", [n for n in WORKLOADS if not n.startswith("tpch")])
@pytest.mark.parametrize("side", ["stream", "relation"])
def test_every_workload_is_handed_over_in_the_types_that_spark_takes(name: str, side: str) -> None:
    source = WorkloadSource({"workload": name, "table": side, "rows": "10"})
    schema = source.schema()
    reader = source.reader(schema)
    first = next(reader.read(reader.partitions()[0]))
    assert first.schema == to_arrow_schema(schema, timezone="UTC")


@pytest.mark.parametrize(
    ("first", "end", "partitions", "counts"),
    [(0, 0, 3, []), (5, 6, 3, [1]), (5, 8, 3, [1, 1, 1]), (7, 17, 3, [3, 3, 4])],
)
def test_a_range_is_cut_evenly(first: int, end: int, partitions: int, counts: list[int]) -> None:
    cut = split(first, end, partitions)
    assert [p.count for p in cut] == counts
    assert [r for p in cut for r in range(p.first, p.first + p.count)] == list(range(first, end))
    assert all(isinstance(p, Rows) for p in cut)


def test_options_of_arrivals() -> None:
    assert options().arrivals is None
    assert options(rate=5).arrivals == Steady(5)
    assert options(rate=5, arrivals="steady").arrivals == Steady(5)
    assert options(rate=5, arrivals="bursty").arrivals == Bursty(5)
    bursty = options(rate=5, arrivals="bursty", seed=3, step_s=0.5)
    assert bursty.arrivals == Bursty(5, seed=3, step_s=0.5)
    intermittent = options(rate=5, arrivals="intermittent", off_s=2)
    assert intermittent.arrivals == Intermittent(5, on_s=10, off_s=2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"workload": "zip"}, "Did you mean 'zipf'"),
        ({"partitons": 3}, "Did you mean 'partitions'"),
        ({"relation_row": 3}, "Did you mean 'relation_rows'"),
        ({"table": "relations"}, "Did you mean 'relation'"),
        ({"rows": "many"}, "option rows must be a whole number of at least 1; got 'many'"),
        ({"rowsPerBatch": 0}, "option rowsPerBatch must be a whole number of at least 1"),
        ({"rate": "fast"}, "option rate must be a number"),
        ({"rate": 0}, "rate must be greater than 0"),
        ({"arrivals": "bursty"}, "arrivals need a rate"),
        ({"rate": 5, "arrivals": "burst"}, "Did you mean 'bursty'"),
        ({"rate": 5, "on_s": 2, "off_s": 1}, "steady arrivals take the rate; got on_s, off_s"),
        ({"rate": 5, "arrivals": "bursty", "on_s": 2}, "take the rate and step_s; got on_s"),
    ],
)
def test_wrong_options(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        options(**wrong)


def test_a_workload_must_be_named() -> None:
    with pytest.raises(OptionError, match="which workload"):
        parse_options({}, 2)


def test_a_relation_is_no_stream() -> None:
    source = WorkloadSource(ZIPF | {"table": "relation"})
    with pytest.raises(OptionError, match="a relation is no stream"):
        source.streamReader(source.schema())


def test_an_older_spark_is_told_so(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "semistream.spark.source")
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    with pytest.raises(OptionError, match=r"need PySpark 4\.2 or newer; this is 4"):
        register_workloads(spark)
