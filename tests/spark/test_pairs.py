"""Every pair of options of `enrich`, and of a step in a pipeline file: planned, or refused."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import semistream as ss
from semistream.errors import OptionError, PipelineError
from semistream.pipeline.model import Pipeline
from semistream.spark.pipeline.hidden import REASON
from semistream.spark.pipeline.stepping import Steps
from tests.contract.test_pairs import OTHERS, REFUSED, merged
from tests.spark.frames import from_arrow

SALES = pa.table({"k": [1], "quantity": [3], "sold_on": pa.array([19_800], pa.date32()), "n": [0]})


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    days = pa.array([19_700, 19_750], pa.date32())
    until = pa.array([19_750, None], pa.date32())
    table = pa.table({"k": [1, 1], "v": [1, 2], "least": [0, 5], "since": days, "until": until})
    place = tmp_path_factory.mktemp("pairs") / "r.rel"
    return ss.build_relation(table, place, key="k", partitions=1, validity=("since", "until"))


def test_all_pairs(spark: SparkSession, relation: ss.Relation, tmp_path: Path) -> None:
    """The same are refused as without Spark, for the same reasons, when the query is planned."""
    stream = from_arrow(spark, SALES)
    for pair in OTHERS:
        options = {"columns": ["v"], **merged(pair)}
        if pair not in REFUSED:
            assert "v" in ss.enrich(stream, relation, memory="20MB", **options).columns, pair
            continue
        with pytest.raises(OptionError, match=REFUSED[pair]):
            ss.enrich(stream, relation, memory="20MB", **options)
        with pytest.raises(PipelineError, match=REFUSED[pair]) as raised:
            planned(pipeline_of(relation, tmp_path, options), stream)
        assert str(raised.value).startswith("steps[1].enrich: ")


def pipeline_of(relation: ss.Relation, folder: Path, options: dict[str, Any]) -> Pipeline:
    """Return a pipeline with one step; in a file a way to shed is a name."""
    if "shed" in options:
        options = {**options, "shed": "uniform"}
    return Pipeline(
        name="pairs",
        storage=str(folder / "storage"),
        source={"format": "delta", "path": str(folder / "in")},
        steps=[{"enrich": {"relation": relation.location, **options}}],
        sink={"format": "parquet", "path": str(folder / "out")},
    )


def planned(pipeline: Pipeline, stream: Any) -> Any:
    """Return the rows after all steps; in a pipeline they have a column for what is wrong."""
    rows = stream.withColumn(REASON, F.lit(None).cast("string"))
    return Steps(pipeline).apply(rows, pipeline.steps)
