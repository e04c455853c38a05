"""Files with a value that cannot be read: the error says in which file, line and column."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.dataset import Dataset, dataset

import semistream as ss
from semistream.errors import BuildError

# Arrow takes a column's type from the first megabyte: what comes later must fit it.
ROWS = 200_000
NUMBERS = "".join(f"{i},{i % 7}\n" for i in range(ROWS))


def failure(source: Path | Dataset, tmp_path: Path) -> str:
    """Return what a build from this source says, after checking that it leaves nothing behind."""
    with pytest.raises(BuildError) as error:
        ss.build_relation(source, tmp_path / "r.rel", key="id")
    assert not list(tmp_path.glob("r.rel/snapshots/*"))
    return str(error.value)


def test_a_value_of_another_type(tmp_path: Path) -> None:
    source = tmp_path / "prices.csv"
    source.write_text(f"id,price\n{NUMBERS}7,abc\n8,9\n")
    said = failure(source, tmp_path)
    where = f"'{source}', line {ROWS + 2}, column 'price': invalid value 'abc' where int64"
    assert said.startswith(where)
    assert "schema=" in said


def test_a_value_that_does_not_fit_the_type_that_a_user_gave(tmp_path: Path) -> None:
    source = tmp_path / "prices.csv"
    source.write_text("id,price\n1,2\n2,x\n")
    schema = pa.schema([("id", pa.int64()), ("price", pa.int64())])
    said = failure(dataset(source, format="csv", schema=schema), tmp_path)
    assert said.startswith(f"'{source}', line 3, column 'price': invalid value 'x' where int64")


def test_the_file_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "prices"
    folder.mkdir()
    for name in ("a", "b", "d"):
        (folder / f"{name}.csv").write_text("id,price\n1,2\n")
    (folder / "c.csv").write_text("price,id\n1,2\n3,x\n")  # in another order
    said = failure(folder, tmp_path)
    assert said.startswith(f"'{folder}/c.csv', line 3, column 'id': invalid value 'x' where int64")


def test_the_file_of_a_folder_of_large_files(tmp_path: Path) -> None:
    folder = tmp_path / "prices"
    folder.mkdir()
    (folder / "a.csv").write_text(f"id,price\n{NUMBERS}")
    (folder / "b.csv").write_text(f"id,price\n{NUMBERS}1.5,2\n")
    said = failure(folder, tmp_path)
    assert said.startswith(f"'{folder}/b.csv', line {ROWS + 2}, column 'id': invalid value '1.5'")


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    source = tmp_path / "names.csv"
    source.write_bytes(b"id,name\n" + b"1,abcdef\n" * ROWS + b"2,\xff\xfe\n")
    said = failure(source, tmp_path)
    assert said.startswith(f"'{source}', line {ROWS + 2}, column 'name': invalid UTF8 data")


@pytest.mark.parametrize("late", [False, True], ids=["first block", "later"])
def test_a_line_with_too_few_values(tmp_path: Path, late: bool) -> None:
    source = tmp_path / "prices.csv"
    source.write_text(f"id,price\n{NUMBERS if late else ''}7\n8,9\n")
    said = failure(source, tmp_path)
    line = ROWS + 2 if late else 2
    assert said.startswith(f"'{source}', line {line}: CSV parse error: Expected 2 columns, got 1")


@pytest.mark.parametrize(
    "odd", ['"a ""quoted"" cell"', '"a cell\nof two lines"', "x\n", "x\r\n\r"], ids=ascii
)
def test_where_lines_are_not_rows_the_row_is_named(tmp_path: Path, odd: str) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.csv").write_text("id,note\n1,x\n")
    (folder / "b.csv").write_bytes(f"id,note\n1,{odd}\n2,y\nbad,z\n".encode())
    said = failure(folder, tmp_path)
    where = f"'{folder}/b.csv', row 4 (the header is row 1), column 'id'"
    assert said.startswith(f"{where}: invalid value 'bad' where int64 is expected")


def test_cells_with_line_breaks_in_a_large_file(tmp_path: Path) -> None:
    source = tmp_path / "notes.csv"
    source.write_text("id,note\n" + '1,"two\nlines, and a comma"\n' * ROWS)
    said = failure(source, tmp_path)
    assert said.startswith(f"'{source}'")
    assert "newlines_in_values=True" in said


def test_an_empty_file(tmp_path: Path) -> None:
    source = tmp_path / "empty.csv"
    source.write_text("")
    assert str(source) in failure(source, tmp_path)


def test_a_parquet_file_that_is_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "rows.parquet"
    folder.mkdir()
    table = pa.table({"id": range(10_000), "name": [f"{i} name" for i in range(10_000)]})
    for name in ("a", "b"):
        pq.write_table(table, folder / f"{name}.parquet")
    content = bytearray((folder / "b.parquet").read_bytes())
    content[4:2_000] = b"\xff" * 1_996
    (folder / "b.parquet").write_bytes(content)
    assert failure(folder, tmp_path).startswith(f"'{folder}/b.parquet' cannot be read as parquet")
