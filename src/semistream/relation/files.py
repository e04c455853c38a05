"""A relation's rows from Parquet and CSV files, and the place of a value that cannot be read.

Arrow takes the types of a CSV's columns from its first block. A value further down that does not
fit is reported by Arrow with its row and the number of its column, but without the file. A user
needs file, line and column, so the files are read again, one by one, up to the one that fails. Rows
are lines only if no cell has a line break in it and no line is blank; otherwise the row is named
instead.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import dataset, fs

from semistream.errors import BuildError
from semistream.relation import places

_FORMATS = ("csv", "parquet")  # also the suffixes of their files
_BLOCK_BYTES = 1 << 20
_BLANK_LINE = re.compile(rb"\n\r?\n")
_SOURCE = re.compile(r".*Could not open CSV input source '(.+?)': Invalid: (.*)", re.DOTALL)
_ROW = re.compile(r"Row #(\d+): ")
_COLUMN = re.compile(r"In CSV column #(\d+): ")
_VALUE = re.compile(r"CSV conversion error to (.+?): (invalid value '.*'|.*)", re.DOTALL)


def open_path(path: str) -> pa.RecordBatchReader:
    """Return a reader over a Parquet or CSV file or folder."""
    file_format = path.rstrip("/").rpartition(".")[2]
    try:
        return _scan(path, file_format if file_format in _FORMATS else _format_in(path))
    except FileNotFoundError as error:
        raise BuildError(f"{path!r} does not exist; correct the path") from error
    except OSError as error:
        raise BuildError(f"{path!r} cannot be read: {error}") from error


def _format_in(path: str) -> str:
    """Return the format of a folder's files, or raise if it has none, or both."""
    filesystem, place = _place(path)
    found = filesystem.get_file_info(place)
    if found.type != fs.FileType.Directory:
        return "parquet"
    files = filesystem.get_file_info(fs.FileSelector(place, recursive=True))
    seen = [f.base_name for f in files if f.is_file and not f.base_name.startswith((".", "_"))]
    if not seen:
        raise BuildError(f"the folder {path!r} has no files; correct the path")
    counts = {suffix: sum(n.endswith(f".{suffix}") for n in seen) for suffix in _FORMATS}
    if all(counts.values()):
        raise BuildError(
            f"the folder {path!r} has {counts['csv']} CSV and {counts['parquet']} Parquet files, "
            "but a source has one format; move the files of one format to a folder of their own"
        )
    return "csv" if counts["csv"] else "parquet"


def _place(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path in it."""
    place = places.find(path)
    return place.filesystem or fs.LocalFileSystem(), place.path


def open_dataset(files: dataset.FileSystemDataset) -> pa.RecordBatchReader:
    """Return a reader over files that Arrow has found already."""
    reader = files.scanner().to_reader()
    file_format = files.format.default_extname
    return pa.RecordBatchReader.from_batches(reader.schema, _batches(reader, files, file_format))


def _scan(path: str, file_format: str) -> pa.RecordBatchReader:
    place = places.find(path)
    try:
        return open_dataset(
            dataset.dataset(place.path, filesystem=place.filesystem, format=file_format)
        )
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowInvalid) as error:
        raise BuildError(_opening_message(path, file_format, str(error))) from error


def _batches(
    reader: pa.RecordBatchReader, files: dataset.Dataset, file_format: str
) -> Iterator[pa.RecordBatch]:
    try:
        yield from reader
    except (OSError, pa.ArrowInvalid) as error:
        raise BuildError(_reading_message(files, file_format, str(error))) from error


def _opening_message(path: str, file_format: str, said: str) -> str:
    source = _SOURCE.search(said)
    if source is None:
        return f"{path!r} cannot be read as a {file_format} file or folder: {said}"
    return _csv_message(_File(_place(path)[0], source[1]), source[2])


def _reading_message(files: dataset.Dataset, file_format: str, said: str) -> str:
    """Return which file cannot be read, and where in it, by reading the files one by one."""
    for fragment in files.get_fragments():
        try:
            for _ in fragment.scanner(schema=files.schema).to_batches():
                pass
        except (OSError, pa.ArrowInvalid) as error:
            if file_format != "csv":
                return f"{fragment.path!r} cannot be read as {file_format}: {error}"
            file = _File(fragment.filesystem, fragment.path, _names(fragment))
            return _csv_message(file, _SOURCE.sub(r"\2", str(error)))
    return f"a {file_format} file could not be read: {said}"


def _names(fragment: dataset.Fragment) -> list[str]:
    try:
        return list(fragment.physical_schema.names)
    except (OSError, pa.ArrowInvalid):
        return []


@dataclass(frozen=True, slots=True)
class _File:
    """A CSV file in which something cannot be read; the column names if they are known."""

    filesystem: fs.FileSystem
    path: str
    names: Sequence[str] = ()

    def column(self, index: int) -> str:
        """Return the name of a column, or its number."""
        return repr(self.names[index]) if index < len(self.names) else f"#{index + 1}"

    def place(self, row: int) -> str:
        """Return the line of a row, the header being the first; the row, if rows are not lines."""
        lines = 0
        before = b"\n"
        with self.filesystem.open_input_stream(self.path) as file:
            while lines < row and (block := file.read(_BLOCK_BYTES)):
                if b'"' in block or _BLANK_LINE.search(before + block):
                    return f"row {row} (the header is row 1)"
                lines += block.count(b"\n")
                before = block[-2:]
        return f"line {row}"


def _csv_message(file: _File, said: str) -> str:
    row, column, value = _ROW.search(said), _COLUMN.search(said), _VALUE.search(said)
    where = repr(file.path)
    if row:
        where += f", {file.place(int(row[1]))}"
    if column:
        where += f", column {file.column(int(column[1]))}"
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
