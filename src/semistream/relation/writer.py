"""Writes one partition of a relation from rows that come sorted by key code.

Rows are gathered until they fill an extent, then cut into pages and written column by column,
so a build holds one extent (`EXTENT_BYTES`) per partition in memory, whatever the partition's
size. Each part of each page gets a CRC-32, which readers check.
"""

import itertools
import zlib
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from semistream.columns import (
    Encoding,
    encoding_of,
    nested_to_message,
    split_bytes,
    split_fixed,
    width_bytes,
)
from semistream.relation.layout import Manifest, PartitionInfo, part_names, snapshot_path
from semistream.relation.storage import Store

EXTENT_BYTES = 8 << 20
CODE_BYTES = 8


@dataclass(slots=True)
class _Part:
    """Where one part of a column lies, page by page."""

    offsets: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    checksums: list[int] = field(default_factory=list)


class PartitionWriter:
    """Writes the three files of a partition; `close` returns what the manifest needs to know."""

    def __init__(self, store: Store, manifest: Manifest, index: int, attempt: str = "0") -> None:
        """Open the partition's files. `attempt` keeps concurrent attempts at it apart."""
        self._index = index
        self._prefix = f"part-{index:05d}-{attempt}"
        self._path = snapshot_path(manifest.snapshot, self._prefix)
        self._store = store
        self._manifest = manifest
        self._data = store.create(self._path + ".data")
        self._codes = store.create(self._path + ".codes")
        self._data_bytes = 0
        self._waiting: list[tuple[NDArray[np.int64], pa.RecordBatch]] = []
        self._waiting_bytes = 0
        self._page_rows: list[int] = []
        self._first_codes: list[int] = []
        self._code_checksums: list[int] = []
        self._parts: dict[str, _Part] = {}
        self._keys = _KeyStatistics()

    def write(self, codes: NDArray[np.int64], batch: pa.RecordBatch) -> None:
        """Add rows; codes must not decrease, within a batch or from one to the next."""
        if len(codes) == 0:
            return
        self._keys.add(codes)
        self._waiting.append((codes, batch))
        self._waiting_bytes += batch.nbytes + codes.nbytes
        if self._waiting_bytes >= EXTENT_BYTES:
            self._flush(last=False)

    def close(self) -> PartitionInfo:
        """Write what is left and the page table."""
        if self._waiting:
            self._flush(last=True)
        self._data.close()
        self._codes.close()
        table_checksum = self._write_page_table()
        return PartitionInfo(
            index=self._index,
            files=self._prefix,
            row_count=self._keys.row_count,
            page_count=len(self._page_rows),
            size_bytes=self._data_bytes + CODE_BYTES * self._keys.row_count,
            distinct_codes=self._keys.distinct,
            most_duplicates=self._keys.most_duplicates,
            first_code=self._keys.first,
            last_code=self._keys.last,
            squared_loads=self._keys.squared_loads(),
            page_table_checksum=table_checksum,
        )

    def abort(self) -> None:
        """Close the files of a partition that will not be used."""
        self._data.close()
        self._codes.close()

    def _flush(self, last: bool) -> None:
        """Write the waiting rows as an extent; unless `last`, a page that is not full waits on."""
        codes = np.concatenate([c for c, _ in self._waiting])
        batch = pa.concat_batches([b for _, b in self._waiting])
        bounds = cut_pages(row_sizes(self._manifest, batch), self._manifest.page_bytes)
        if not last:
            bounds = bounds[:-1]
        written = int(bounds[-1])
        self._waiting = [] if written == len(codes) else [(codes[written:], batch[written:])]
        self._waiting_bytes = sum(b.nbytes + c.nbytes for c, b in self._waiting)
        if written:
            self._write_extent(codes[:written], batch[:written], bounds)

    def _write_extent(
        self, codes: NDArray[np.int64], batch: pa.RecordBatch, bounds: NDArray[np.int64]
    ) -> None:
        self._page_rows += np.diff(bounds).tolist()
        self._first_codes += codes[bounds[:-1]].tolist()
        image = np.ascontiguousarray(codes).view(np.uint8)
        self._code_checksums += _checksums(image, bounds * CODE_BYTES)
        self._codes.write(image)
        for i in self._manifest.stored_fields:
            names = part_names(i, self._manifest.schema.field(i).type)
            self._write_column(names, batch.column(i), bounds)

    def _write_column(
        self, names: dict[str, str], column: pa.Array, bounds: NDArray[np.int64]
    ) -> None:
        encoding = encoding_of(column.type)
        if encoding is Encoding.NESTED:
            self._write_messages(names["message"], column, bounds)
            return
        if encoding is Encoding.FIXED:
            values, validity = split_fixed(column)
            image = np.ascontiguousarray(values).view(np.uint8)
            self._write_part(names["values"], image, bounds * values.itemsize)
        else:
            lengths, data, validity = split_bytes(column)
            ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
            image = np.ascontiguousarray(lengths).view(np.uint8)
            self._write_part(names["lengths"], image, bounds * lengths.itemsize)
            self._write_part(names["data"], data, ends[bounds])
        if validity is None:
            self._write_part(names["validity"], np.zeros(0, np.uint8), np.zeros_like(bounds))
        else:
            self._write_part(names["validity"], validity, bounds)

    def _write_messages(self, name: str, column: pa.Array, bounds: NDArray[np.int64]) -> None:
        pages = [column[a:b] for a, b in itertools.pairwise(bounds)]
        messages = [np.frombuffer(nested_to_message(page), np.uint8) for page in pages]
        ends = np.concatenate([[0], np.cumsum([len(m) for m in messages])])
        self._write_part(name, np.concatenate(messages), ends)

    def _write_part(self, name: str, image: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        """Write one part of a whole extent and note where each page's share lies."""
        part = self._parts.setdefault(name, _Part())
        part.offsets += (self._data_bytes + ends[:-1]).tolist()
        part.sizes += np.diff(ends).tolist()
        part.checksums += _checksums(image, ends)
        self._data.write(image)
        self._data_bytes += len(image)

    def _write_page_table(self) -> int:
        """Write the page table and return its checksum."""
        columns: dict[str, pa.Array] = {
            "rows": pa.array(self._page_rows, pa.int64()),
            "first_code": pa.array(self._first_codes, pa.int64()),
            "codes.checksum": pa.array(self._code_checksums, pa.uint32()),
        }
        for name, part in self._parts.items():
            columns[f"{name}.offset"] = pa.array(part.offsets, pa.int64())
            columns[f"{name}.size"] = pa.array(part.sizes, pa.int64())
            columns[f"{name}.checksum"] = pa.array(part.checksums, pa.uint32())
        table = pa.table(columns)
        image = pa.BufferOutputStream()
        with pa.ipc.new_file(image, table.schema) as writer:
            writer.write_table(table)
        content = image.getvalue()
        with self._store.create(self._path + ".pages") as file:
            file.write(content)
        return zlib.crc32(content)


class _KeyStatistics:
    """Counts over sorted codes: rows, distinct codes, the longest run of one, and crowding."""

    def __init__(self) -> None:
        self.row_count = 0
        self.distinct = 0
        self.most_duplicates = 0
        self.first = 0
        self.last = 0
        self._run_starts = np.zeros(64, np.int64)  # row at which code >> shift last changed
        self._squares = np.zeros(64, np.float64)

    def add(self, codes: NDArray[np.int64]) -> None:
        """Take in the next sorted codes."""
        if self.row_count == 0:
            self.first = int(codes[0])
            self.last = self.first
            self.distinct = 1
        distinct, longest = _count_runs(
            codes, self.last, self.row_count, self._run_starts, self._squares
        )
        assert distinct >= 0, "codes must come sorted"
        self.distinct += distinct
        self.last = int(codes[-1])
        self.row_count += len(codes)
        open_run = self.row_count - int(self._run_starts[0])
        self.most_duplicates = max(self.most_duplicates, longest, open_run)

    def squared_loads(self) -> tuple[int, ...]:
        """Return, per shift, the sum of squared rows per ``code >> shift``."""
        open_runs = self.row_count - self._run_starts
        return tuple(int(x) for x in self._squares + open_runs.astype(np.float64) ** 2)


@njit(cache=True)
def _count_runs(codes, previous, row, run_starts, squares):  # type: ignore[no-untyped-def]
    """Return how many codes differ from the one before, and the longest run that ended.

    A code that differs from its predecessor in bit h ends the runs of all shifts up to h. Returns
    -1 if the codes are not sorted.
    """
    distinct = 0
    longest = 0
    for code in codes:
        if code != previous:
            if code < previous:
                return -1, 0
            distinct += 1
            longest = max(longest, row - run_starts[0])
            differing = np.uint64(code ^ previous)
            shift = 0
            while shift < 64 and (differing >> np.uint64(shift)) != 0:
                run = np.float64(row - run_starts[shift])
                squares[shift] += run * run
                run_starts[shift] = row
                shift += 1
        previous = code
        row += 1
    return distinct, longest


def row_sizes(manifest: Manifest, batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Return the bytes that each row takes in its page, over all its columns."""
    sizes = np.full(batch.num_rows, CODE_BYTES, np.int64)
    for i in manifest.stored_fields:
        column = batch.column(i)
        if column.null_count:
            sizes += 1
        encoding = encoding_of(column.type)
        if encoding is Encoding.FIXED:
            sizes += width_bytes(column.type)
        elif encoding is Encoding.BYTES:
            lengths = split_bytes(column)[0]
            sizes += lengths + lengths.itemsize
        else:  # nested rows are charged their average
            sizes += -(-column.nbytes // max(1, len(column)))
    return sizes


@njit(cache=True)
def cut_pages(sizes, page_bytes):  # type: ignore[no-untyped-def]
    """Return row bounds of pages filled greedily up to `page_bytes`, the last perhaps not full.

    >>> cut_pages(np.array([40, 40, 40, 200, 10]), 100).tolist()
    [0, 2, 3, 4, 5]
    """
    bounds = [0]
    filled = 0
    for i in range(len(sizes)):
        if filled > 0 and filled + sizes[i] > page_bytes:
            bounds.append(i)
            filled = 0
        filled += sizes[i]
    bounds.append(len(sizes))
    return np.array(bounds, np.int64)


def _checksums(image: NDArray[np.uint8], ends: NDArray[np.int64]) -> list[int]:
    view = image.data
    bounds = ends.tolist()
    return [zlib.crc32(view[a:b]) for a, b in itertools.pairwise(bounds)]
