"""Shedding on Spark: kept rows are joined, shed rows known, and a repetition sheds the same."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import semistream as ss
from semistream.errors import OptionError
from semistream.joins.shedding import POLICIES
from semistream.testing import nested_loop_join, same_rows
from tests.spark.frames import from_arrow

ROWS = 3_000


@pytest.fixture(scope="module")
def stream() -> pa.Table:
    rng = np.random.default_rng(4)
    keys = np.minimum(rng.zipf(1.3, ROWS), 150)
    nulls = rng.random(ROWS) < 0.05
    return pa.table({"k": pa.array(keys, mask=nulls), "a.n": np.arange(ROWS)})


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    table = pa.table({"k": np.arange(100), "v": [f"v{i}" for i in range(100)]})
    return ss.build_relation(
        table, tmp_path_factory.mktemp("shed") / "r.rel", key="k", partitions=2
    )


@pytest.mark.parametrize(("policy", "routing"), [("uniform", "shuffle"), ("keep-rare", "local")])
def test_kept_and_shed_rows(
    spark: SparkSession, stream: pa.Table, relation: ss.Relation, policy: str, routing: str
) -> None:
    frame = from_arrow(spark, stream)
    shed = ss.shedding(policy, capacity=300, seed=3, aside=True)
    with pytest.warns(UserWarning, match="1,000 rows/s arrive and 300 can be served: 70%"):
        enriched = ss.enrich(frame, relation, shed=shed, rate=1_000, routing=routing, memory="8MB")
    out, again = enriched.toArrow(), enriched.toArrow()
    assert same_rows(out, again)
    is_kept = pc.greater(out["weight"], 0)
    kept, gone = out.filter(is_kept), out.filter(pc.invert(is_kept))
    assert sorted(kept["a.n"].to_pylist() + gone["a.n"].to_pylist()) == list(range(ROWS))
    assert gone["v"].null_count == gone.num_rows > 0
    rows = stream.filter(pc.is_in(stream["a.n"], kept["a.n"]))
    table = pa.table({"k": np.arange(100), "v": [f"v{i}" for i in range(100)]})
    assert same_rows(kept.drop_columns("weight"), nested_loop_join(rows, table, on="k"))
    weights = kept["weight"].to_numpy()
    assert kept.num_rows / ROWS == pytest.approx(0.3, abs=0.06)
    deviation = np.sqrt((weights * (weights - 1)).sum())
    assert abs(weights.sum() - ROWS) < 4 * deviation


@pytest.mark.parametrize("policy", POLICIES)
def test_a_micro_batch_that_is_repeated_sheds_the_same_rows(
    spark: SparkSession, stream: pa.Table, relation: ss.Relation, tmp_path: Path, policy: str
) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()
    plain = stream.rename_columns(["k", "n"])
    pq.write_table(plain[:1_500], source / "a.parquet")
    pq.write_table(plain.slice(1_500), source / "b.parquet")
    seen: list[tuple[int, list[int]]] = []

    def note(batch: DataFrame, number: int) -> None:
        seen.append((number, sorted(row.n for row in batch.select("n").collect())))

    def run() -> dict[str, int]:
        files = spark.readStream.schema("k long, n long").option("maxFilesPerTrigger", 1)
        shed = ss.shedding(policy, capacity=500)
        with pytest.warns(UserWarning, match="rows are shed"):
            enriched = ss.enrich(
                files.parquet(str(source)), relation, shed=shed, rate=1_000, name="join"
            )
        query = (
            enriched.writeStream.foreachBatch(note)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        last = query.recentProgress[-1]
        return {k: int(v) for k, v in last.observedMetrics["join:shed"].asDict().items()}

    counted = run()
    (_, first), (_, second) = seen
    assert counted == {"stream_rows": 1_500, "shed_rows": 1_500 - len(second)}
    # The last micro-batch was not committed, as if the query had died.
    for commit in (checkpoint / "commits").iterdir():
        if commit.name.strip(".").startswith("1"):
            commit.unlink()
    run()
    assert seen[2] == (1, second)
    # Other micro-batches keep other rows: those of equal content would be shed for ever otherwise.
    assert [n - 1_500 for n in second] != first
    shutil.rmtree(checkpoint)


def test_what_is_served_is_predicted(
    spark: SparkSession, stream: pa.Table, relation: ss.Relation
) -> None:
    frame = from_arrow(spark, stream)
    kept = ss.enrich(frame, relation, shed="uniform", rate=5)  # no row is shed, and no warning
    assert kept.count() == ROWS
    with pytest.warns(UserWarning, match="1,000,000,000 rows/s arrive and"):
        ss.enrich(frame, relation, shed="uniform", rate=1e9)
    with pytest.raises(OptionError, match="no prediction"):
        ss.enrich(frame, relation, on=[], condition="s.k > r.k", shed="uniform", rate=1)
    with pytest.raises(OptionError, match="would run in the workers"):
        ss.enrich(frame, relation, shed=ss.shedding("uniform", aside=print), rate=1)


def test_rows_with_a_reason_are_not_shed(spark: SparkSession, relation: ss.Relation) -> None:
    """They are not joined, and leave as they came, with the weight 1."""
    reasons = [None if i % 3 else "no price" for i in range(1_200)]
    rows = pa.table({"k": np.arange(1_200) % 90, "n": np.arange(1_200), "why": reasons})
    shed = ss.shedding("keep-rare", capacity=1)
    with pytest.warns(UserWarning, match="rows are shed"):
        out = ss.enrich(from_arrow(spark, rows), relation, shed=shed, rate=4, reason="why")
    found = out.toArrow()
    aside = found.filter(pc.is_valid(found["why"]))
    assert sorted(aside["n"].to_pylist()) == list(range(0, 1_200, 3))
    assert set(aside["weight"].to_pylist()) == {1.0}
    assert aside["v"].null_count == len(aside)
    kept = found.filter(pc.is_null(found["why"]))
    assert 100 < len(kept) < 400
    assert kept["v"].to_pylist() == [f"v{k}" for k in kept["k"].to_pylist()]


def test_a_stream_with_columns_that_spark_cannot_hash(
    spark: SparkSession, relation: ss.Relation
) -> None:
    """Maps inside of other types have no hash either."""
    rows = spark.range(600).selectExpr("id % 100 as k", "id", "array(map('a', id)) as maps")
    shed = ss.shedding("uniform", capacity=1)
    with pytest.warns(UserWarning, match="rows are shed"):
        enriched = ss.enrich(rows, relation, shed=shed, rate=2)
    out = enriched.toArrow()
    assert 200 < len(out) < 400
    assert all(dict(row["maps"][0]) == {"a": row["id"]} for row in out.to_pylist())
