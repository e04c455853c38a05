"""Tables of real servers that Spark reads through JDBC: built, changed and refreshed from."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

import semistream as ss
from tests.databases.fill import Filled
from tests.services.databases import PASSWORD, USER, mariadb, postgresql
from tests.services.session import run_with_packages

DRIVER = Path(__file__).parent / "jdbc_driver.py"
KINDS = ("postgresql", "mariadb")
FIRST = {k: f"v{k}" for k in range(100)}
CHANGES = [(3, "new", 0, 9), (5, "late", 0, 6), (20, "", 1, 8), (120, "more", 0, 10)]
CHANGED = {**FIRST, 3: "new", 120: "more"}
del CHANGED[20]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jdbc")


@pytest.fixture(scope="module")
def done(folder: Path) -> Iterator[Any]:
    """Return what the driver reports of both servers; it reads them in one session of Spark."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSWORD", PASSWORD)
        asked = {}
        for kind, run in zip(KINDS, (postgresql, mariadb), strict=True):
            (folder / kind).mkdir()
            url = stack.enter_context(run(folder / kind)).url
            fill(Filled(url))
            place = urlsplit(url)
            jdbc = f"jdbc:{kind}://127.0.0.1:{place.port}{place.path}"
            asked[kind] = (jdbc, USER, str(folder / f"{kind}.rel"))
        yield json.loads(run_with_packages(DRIVER, str(folder), json.dumps(asked)))


def fill(database: Filled) -> None:
    keys, values = zip(*FIRST.items(), strict=True)
    database.put(pa.table({"k": keys, "v": values}), "products", ["k"])
    names = ("k", "v", "gone", "updated")
    columns = dict(zip(names, map(list, zip(*CHANGES, strict=True)), strict=True))
    database.put(pa.table(columns), "changes", ["k"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_relation_is_built_by_ranges_and_changed_by_a_query(
    done: Any, folder: Path, kind: str
) -> None:
    assert done[kind]["parts"] == 4, "ranges of the key are read at once"
    expected = (FIRST, CHANGED, FIRST)
    for snapshot, rows in zip(done[kind]["snapshots"], expected, strict=True):
        relation = ss.Relation.open(folder / f"{kind}.rel", snapshot)
        found = pa.Table.from_batches(ss.join(pa.table({"k": range(150)}), relation, how="inner"))
        assert dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True)) == rows
        assert relation.row_count == len(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_the_password_is_in_no_plan_and_in_no_file_of_the_relation(
    done: Any, folder: Path, kind: str
) -> None:
    assert "JDBC" in done[kind]["plan"]
    assert PASSWORD not in done[kind]["plan"]
    files = [path for path in (folder / f"{kind}.rel").rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not [path for path in files if PASSWORD.encode() in path.read_bytes()]
