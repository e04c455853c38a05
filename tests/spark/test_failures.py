"""An error of ours in a task reaches the user as one exception whose first line is the message."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import semistream as ss
from semistream import errors
from semistream.errors import BudgetError, BuildError, SemistreamError
from semistream.spark.failures import raised_as_ours, text_of
from tests.spark.frames import from_arrow

FIRST_LINE = re.compile(
    r"\[USER_RAISED_EXCEPTION\] BudgetError: each of the 2 tasks that run at once .*Raise memory"
)
ACTIONS: list[Callable[[DataFrame], Any]] = [
    lambda frame: frame.collect(),
    lambda frame: frame.toArrow(),
    lambda frame: frame.select("k").limit(9_000).count(),
    lambda frame: frame.write.format("noop").mode("append").save(),
]


@pytest.fixture(scope="module")
def joined(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """A join that meets a row too wide for its memory, which the driver could not know."""
    place = tmp_path_factory.mktemp("failures") / "r"
    table = pa.table({"k": range(2_000), "v": range(2_000)})
    relation = ss.build_relation(table, place, key="k", partitions=2)
    note = F.when(F.col("id") == 7_000, F.repeat(F.lit("x"), 900_000)).otherwise("x")
    stream = spark.range(8_000).select((F.col("id") % 2_000).alias("k"), note.alias("note"))
    return ss.enrich(stream, relation, algorithm="hybridjoin", memory="400KB")


@pytest.mark.parametrize("action", ACTIONS)
def test_the_message_comes_first(joined: DataFrame, action: Callable[[DataFrame], Any]) -> None:
    with pytest.raises(PySparkException) as failure:
        action(joined)
    assert FIRST_LINE.match(str(failure.value).splitlines()[0])
    assert "Traceback" not in str(failure.value)
    assert failure.value.__cause__ is None


def test_in_a_stream_it_is_in_the_first_line(
    spark: SparkSession, joined: DataFrame, tmp_path: Path
) -> None:
    place = tmp_path / "r"
    relation = ss.build_relation(pa.table({"k": range(2_000)}), place, key="k", partitions=2)
    rows = pa.table({"k": range(100), "note": ["x"] * 99 + ["x" * 900_000]})
    from_arrow(spark, rows).coalesce(1).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("k long, note string").parquet(str(tmp_path / "in"))
    query = (
        ss.enrich(stream, relation, algorithm="hybridjoin", memory="400KB")
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(PySparkException) as failure:
        query.awaitTermination()
    assert FIRST_LINE.search(str(failure.value).splitlines()[0])


def test_a_build_raises_the_error_itself(spark: SparkSession, tmp_path: Path) -> None:
    """The executor finds that its folder has gone; the driver raises that."""
    source = spark.range(100).selectExpr("id as k").coalesce(1)
    place = tmp_path / "r"

    def spoiled(batches: Any) -> Any:
        import shutil

        shutil.rmtree(place / "snapshots")
        yield from batches

    spoiling = source.mapInArrow(spoiled, source.schema)
    with pytest.raises(errors.RelationNotFoundError, match=r"^the relation .*/r' is not on this"):
        ss.build_relation(spoiling, place, key="k", partitions=1)


def test_only_errors_of_ours_are_translated() -> None:
    with pytest.raises(BuildError, match=r"^no room$") as failure, raised_as_ours():
        raise PySparkException("[USER_RAISED_EXCEPTION] BuildError: no room SQLSTATE: P0001")
    assert failure.value.__suppress_context__
    for message in ("[USER_RAISED_EXCEPTION] their own SQLSTATE: P0001", "Task failed"):
        with pytest.raises(PySparkException, match=r"their own|Task failed"), raised_as_ours():
            raise PySparkException(message)


def test_bugs_keep_their_traceback(spark: SparkSession) -> None:
    def broken(batches: Any) -> Any:
        raise ZeroDivisionError("ours by mistake")
        yield from batches

    with pytest.raises(PythonException, match="Traceback"), raised_as_ours():
        spark.range(1).mapInArrow(broken, "id long").collect()


@pytest.mark.parametrize("error", [BudgetError("a\n  b", 7), SemistreamError("c")], ids=str)
def test_the_text_is_one_line(error: SemistreamError) -> None:
    assert text_of(error) == f"{type(error).__name__}: {' '.join(str(error).split())}"
    assert "\n" not in text_of(error)
