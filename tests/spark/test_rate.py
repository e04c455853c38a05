"""`rate`: a stream that is slower than the join needs less memory."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Observation, SparkSession

import semistream as ss
from semistream.errors import OptionError
from semistream.testing import same_rows
from tests.oracle import duckdb_join

R_ROWS = 100_000


def test_a_rate_limits_the_memory(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"k": np.arange(R_ROWS), "v": np.arange(R_ROWS) * 7})
    relation = ss.build_relation(table, tmp_path, key="k", partitions=2)
    stream = spark.range(0, 40_000, 1, 2).selectExpr("id * 3 as k", "id as q")
    expected = duckdb_join(stream.toArrow(), table, on="k", how="left")
    peaks = []
    for rate in (None, 1_000):
        counted = Observation()
        options = {"memory": "2MB", "routing": "shuffle", "name": counted}
        joined = ss.enrich(stream, relation, rate=rate, **options)
        assert same_rows(joined.toArrow(), expected)
        peaks.append(counted.get["metrics"]["memory_bytes_peak"])
    assert peaks[1] < 0.8 * peaks[0]
    with pytest.raises(OptionError, match="rate is a positive number"):
        ss.enrich(stream, relation, rate=0)
    with pytest.raises(OptionError, match="for algorithm='auto'; got 5 and 'lookup'"):
        ss.enrich(stream, relation, rate=5, algorithm="lookup")
