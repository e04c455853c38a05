"""Rows of a stream as files in a folder, for a source that watches the folder.

A file is written under a hidden name and then renamed, so that no reader sees half a file. Its name
has its first row and the row after its last: the names show how far the stream has been written.
"""

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from semistream.errors import OptionError, did_you_mean
from semistream.workload.jsonlines import binary_as_text, json_lines

FORMATS = ("parquet", "ndjson", "csv")
_NAME = re.compile(r"rows-\d+-(?P<end>\d+)")


@dataclass(frozen=True, slots=True)
class EventFolder:
    """A folder that files of events are added to."""

    path: Path
    format: str = "parquet"

    def __post_init__(self) -> None:
        """Make the folder if it does not exist."""
        if self.format not in FORMATS:
            raise OptionError(
                f"the format must be one of {', '.join(FORMATS)}; got {self.format!r}."
                f"{did_you_mean(self.format, FORMATS)}"
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(f"cannot write to {self.path}: {error.strerror}") from error

    def check_room_from(self, first: int) -> None:
        """Refuse to write rows that the folder already has."""
        names = (_NAME.fullmatch(path.stem) for path in self.path.glob("rows-*"))
        end = max((int(name["end"]) for name in names if name), default=0)
        if first < end:
            raise OptionError(
                f"{self.path} already has rows up to {end - 1:,}; empty the folder, choose "
                f"another, or continue after them with --first {end}"
            )

    def write(self, first: int, batch: pa.RecordBatch) -> Path:
        """Add a file with rows `first` and on."""
        target = self.path / f"rows-{first:015d}-{first + batch.num_rows:015d}.{self.format}"
        write_whole(target, lambda hidden: _write(hidden, self.format, batch))
        return target


def write_relation(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write a relation to one file, CSV or Parquet by its name; return the number of rows."""
    if path.suffix not in (".csv", ".parquet"):
        raise OptionError(f"a relation is written as .parquet or .csv; got {path}")
    rows = 0

    def write(hidden: Path) -> None:
        nonlocal rows
        is_csv = path.suffix == ".csv"
        with pq.ParquetWriter(hidden, schema) if not is_csv else _CsvWriter(hidden) as writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows

    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, write)
    return rows


def write_whole(target: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make a hidden file, and rename it when it is complete."""
    hidden = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        write(hidden)
        hidden.replace(target)
    except OSError as error:
        raise OptionError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        hidden.unlink(missing_ok=True)


def _write(path: Path, file_format: str, batch: pa.RecordBatch) -> None:
    if file_format == "parquet":
        pq.write_table(pa.Table.from_batches([batch]), path)
    elif file_format == "csv":
        pyarrow.csv.write_csv(binary_as_text(batch), path)
    else:
        lines = json_lines(batch)
        path.write_bytes("\n".join([*lines.to_pylist(), ""]).encode())


class _CsvWriter:
    """CSV with one header, batch by batch."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: pyarrow.csv.CSVWriter | None = None

    def __enter__(self) -> "_CsvWriter":
        return self

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Add a batch."""
        text = binary_as_text(batch)
        if self._writer is None:
            self._writer = pyarrow.csv.CSVWriter(self._path, text.schema)
        self._writer.write_batch(text)

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
