"""Reads pages of a table: rows of key ranges, sorted by code and laid out as a relation's parts.

One query fetches the ranges of up to `_FETCHED_BYTES` of pages, by the database's own index: pages
side by side are one range, others are joined by UNION ALL. The rows are brought into the form that
`relation/layout.py` describes, each page with the room that the directory gives it; places without
a row have a code that no key has. What was fetched last is kept, because a join reads one part
after the other of the same pages; if that is more than `kept_bytes`, only the column that a part
belongs to is fetched.

All queries of a reader are in one transaction: codes and columns of a page belong together.

Memory: what is kept, and of a query the driver's table, its sorted copy and the pages.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from semistream.columns import (
    Encoding,
    encoding_of,
    numpy_dtype,
    split_bytes,
    split_fixed,
    split_validity,
)
from semistream.databases import kernels
from semistream.databases.coder import HASH_BITS, NO_HASH
from semistream.databases.database import Database
from semistream.databases.directory import Directory, page_range
from semistream.errors import DatabaseError, TableChangedError
from semistream.keys import KeyCoder
from semistream.relation.layout import part_names
from semistream.relation.pagetable import CODES

_FETCHED_BYTES = 1 << 20
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Table:
    """A table, as a reader has to know it."""

    name: str
    key: tuple[str, ...]
    schema: pa.Schema
    directory: Directory
    coder: KeyCoder

    def part_sizes(self, name: str) -> Ints:
        """Return the size in bytes of a part of each page."""
        rows = self.directory.room_rows
        if name == CODES:
            return 8 * rows
        index, _, kind = name.partition(".")
        field = self.schema.field(int(index))
        if kind == "values":
            return numpy_dtype(field.type).itemsize * rows
        if kind == "lengths":
            return 4 * rows
        if kind == "data":
            return self.directory.room_bytes[field.name]
        return np.zeros_like(rows) if field.name in self.key else rows

    def parts(self) -> list[str]:
        """Return the names of all parts but the codes."""
        return [n for i, f in enumerate(self.schema) for n in part_names(i, f.type).values()]


class Fetched:
    """Some pages, each part of them back to back."""

    def __init__(self, pages: Ints) -> None:
        """Note which pages they are; they ascend."""
        self.pages = pages
        self.parts: dict[str, tuple[Bytes, Ints]] = {}  # the bytes, and where each page begins

    def has(self, name: str, pages: Ints) -> bool:
        """Whether a part of all these pages is here."""
        if name not in self.parts or not len(self.pages):
            return False
        at = np.minimum(np.searchsorted(self.pages, pages), len(self.pages) - 1)
        return bool((self.pages[at] == pages).all())

    def copy(self, name: str, first: int, last: int, out: Bytes) -> None:
        """Copy a part of pages ``first … last - 1``, which are side by side."""
        data, starts = self.parts[name]
        at = int(np.searchsorted(self.pages, first))
        begin, end = int(starts[at]), int(starts[at + last - first])
        out[:] = data[begin:end]


class TablePages:
    """Fetches pages of a table through one connection."""

    def __init__(self, database: Database, table: Table, columns: Sequence[str], kept: int) -> None:
        """Note what to read: `columns` are those that the join needs; nothing is read yet."""
        self._database, self._table, self._kept_bytes = database, table, kept
        self._columns = [name for name in table.schema.names if name in columns]
        self._kept = Fetched(np.zeros(0, np.int64))
        self._page_bytes = self._sizes([CODES, *self._parts_of(self._columns)])

    def read(self, name: str, runs: Sequence[tuple[int, int]], outs: Sequence[Bytes]) -> None:
        """Read a part of runs of pages (first, last), which ascend, each into its own memory."""
        pages = np.concatenate([np.arange(first, last) for first, last in runs])
        if not self._kept.has(name, pages):
            if name != CODES and int(self._page_bytes[pages].sum()) <= self._kept_bytes:
                self._kept = self._fetch_all(pages)
            else:
                self._copy_streamed(name, runs, outs)
                return
        for (first, last), out in zip(runs, outs, strict=True):
            self._kept.copy(name, first, last, out)

    def close(self) -> None:
        """End the transaction."""
        self._kept = Fetched(np.zeros(0, np.int64))
        self._database.close()

    def _copy_streamed(
        self, name: str, runs: Sequence[tuple[int, int]], outs: Sequence[Bytes]
    ) -> None:
        """Fetch only what a part needs, some pages at a time."""
        columns = [] if name == CODES else [self._table.schema.field(int(name.split(".")[0])).name]
        sizes = self._sizes([CODES, *self._parts_of(columns)])
        starts = np.concatenate([[0], np.cumsum(self._table.part_sizes(name))])
        pages = np.concatenate([np.arange(first, last) for first, last in runs])
        for chunk in _chunks(pages, sizes, self._database.most_ranges):
            fetched = self._fetch(chunk, columns)
            for (first, last), out in zip(runs, outs, strict=True):
                a, b = max(first, int(chunk[0])), min(last, int(chunk[-1]) + 1)
                if a < b:
                    begin, end = (int(starts[p] - starts[first]) for p in (a, b))
                    fetched.copy(name, a, b, out[begin:end])

    def _fetch_all(self, pages: Ints) -> Fetched:
        """Fetch all columns of some pages."""
        chunks = list(_chunks(pages, self._page_bytes, self._database.most_ranges))
        fetched = [self._fetch(chunk, self._columns) for chunk in chunks]
        if len(fetched) == 1:
            return fetched[0]
        joined = Fetched(pages)
        for name in fetched[0].parts:
            pieces = [f.parts[name] for f in fetched]
            ends = np.cumsum([0, *(len(data) for data, _ in pieces)])
            starts = [s[:-1] + e for (_, s), e in zip(pieces, ends[:-1], strict=True)]
            data = np.concatenate([data for data, _ in pieces])
            joined.parts[name] = data, np.concatenate([*starts, ends[-1:]])
        return joined

    def _fetch(self, pages: Ints, columns: Sequence[str]) -> Fetched:
        """Fetch pages with one query; `columns` besides the key."""
        schema = self._table.schema
        names = [n for n in schema.names if n in columns or n in self._table.key]
        found = self._database.fetch(self._sql(pages, names), pa.schema(map(schema.field, names)))
        found = found.combine_chunks()
        key = [_whole(found.column(name)) for name in self._table.key]
        codes, _ = self._table.coder.relation_codes(key, self._table.key)
        order = self._order(found, codes)
        codes = codes[order]
        counts = self._count(pages, codes)
        return self._laid_out(pages, counts, codes, found, order, columns)

    def _sql(self, pages: Ints, names: Sequence[str]) -> str:
        database, table = self._database, self._table
        chosen = ", ".join(database.quote(name) for name in names)
        about = (database, table.directory, table.schema)
        return " UNION ALL ".join(
            f"SELECT {chosen} FROM {database.table(table.name)} "
            f"WHERE {page_range(*about, first, last)}"
            for first, last in _runs(pages)
        )

    @staticmethod
    def _order(found: pa.Table, codes: Ints) -> Ints:
        """Return the order of the rows by code, and by all columns where codes are equal.

        A page is read more than once, and rows of one key must then be in the same order.
        """
        order = np.argsort(codes, kind="stable")
        sorted_codes = codes[order]
        if not (sorted_codes[1:] == sorted_codes[:-1]).any():
            return order
        whole = found.append_column("", pa.array(codes))
        by = [("", "ascending"), *((n, "ascending") for n in found.column_names)]
        renamed = whole.rename_columns([str(i) for i in range(whole.num_columns)])
        keys = [(str(whole.column_names.index(n)), how) for n, how in by]
        return np.asarray(pc.sort_indices(renamed, keys).to_numpy(), np.int64)

    def _count(self, pages: Ints, codes: Ints) -> Ints:
        """Return the rows of each page; raise if one has more than there is room for."""
        found = codes >> HASH_BITS
        at = np.minimum(np.searchsorted(pages, found), len(pages) - 1)
        if (pages[at] != found).any():
            raise DatabaseError(
                f"the table {self._table.name!r} orders its keys {', '.join(self._table.key)} in "
                "another way than by their values or bytes: rows of other pages were found in a "
                "range. Check the collation of the key, or make a copy with build_relation"
            )
        counts = np.bincount(at, minlength=len(pages)).astype(np.int64)
        self._check_room(pages, counts, self._table.directory.room_rows, "rows")
        return counts

    def _check_room(self, pages: Ints, used: Ints, room: Ints, what: str) -> None:
        full = np.flatnonzero(used > room[pages])
        if len(full):
            page = int(pages[full[0]])
            raise TableChangedError(
                f"the table {self._table.name!r} has grown since it was opened: page {page} has "
                f"{int(used[full[0]]):,} {what}, and room for {int(room[page]):,}. Open it again "
                "with Relation.sql(…), which counts it again"
            )

    def _laid_out(
        self,
        pages: Ints,
        counts: Ints,
        codes: Ints,
        found: pa.Table,
        order: Ints,
        columns: Sequence[str],
    ) -> Fetched:
        fetched = Fetched(pages)
        bounds = np.concatenate([[0], np.cumsum(self._table.directory.room_rows[pages])])
        # The place of each row: rows of a page from its start on.
        within = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
        places = np.repeat(bounds[:-1], counts) + within
        empty = np.repeat((pages << HASH_BITS) | NO_HASH, np.diff(bounds))
        empty[places] = codes
        fetched.parts[CODES] = empty.view(np.uint8), 8 * bounds
        for name in columns:
            index = self._table.schema.get_field_index(name)
            field = self._table.schema.field(index)
            column = _whole(found.column(name)).take(pa.array(order))
            names = part_names(index, field.type)
            for part, (data, starts) in self._parts(field, column, places, bounds, pages, counts):
                fetched.parts[names[part]] = data, starts
        return fetched

    def _parts(
        self,
        field: pa.Field,
        column: pa.Array,
        places: Ints,
        bounds: Ints,
        pages: Ints,
        counts: Ints,
    ) -> Iterator[tuple[str, tuple[Bytes, Ints]]]:
        """Yield the parts of a column, with the room that pages have."""
        if encoding_of(field.type) is Encoding.FIXED:
            values, _ = split_fixed(column)
            yield "values", _spread(values, places, bounds)
        else:
            lengths, data, _ = split_bytes(column)
            yield "lengths", _spread(lengths, places, bounds)
            room = self._table.directory.room_bytes[field.name]
            rows = np.repeat(np.arange(len(pages)), counts)
            used = np.bincount(rows, lengths, len(pages)).astype(np.int64)
            self._check_room(pages, used, room, f"bytes in {field.name!r}")
            starts = np.concatenate([[0], np.cumsum(room[pages])])
            out = np.zeros(int(starts[-1]), np.uint8)
            kernels.place_texts(lengths, data, counts, starts, out)
            yield "data", (out, starts)
        if field.name in self._table.key:
            yield "validity", (np.zeros(0, np.uint8), np.zeros(len(pages) + 1, np.int64))
            return
        validity = split_validity(column)
        out = np.ones(int(bounds[-1]), np.uint8)
        if validity is not None:
            out[places] = validity
        yield "validity", (out, bounds)

    def _sizes(self, parts: Sequence[str]) -> Ints:
        sizes = [self._table.part_sizes(name) for name in parts]
        return np.asarray(np.sum(sizes, axis=0), np.int64)

    def _parts_of(self, columns: Sequence[str]) -> list[str]:
        schema = self._table.schema
        indexes = [schema.get_field_index(name) for name in columns]
        return [n for i in indexes for n in part_names(i, schema.field(i).type).values()]


def _spread(values: NDArray[Any], places: Ints, bounds: Ints) -> tuple[Bytes, Ints]:
    out = np.zeros(int(bounds[-1]), values.dtype)
    out[places] = values
    return out.view(np.uint8), values.dtype.itemsize * bounds


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _runs(pages: Ints) -> list[tuple[int, int]]:
    """Return runs (first, last) of pages side by side."""
    cuts = np.flatnonzero(np.diff(pages) != 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(pages, cuts)]


def _chunks(pages: Ints, sizes: Ints, most_ranges: int) -> Iterator[Ints]:
    """Yield the pages in pieces that one query fetches."""
    total = np.cumsum(sizes[pages])
    apart = np.cumsum(np.concatenate([[0], np.diff(pages) != 1]))
    first = 0
    while first < len(pages):
        before = int(total[first - 1]) if first else 0
        last = int(np.searchsorted(total, before + _FETCHED_BYTES, "right"))
        last = min(last, int(np.searchsorted(apart, apart[first] + most_ranges)))
        last = max(first + 1, last)
        yield pages[first:last]
        first = last
