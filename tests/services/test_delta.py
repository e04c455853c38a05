"""A Delta table that Spark itself has written: a relation from one version, then its changes."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import semistream as ss
from semistream.testing import same_rows
from tests.services.ivy import fetch
from tests.spark.services import environment, run_driver

HERE = Path(__file__).parent


def test_a_version_and_the_changes_since(tmp_path: Path) -> None:
    fetch(HERE / "delta-jars.xml", tmp_path)
    jars = ",".join(str(jar) for jar in (tmp_path / "delta").iterdir())
    driver = str(HERE / "delta_driver.py")
    printed = run_driver(driver, jars, str(tmp_path), env=environment())
    assert printed.split() == ["100", "90"]
    keys = pa.table({"k": range(100)})
    relation = ss.Relation.open(tmp_path / "r.rel")
    found = pa.Table.from_batches(list(ss.join(keys, relation, how="inner")))
    assert same_rows(found, pq.read_table(tmp_path / "expected"))
