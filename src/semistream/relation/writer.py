"""Writes one partition of a relation from rows that are sorted by key code.

Rows are gathered until they fill an extent, then cut into pages and written column by column,
so a build holds one extent (`EXTENT_BYTES`) per partition in memory, for any size of the
partition. Each part of each page gets a CRC-32, which readers check.

With hot keys (`semistream.relation.hot`) their rows are set aside as they arrive, and distributed
to hot pages at the end, when all of them are known. The build holds them until then: at most
`HOT_SHARE` of R's rows, over all partitions. The page table lists the hot pages first.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from semistream.columns import (
    Encoding,
    encoding_of,
    nested_to_message,
    split_bytes,
    split_fixed,
    total_bytes,
    width_bytes,
)
from semistream.jit import njit
from semistream.relation.gather import Gatherer
from semistream.relation.hot import HotKeys
from semistream.relation.keystatistics import KeyStatistics
from semistream.relation.layout import Manifest, PartitionInfo, part_names, snapshot_path
from semistream.relation.storage import Store

EXTENT_BYTES = 32 << 20
MOST_BYTES = 1 << 30  # of rows in one batch: half of what an Arrow array of strings can hold
CODE_BYTES = 8
_Rows: TypeAlias = tuple[NDArray[np.int64], pa.RecordBatch]  # codes, and the rows they are of


@dataclass(slots=True)
class _Part:
    """The place of one part of a column in the data file, page by page."""

    offsets: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    checksums: list[int] = field(default_factory=list)


class PartitionWriter:
    """Writes the files of a partition; `close` returns its entry in the manifest."""

    def __init__(
        self,
        store: Store,
        manifest: Manifest,
        index: int,
        attempt: str = "0",
        hot: HotKeys | None = None,
    ) -> None:
        """Open the partition's files. `attempt` keeps concurrent attempts at it apart."""
        self._index = index  # of the partition
        self._prefix = f"part-{index:05d}-{attempt}"  # of all file names
        self._path = snapshot_path(manifest.snapshot, self._prefix)
        self._store = store
        self._manifest = manifest
        self._data = store.create(self._path + ".data")
        try:
            self._codes = store.create(self._path + ".codes")
        except BaseException:
            self._data.abandon()
            raise
        self._data_bytes = 0  # written to the data file so far: the next offset
        # Clustered rows that are not written yet, less than an extent.
        self._waiting: list[_Rows] = []
        self._waiting_bytes = 0
        # The page table, in the order in which pages are written: hot pages last.
        self._page_rows: list[int] = []
        self._first_codes: list[int] = []  # the least code of each page
        self._code_checksums: list[int] = []
        self._parts: dict[str, _Part] = {}  # by name, as `part_names` gives them
        self._keys = KeyStatistics()
        self._hot = _HotRows(manifest, hot or HotKeys.none())

    def write(self, codes: NDArray[np.int64], batch: pa.RecordBatch) -> None:
        """Add rows; codes must not decrease, within a batch or from one to the next."""
        if len(codes) == 0:
            return
        self._keys.add(codes)
        self._write_clustered(*self._hot.sift(codes, batch))

    def close(self) -> PartitionInfo:
        """Write the rows left, the hot pages, the page table and the hot index; all is durable."""
        for rows in self._hot.sift_last():
            self._write_clustered(*rows)
        if self._waiting:
            self._flush(last=True)
        clustered_pages = len(self._page_rows)
        for extent in self._hot.extents():
            self._write_extent(*extent)
        hot_pages = len(self._page_rows) - clustered_pages
        self._data.commit()
        self._codes.commit()
        page_table = self._page_table()
        hot_first = pa.concat_tables([page_table[clustered_pages:], page_table[:clustered_pages]])
        table_checksum = self._write_table("pages", hot_first.combine_chunks())
        hot_checksum = self._write_table("hot", self._hot.index()) if hot_pages else 0
        self._store.sync_folder(snapshot_path(self._manifest.snapshot))
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
            hot_pages=hot_pages,
            hot_index_checksum=hot_checksum,
        )

    @property
    def page_rows(self) -> list[int]:
        """How many rows each page has that was written so far, clustered pages first."""
        return self._page_rows

    def abort(self) -> None:
        """Close the files of a partition that will not be used."""
        self._data.abandon()
        self._codes.abandon()

    def _write_clustered(self, codes: NDArray[np.int64], batch: pa.RecordBatch) -> None:
        if len(codes) == 0:
            return
        if self._waiting and self._waiting_bytes + total_bytes(batch.columns) > MOST_BYTES:
            self._flush(last=True)
        self._waiting.append((codes, batch))
        self._waiting_bytes += total_bytes(batch.columns) + codes.nbytes
        if self._waiting_bytes >= EXTENT_BYTES:
            self._flush(last=False)

    def _flush(self, last: bool) -> None:
        """Write the waiting rows as an extent; unless `last`, a page that is not full is kept."""
        codes, batch = _concatenated(self._waiting)
        bounds = cut_pages(row_sizes(self._manifest, batch), self._manifest.page_bytes)
        if not last:
            bounds = bounds[:-1]
        written = int(bounds[-1])
        self._waiting = [] if written == len(codes) else [(codes[written:], batch[written:])]
        self._waiting_bytes = sum(total_bytes(b.columns) + c.nbytes for c, b in self._waiting)
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
        """Write one part of a whole extent and record the place of each page's share."""
        part = self._parts.setdefault(name, _Part())
        part.offsets += (self._data_bytes + ends[:-1]).tolist()
        part.sizes += np.diff(ends).tolist()
        part.checksums += _checksums(image, ends)
        self._data.write(image)
        self._data_bytes += len(image)

    def _page_table(self) -> pa.Table:
        """Return the page table, with the pages in the order in which they were written."""
        columns: dict[str, pa.Array] = {
            "rows": pa.array(self._page_rows, pa.int64()),
            "first_code": pa.array(self._first_codes, pa.int64()),
            "codes.checksum": pa.array(self._code_checksums, pa.uint32()),
        }
        for name, part in self._parts.items():
            columns[f"{name}.offset"] = pa.array(part.offsets, pa.int64())
            columns[f"{name}.size"] = pa.array(part.sizes, pa.int64())
            columns[f"{name}.checksum"] = pa.array(part.checksums, pa.uint32())
        return pa.table(columns)

    def _write_table(self, kind: str, table: pa.Table) -> int:
        """Write a file that readers hold in memory as a whole, and return its checksum."""
        image = pa.BufferOutputStream()
        with pa.ipc.new_file(image, table.schema) as writer:
            writer.write_table(table)
        content = image.getvalue()
        file = self._store.create(f"{self._path}.{kind}")
        try:
            file.write(content)
            file.commit()
        finally:
            file.abandon()
        return crc32(content)


