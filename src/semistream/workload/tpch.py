"""TPC-H tables as workloads: customer ⋈ orders and part ⋈ lineitem, at any scale factor.

`cmeshjoin-front-stage.txt`, section 4, joins customer with orders at scale factor 100. The tables
come from tpchgen-cli, which writes them as Parquet; they are made once and kept in a folder. Orders
and lineitem are streams that end. A range of rows is read from the row groups that it touches, of
7 MB each; four are kept in memory.
"""

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from semistream.columns import plain_batch, plain_schema
from semistream.errors import OptionError, did_you_mean
from semistream.workload.base import check_range, one_batch

_KEYS = {
    "customer-orders": ("c_custkey", "o_custkey"),
    "part-lineitem": ("p_partkey", "l_partkey"),
}


@dataclass(frozen=True, slots=True)
class Tpch:
    """A master table of TPC-H and the table that refers to it, generated on first use.

    `folder` holds a folder for each pair of tables and scale. Customer has 150,000 rows for each
    unit of `scale` and orders ten times as many; part has 200,000 and lineitem about 6,000,000.
    """

    scale: float = 1.0
    tables: str = "customer-orders"
    folder: str | Path = "tpch"

    def __post_init__(self) -> None:
        """Refuse tables that are not offered."""
        if self.tables not in _KEYS:
            raise OptionError(
                f"tables must be one of {', '.join(_KEYS)}; got {self.tables!r}."
                f"{did_you_mean(self.tables, _KEYS)}"
            )
        if not 0 < self.scale <= 100_000:
            raise OptionError(f"scale must be greater than 0, up to 100000; got {self.scale}")

    @property
    def key(self) -> str:
        """The master table's key."""
        return _KEYS[self.tables][0]

    @property
    def stream_key(self) -> str:
        """The stream's column that refers to it."""
        return _KEYS[self.tables][1]

    @property
    def relation_rows(self) -> int:
        """How many rows the master table has."""
        return int(self._table(0).ends[-1])

    @property
    def stream_length(self) -> int:
        """How many rows the stream has before it ends."""
        return int(self._table(1).ends[-1])

    @property
    def relation_schema(self) -> pa.Schema:
        """The master table's columns."""
        return self._table(0).schema

    @property
    def stream_schema(self) -> pa.Schema:
        """The stream's columns."""
        return self._table(1).schema

    def relation_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the master table, in key order."""
        table = self._table(0)
        for group in range(len(table.ends)):
            yield table.read(group)

    def stream_rows(self, first: int, count: int) -> pa.RecordBatch:
        """Return rows of the stream, fewer where it ends."""
        check_range(first, count)
        return self._table(1).rows(first, count)

    def _table(self, which: int) -> "_ParquetTable":
        return _parquet_table(str(self.generate() / f"{self.tables.split('-')[which]}.parquet"))

    def generate(self) -> Path:
        """Make the tables if they are not there yet, and return their folder."""
        target = Path(self.folder) / f"{self.tables}-sf{self.scale:g}"
        if not target.exists():
            _generate(target, self.scale, self.tables.split("-"))
        return target


class _ParquetTable:
    """A Parquet file whose rows are read by number, a row group at a time."""

    def __init__(self, path: str) -> None:
        self._path = path
        with pq.ParquetFile(path) as file:
            groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
            self.schema = plain_schema(file.schema_arrow).remove_metadata()
        self.ends = np.cumsum(groups, dtype=np.int64)

    def read(self, group: int) -> pa.RecordBatch:
        """Return one row group."""
        with pq.ParquetFile(self._path) as file:
            table = file.read_row_group(group)
        batches = [plain_batch(b) for b in table.to_batches()]
        return one_batch([self._bare(b) for b in batches], self.schema)

    def rows(self, first: int, count: int) -> pa.RecordBatch:
        """Return a range of rows, as far as there are any."""
        end = min(first + count, int(self.ends[-1]))
        group, slices = int(np.searchsorted(self.ends, first, side="right")), []
        while first < end:
            begin = int(self.ends[group - 1]) if group else 0
            taken = min(end, int(self.ends[group])) - first
            slices.append(_row_group(self._path, group).slice(first - begin, taken))
            first += taken
            group += 1
        return one_batch(slices, self.schema)

    def _bare(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)


@lru_cache(maxsize=16)
def _parquet_table(path: str) -> _ParquetTable:
    return _ParquetTable(path)


@lru_cache(maxsize=4)
def _row_group(path: str, group: int) -> pa.RecordBatch:
    return _parquet_table(path).read(group)


def _generate(target: Path, scale: float, tables: list[str]) -> None:
    """Make tables in a hidden sibling of `target` and give it its name when they are whole."""
    program = _program()
    made = target.with_name(f".{target.name}-{uuid4().hex}")
    made.mkdir(parents=True)
    try:
        command = [program, "parquet", "--scale-factor", f"{scale:g}", "--tables", ",".join(tables)]
        command += ["--output-dir", os.fspath(made), "--field-ids=false", "--quiet"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise OptionError(
                f"tpchgen-cli could not make {' and '.join(tables)} at scale {scale:g} in "
                f"{target}: {run.stderr.strip() or f'it ended with code {run.returncode}'}"
            )
        _give_name(made, target)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _give_name(made: Path, target: Path) -> None:
    try:
        made.rename(target)
    except OSError:
        # Somebody else was quicker; their tables are the same.
        if not target.exists():
            raise


def _program() -> str:
    scripts = sysconfig.get_path("scripts")
    found = shutil.which("tpchgen-cli", path=scripts) or shutil.which("tpchgen-cli")
    if found is None:
        raise OptionError(
            "TPC-H tables are made by tpchgen-cli, which is not installed. "
            "Install it: pip install 'semistream[lab]'"
        )
    return found
