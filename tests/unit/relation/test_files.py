"""Sources that are paths: what is wrong with a path is said before anything is read or written."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.errors import BuildError

ROWS = pa.table({"id": [1, 2], "name": ["a", "b"]})


@pytest.mark.parametrize("name", ["none.csv", "none.parquet", "none", "folder/none.csv"])
def test_a_source_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(BuildError, match=f"{name}' does not exist; correct the path$"):
        ss.build_relation(tmp_path / name, tmp_path / "r", key="id")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_two_formats(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "day=1").mkdir(parents=True)
    pq.write_table(ROWS, folder / "day=1" / "a.parquet")
    (folder / "b.csv").write_text("id,name\n3,c\n")
    (folder / "c.csv").write_text("id,name\n4,d\n")
    with pytest.raises(BuildError, match="has 2 CSV and 1 Parquet files, but a source has one"):
        ss.build_relation(folder, tmp_path / "r", key="id")
    (folder / "day=1" / "a.parquet").unlink()
    assert ss.build_relation(folder, tmp_path / "r", key="id").row_count == 2


def test_a_folder_without_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "_SUCCESS").touch()
    with pytest.raises(BuildError, match="in' has no files"):
        ss.build_relation(tmp_path / "in", tmp_path / "r", key="id")


def test_files_that_are_no_data_do_not_count(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "part-0")  # as some programs name them
    (tmp_path / "_old.csv").write_text("id\n")
    (tmp_path / ".hidden.csv").write_text("id\n")
    assert ss.build_relation(tmp_path, tmp_path / "r", key="id").row_count == 2


def test_by_a_uri(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id,name\n3,c\n")
    source = (tmp_path / "in").as_uri()
    assert ss.build_relation(source, tmp_path / "r", key="id").row_count == 1
    with pytest.raises(BuildError, match="does not exist"):
        ss.build_relation(f"{source}/none", tmp_path / "s", key="id")
