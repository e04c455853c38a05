"""``semistream build``: what it prints, and its JSON."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from semistream.cli.main import main
from semistream.relation.rowcount import expected_rows

TABLE = pa.table({"id": list(range(500)), "name": ["x"] * 500})


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "products.parquet"
    pq.write_table(TABLE, path)
    return str(path)


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "p.rel")


def test_a_rebuild_says_what_it_replaces(
    source: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", source, place, "--key", "id", "--partitions", "3"]) == 0
    first = capsys.readouterr().out
    assert "500 rows" in first
    assert "replaces" not in first
    assert main(["build", source, place, "--key", "id"]) == 0
    second = capsys.readouterr().out
    assert "in 3 partitions (as before)" in second
    assert "it replaces snapshot" in second
    assert "seconds old, 500 rows" in second
    assert "1 old snapshot (" in second
    assert f"semistream prune {place}" in second


def test_json(source: str, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", source, place, "--key", "id", "--partitions", "3", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["row_count"] == 500
    assert first["replaced"] is None
    assert main(["build", source, place, "--key", "id", "--json"]) == 0
    second = json.loads(capsys.readouterr().out)
    assert second["replaced"]["snapshot"] == first["snapshot"]
    assert second["partition_count"] == second["replaced"]["partition_count"] == 3
    assert second["old_snapshots_bytes"] == first["snapshots"][0]["size_bytes"] > 0
    assert second["seconds"] > 0


def test_expected_rows(source: str, tmp_path: Path) -> None:
    assert expected_rows(source) == (500, True)
    folder = tmp_path / "csv"
    folder.mkdir()
    for name in ("a.csv", "b.csv"):
        (folder / name).write_text("id,name\n" + "".join(f"{i},x\n" for i in range(1_000, 2_000)))
    rows, is_exact = expected_rows(str(folder))
    assert not is_exact
    assert rows is not None
    assert abs(rows - 2_000) < 10
    assert expected_rows(str(tmp_path / "none.csv")) == (None, False)
    assert expected_rows(str(tmp_path / "none")) == (None, False)