class _HotRows:
    """Sets the rows of hot keys aside, and distributes them to pages by frequency at the end.

    The rows of a key are consecutive but may be in several batches, so the last key of a batch, if
    it is hot, is kept until the next batch. Only when all rows of a key are known is it certain
    that they fit into a page. A key whose rows so far do not fit is not hot any more.
    """

    def __init__(self, manifest: Manifest, hot: HotKeys) -> None:
        self._manifest = manifest
        self._hot = hot  # without the keys that proved too wide
        self._last: list[_Rows] = []  # rows of the last key, if it is hot: more may follow
        self._aside: list[_Rows] = []  # rows of hot keys, in order of the codes
        # Of each key set aside, in order of the codes: code, rows, bytes, and at the end its page.
        self._codes: list[NDArray[np.int64]] = []
        self._rows: list[NDArray[np.int64]] = []
        self._sizes: list[NDArray[np.int64]] = []
        self._pages: NDArray[np.int32] = np.zeros(0, np.int32)

    def sift(self, codes: NDArray[np.int64], batch: pa.RecordBatch) -> _Rows:
        """Set the hot ones of the next sorted rows aside, and return the others."""
        if not len(self._hot.codes):
            return codes, batch
        codes, batch = _concatenated([*self._last, (codes, batch)])
        self._drop_if_too_wide(codes, batch)
        may_go_on = self._hot.holds(codes[-1:])[0]
        end = int(np.searchsorted(codes, codes[-1])) if may_go_on else len(codes)
        self._last = [(codes[end:], batch[end:])] if may_go_on else []
        return self._sift_whole_keys(codes[:end], batch[:end])

    def _drop_if_too_wide(self, codes: NDArray[np.int64], batch: pa.RecordBatch) -> None:
        """Remove the last key from the hot ones if its rows so far exceed a page."""
        if self._hot.holds(codes[-1:])[0]:
            last = batch[int(np.searchsorted(codes, codes[-1])) :]
            if (
                row_sizes(self._manifest, last, with_validity=True).sum()
                > self._manifest.page_bytes
            ):
                self._hot = self._hot.without(int(codes[-1]))

    def sift_last(self) -> list[_Rows]:
        """Do the same with the rows of the last key, if any: nothing follows."""
        return [self._sift_whole_keys(codes, batch) for codes, batch in self._last]

    def extents(self) -> Iterator[tuple[NDArray[np.int64], pa.RecordBatch, NDArray[np.int64]]]:
        """Distribute the rows to pages; yield extents as codes, rows and the bounds of pages."""
        if not any(len(codes) for codes in self._codes):
            return
        sizes = np.concatenate(self._sizes)
        self._pages = self._pages_of(np.concatenate(self._codes), sizes)
        page_of_row = np.repeat(self._pages, np.concatenate(self._rows))
        order = np.argsort(page_of_row, kind="stable")  # within a page by code, as they are now
        bounds = np.concatenate([[0], np.cumsum(np.bincount(page_of_row))])
        page_sizes = np.bincount(self._pages, weights=sizes).astype(np.int64)
        codes = np.concatenate([codes for codes, _ in self._aside])
        gatherer = Gatherer([batch for _, batch in self._aside])
        for first, last in itertools.pairwise(cut_pages(page_sizes, EXTENT_BYTES).tolist()):
            rows = order[bounds[first] : bounds[last]]
            yield codes[rows], gatherer.take(rows), bounds[first : last + 1] - bounds[first]

    def index(self) -> pa.Table:
        """Return the hot index: each code once, ascending, and its page."""
        return pa.table({"code": np.concatenate(self._codes), "page": self._pages})

    def _sift_whole_keys(self, codes: NDArray[np.int64], batch: pa.RecordBatch) -> _Rows:
        is_hot = self._hot.holds(codes)
        if not is_hot.any():
            return codes, batch
        is_hot[is_hot] = self._note_keys(codes[is_hot], _picked(batch, is_hot))
        self._aside.append((codes[is_hot], _picked(batch, is_hot)))
        return codes[~is_hot], _picked(batch, ~is_hot)

    def _note_keys(self, codes: NDArray[np.int64], batch: pa.RecordBatch) -> NDArray[np.bool_]:
        """Record the keys whose rows fit into a page, and return which rows are theirs."""
        starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
        counts = np.diff(starts, append=len(codes))
        sizes = np.add.reduceat(row_sizes(self._manifest, batch, with_validity=True), starts)
        fits = sizes <= self._manifest.page_bytes
        self._codes.append(codes[starts[fits]])
        self._rows.append(counts[fits])
        self._sizes.append(sizes[fits])
        return np.repeat(fits, counts)

    def _pages_of(self, codes: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the page of each key: pages are filled one by one, the most frequent key first."""
        by_rank = np.argsort(self._hot.ranks_of(codes))
        bounds = cut_pages(sizes[by_rank], self._manifest.page_bytes)
        pages = np.empty(len(codes), np.int32)
        pages[by_rank] = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        return pages


def _concatenated(rows: list[_Rows]) -> _Rows:
    return np.concatenate([c for c, _ in rows]), pa.concat_batches([b for _, b in rows])


def _picked(batch: pa.RecordBatch, rows: NDArray[np.bool_]) -> pa.RecordBatch:
    return batch.take(pa.array(np.flatnonzero(rows)))


def row_sizes(
    manifest: Manifest, batch: pa.RecordBatch, *, with_validity: bool = False
) -> NDArray[np.int64]:
    """Return the size in bytes of each row in its page, over all its columns.

    Validity is stored for an extent if it has nulls. Rows that are not in their extent yet are
    measured `with_validity`, which is an upper bound.
    """
    sizes = np.full(batch.num_rows, CODE_BYTES, np.int64)
    for i in manifest.stored_fields:
        column = batch.column(i)
        if column.null_count or with_validity:
            sizes += 1
        encoding = encoding_of(column.type)
        if encoding is Encoding.FIXED:
            sizes += width_bytes(column.type)
        elif encoding is Encoding.BYTES:
            lengths = split_bytes(column)[0]
            sizes += lengths + lengths.itemsize
        else:  # nested rows are charged their average
            sizes += -(-total_bytes([column]) // max(1, len(column)))
    return sizes


def most_rows_of_page(manifest: Manifest) -> int:
    """Return the most rows of a page: with validity, and values of variable width empty."""
    types = [manifest.schema.field(i).type for i in manifest.stored_fields]
    return manifest.page_bytes // (CODE_BYTES + sum(1 + _least_bytes(t) for t in types))


def _least_bytes(dtype: pa.DataType) -> int:
    encoding = encoding_of(dtype)
    if encoding is Encoding.FIXED:
        return width_bytes(dtype)
    return np.dtype(np.int32).itemsize if encoding is Encoding.BYTES else 0  # a length, or nothing


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
    return [crc32(view[a:b]) for a, b in itertools.pairwise(bounds)]
