"""Hot keys do not make stragglers: their rows are spread over all tasks."""

from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import semistream as ss
from semistream.advice.feasible import check_share
from semistream.errors import BudgetError
from semistream.spark.parallelism import Cores
from semistream.spark.routing import Given, choose_route
from semistream.spark.spreading import hot_codes
from semistream.spec import resolve
from semistream.testing import same_rows
from tests.oracle import duckdb_join

TASKS = 4
R_ROWS = 20_000
STREAM_ROWS = 20_000


def zipf_keys(seed: int) -> np.ndarray:
    """Ranks by Zipf 1.2, scattered over the keys; rank 0 has about a fifth of the stream."""
    weights = 1 / np.arange(1, R_ROWS + 1) ** 1.2
    ranks = np.searchsorted(
        np.cumsum(weights) / weights.sum(), np.random.default_rng(seed).random(STREAM_ROWS)
    )
    return np.random.default_rng(1).permutation(R_ROWS)[ranks] * 2


@pytest.fixture(scope="module")
def table() -> pa.Table:
    keys = np.arange(R_ROWS) * 2
    return pa.table({"k": keys, "t": [f"key-{k}" for k in keys], "v": keys * 7})


def sales(spark: SparkSession, seed: int) -> DataFrame:
    rows = pa.table({"k": zipf_keys(seed), "q": np.arange(STREAM_ROWS)})
    frame = spark.createDataFrame(rows)
    missing = F.col("k") + F.when(F.col("q") % 40 == 1, 1).otherwise(0)
    keyed = frame.withColumn("k", F.when(F.col("q") % 50 == 0, None).otherwise(missing))
    return keyed.withColumn("m", F.create_map(F.lit("a"), F.col("q")))


@pytest.fixture(scope="module")
def relation(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    sample = pa.table({"k": zipf_keys(9)})
    return ss.build_relation(
        table,
        tmp_path_factory.mktemp("hot"),
        key="k",
        partitions=TASKS,
        page_size=4_000,
        order="frequency",
        sample=sample,
    )


def rows_per_task(frame: DataFrame) -> list[int]:
    counted = frame.groupBy(F.spark_partition_id().alias("task")).count().collect()
    return sorted(row["count"] for row in counted)


def is_spread(joined: DataFrame) -> bool:
    return "xxhash64" in str(joined._jdf.queryExecution().analyzed())


def test_the_longest_task_is_not_much_longer_than_the_others(
    spark: SparkSession, relation: ss.Relation, table: pa.Table, tmp_path: Path
) -> None:
    stream = sales(spark, 3).drop("m")
    joined = ss.enrich(stream, relation, on="k", routing="shuffle", columns=["v"])
    spread = rows_per_task(joined)
    assert len(spread) == TASKS
    assert max(spread) <= 1.5 * median(spread)
    plain = ss.build_relation(table, tmp_path, key="k", partitions=TASKS)
    skewed = rows_per_task(ss.enrich(stream, plain, on="k", routing="shuffle", columns=["v"]))
    assert max(skewed) > 1.5 * median(skewed), "otherwise there is nothing to spread"


@pytest.mark.parametrize("how", ["left", "inner", "anti"])
def test_spread_rows_are_joined_as_all_others(
    spark: SparkSession, relation: ss.Relation, table: pa.Table, how: str
) -> None:
    stream = sales(spark, 4)
    joined = ss.enrich(stream, relation, on="k", how=how, routing="shuffle", memory="4MB")
    assert is_spread(joined)
    expected = duckdb_join(stream.drop("m").toArrow(), table, on="k", how=how)
    assert same_rows(joined.drop("m").toArrow(), expected)


def test_a_key_that_is_hashed(spark: SparkSession, table: pa.Table, tmp_path: Path) -> None:
    sample = pa.table({"t": [f"key-{k}" for k in zipf_keys(9)]})
    options = {"order": "frequency", "sample": sample, "page_size": 4_000}
    relation = ss.build_relation(table, tmp_path, key="t", partitions=TASKS, **options)
    stream = sales(spark, 5).select(
        F.concat(F.lit("key-"), F.col("k").cast("string")).alias("t"), "q"
    )
    joined = ss.enrich(stream, relation, on="t", routing="shuffle", columns=["v"])
    counts = rows_per_task(joined)
    assert max(counts) <= 1.5 * median(counts)
    expected = duckdb_join(stream.toArrow(), table.select(["t", "v"]), on="t", how="left")
    assert same_rows(joined.toArrow(), expected)


def test_hot_codes_are_those_of_the_first_hot_pages(relation: ss.Relation, table: pa.Table) -> None:
    codes = hot_codes(relation)
    frequent, counts = np.unique(zipf_keys(9), return_counts=True)
    hottest = frequent[np.argsort(-counts)][:20]
    assert set(hottest.tolist()) <= set(codes)
    assert len(codes) < 2_000


def test_nothing_is_spread_where_all_of_r_would_be_scanned_or_memory_is_short(
    relation: ss.Relation,
) -> None:
    spec = resolve(relation, pa.schema([("k", pa.int64()), ("q", pa.int64())]), on="k")
    with pytest.raises(BudgetError) as refusal:
        check_share("lookup", relation, spec, 1_000, whole=True)
    least = refusal.value.least_bytes
    assert least is not None

    def spread(algorithm: str, share_bytes: int) -> int:
        given = Given(None, share_bytes)
        route = choose_route("shuffle", algorithm, relation, spec, given, Cores(TASKS))
        assert route.joins_all == bool(route.spread)
        return len(route.spread)

    assert spread("lookup", least) == len(hot_codes(relation)) > 0
    assert spread("lookup", least - 1) == 0
    assert spread("meshjoin", 4_000_000) == 0
    assert spread("hybridjoin", 4_000_000) > 0
