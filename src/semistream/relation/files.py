"""A relation's rows from Parquet and CSV files, and where the value is that cannot be read.

Arrow takes the types of a CSV's columns from its first block. A value further down that does not
fit is reported by Arrow with its row and the number of its column, but without the file. What a
user needs is file, line and column, so the files are read again, one by one, up to the one that
fails. Rows are lines only while no cell has a line break in it and no line is blank: where that is
not so, the row is named instead.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import dataset

from semistream.errors import BuildError

_BLOCK_BYTES = 1 << 20
_ROW = re.compile(r"Row #(\d+): ")
_COLUMN = re.compile(r"In CSV column #(\d+): ")
_VALUE = re.compile(r"CSV conversion error to (.+?): (invalid value '.*'|.*)", re.DOTALL)


def open_path(path: str) -> pa.RecordBatchReader:
    """Return a reader over a Parquet or CSV file or folder."""
    for suffix in ("csv", "parquet"):
        if path.rstrip("/").endswith(f".{suffix}"):
            return _scan(path, suffix)
    local = Path(path)
    is_csv = local.is_dir() and any(local.rglob("*.csv"))
    return _scan(path, "csv" if is_csv else "parquet")


def _scan(path: str, file_format: str) -> pa.RecordBatchReader:
    try:
        files = dataset.dataset(path, format=file_format)
        reader = files.scanner().to_reader()
    except (OSError, pa.ArrowInvalid) as error:
        raise BuildError(
            f"{path!r} cannot be read as a {file_format} file or folder: {error}"
        ) from error
    return pa.RecordBatchReader.from_batches(reader.schema, _batches(reader, files, file_format))


def _batches(
    reader: pa.RecordBatchReader, files: dataset.Dataset, file_format: str
) -> Iterator[pa.RecordBatch]:
    try:
        yield from reader
    except (OSError, pa.ArrowInvalid) as error:
        raise _described(files, file_format, error) from error


def _described(files: dataset.Dataset, file_format: str, error: Exception) -> BuildError:
    """Return an error that says which file cannot be read, and where in it."""
    for fragment in files.get_fragments():
        try:
            for _ in fragment.scanner(schema=files.schema).to_batches():
                pass
        except (OSError, pa.ArrowInvalid) as found:
            if file_format == "csv":
                return BuildError(_csv_message(fragment, str(found)))
            return BuildError(f"{fragment.path!r} cannot be read as {file_format}: {found}")
    return BuildError(f"a {file_format} file could not be read: {error}")


def _csv_message(fragment: Any, said: str) -> str:
    row, column, value = _ROW.search(said), _COLUMN.search(said), _VALUE.search(said)
    where = repr(fragment.path)
    if row:
        where += f", {_place(fragment, int(row[1]))}"
    if column:
        where += f", column {_column_name(fragment, int(column[1]))}"
    if value is None:
        return f"{where}: {_ROW.sub('', said)}. {_parse_hint(said)}"
    return (
        f"{where}: {value[2]} where {value[1]} is expected, the type of the column in the first "
        "rows. Correct the value, or read the files with the types that they have and pass that: "
        "pyarrow.dataset.dataset(path, format='csv', schema=…)"
    )


def _parse_hint(said: str) -> str:
    if "newlines_in_values" in said:
        return (
            "For cells with line breaks pass pyarrow.dataset.dataset(path, format="
            "CsvFileFormat(ParseOptions(newlines_in_values=True))), or convert the file to Parquet"
        )
    return "Correct the file, or convert it to Parquet"


def _column_name(fragment: Any, index: int) -> str:
    try:
        return repr(fragment.physical_schema.names[index])
    except (OSError, pa.ArrowInvalid):
        return f"#{index + 1}"


def _place(fragment: Any, row: int) -> str:
    """Return the line of a row, which counts the header; or the row, where lines do not tell."""
    lines = 0
    before = b"\n"
    with fragment.filesystem.open_input_stream(fragment.path) as file:
        while lines < row and (block := file.read(_BLOCK_BYTES)):
            if b'"' in block or b"\n\n" in before + block or b"\n\r\n" in before + block:
                return f"row {row} (the header is row 1)"
            lines += block.count(b"\n")
            before = block[-2:]
    return f"line {row}"
