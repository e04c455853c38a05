"""Delta tables that Spark's own Delta package writes and reads, against plain Python."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import semistream as ss
from tests.services.session import run_with_packages

DRIVER = Path(__file__).parent / "delta_driver.py"
FIRST = {k: f"v{k}" for k in range(60)}
CHANGED = {k: "new" if k < 10 else v for k, v in FIRST.items()}
LAST = {**CHANGED, 3: "again", 70: "first"}
del LAST[20]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("delta")


@pytest.fixture(scope="module")
def done(folder: Path) -> Any:
    """Return what the driver reports; all of it is done in one session of Spark."""
    return json.loads(run_with_packages(DRIVER, str(folder)))


def rows_of(relation: Path, snapshot: str | None = None) -> dict[int, str]:
    opened = ss.Relation.open(relation, snapshot)
    keys = pa.table({"k": range(100)})
    found = pa.Table.from_batches(ss.join(keys, opened, how="inner"))
    assert found.num_rows == opened.row_count
    return dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("step", "expected"), [("built", FIRST), ("upserted", LAST), ("refreshed", CHANGED)]
)
def test_a_relation_from_versions_and_from_the_change_feed(
    done: Any, folder: Path, step: str, expected: dict[int, str]
) -> None:
    assert rows_of(folder / "products.rel", done["snapshots"][step]) == expected


def test_a_relation_is_maintained_from_the_change_feed(done: Any, folder: Path) -> None:
    assert rows_of(folder / "maintained.rel") == LAST


@pytest.mark.parametrize("how", ["enriched", "piped"])
def test_from_one_delta_table_to_another(done: Any, how: str) -> None:
    """By a query with Spark's source and sink, and by a pipeline, which has its own."""
    first, last = done[how]
    expected = [[k, f"s{k}", LAST.get(k)] for k in range(80)]
    assert sorted(first) == expected[::2]
    assert sorted(last) == expected


def test_a_table_with_deletion_vectors_is_read_by_spark(done: Any) -> None:
    said, relation = done["vectors"]
    assert 'spark.read.format("delta")' in said
    assert "deletionVectors" in said
    assert rows_of(relation) == {k: v for k, v in LAST.items() if k != 5}
