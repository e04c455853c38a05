"""A slab: one column of requested pages of a load, in memory.

Its parts (values, lengths, validity, messages; `relation/layout.py`) lie one after the other in an
arena that the caller lends: the disk buffer lends one arena to all columns in turn, `resident`
lends each column its own. Each part has room for all pages of the load, and a row is where it would
be if all were read (`pagereads.py`).
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.pagesizes import aligned_bytes
from semistream.budget.rowsizes import NESTED_COPIES
from semistream.columns import (
    Encoding,
    encoding_of,
    join_buffer,
    join_bytes,
    join_fixed,
    nested_from_message,
    numpy_dtype,
    value_sizes,
)
from semistream.joins.pagereads import RequestedPages, read_in_place
from semistream.joins.row_kernels import gather_bytes, starts_of
from semistream.joins.rows import gather_from_chunks
from semistream.relation.layout import part_names
from semistream.relation.parts import Part
from semistream.relation.reader import PageReader


class Slab:
    """One column of requested pages, read into memory that the caller lends."""

    def __init__(self, reader: PageReader, column: str, arena: NDArray[np.uint8]) -> None:
        """Prepare to read a column into `arena`."""
        index = reader.manifest.schema.get_field_index(column)
        self._reader = reader
        self._dtype = reader.manifest.schema.field(index).type
        self.encoding = encoding_of(self._dtype)
        self._names = part_names(index, self._dtype)  # of the parts, in the relation's files
        self._arena = arena  # what is loaded lies here
        self._used = self._bytes_read = 0  # of the arena, and from disk, since the load began
        self._validity: NDArray[np.uint8] | None = None  # by row; None if no row is null
        self._values: NDArray[np.uint8] = arena[:0]  # by row, or the bytes of all texts
        self._lengths: NDArray[np.int32] = np.zeros(0, np.int32)  # of texts, by row
        self._starts: NDArray[np.int64] = np.zeros(0, np.int64)  # of texts, by row
        self._messages: dict[int, pa.Array] = {}  # nested values, by page of the load
        self._page_bounds: NDArray[np.int64] = np.zeros(1, np.int64)  # rows before each page
        # A lone integer key is stored only as its code.
        self.is_implied = index not in reader.manifest.stored_fields
        self.is_variable = self.encoding is not Encoding.FIXED and not self.is_implied
        self.is_fixed = not self.is_variable and not self.is_implied
        self.has_nulls = self.is_fixed and reader.has_nulls(column)  # on any page

    @property
    def values_part(self) -> Part:
        """Where the values of a column of fixed width are."""
        part = self._reader.part(self._names["values"])
        assert part is not None, "every page has values"
        return part

    def from_codes(self, codes: NDArray[np.int64]) -> pa.Array:
        """Return a lone integer key, which is stored only as its code."""
        return join_fixed(pa.int64(), codes, None).cast(self._dtype)

    def load(self, requested: RequestedPages) -> int:
        """Read the column of requested pages; return the bytes read."""
        self._used = self._bytes_read = 0
        if self.encoding is Encoding.NESTED:
            self._load_messages(requested)
        elif self.encoding is Encoding.FIXED:
            self._values = self._read("values", requested).view(numpy_dtype(self._dtype))
            self._validity = self._read_validity(requested)
        else:
            self._read_lengths(requested)
            self._read_data(requested)
        return self._bytes_read

    def load_validity(self, requested: RequestedPages) -> int:
        """Read only which values of a column of fixed width are null; return the bytes read."""
        self._used = self._bytes_read = 0
        self._validity = self._read_validity(requested)
        return self._bytes_read

    def load_lengths(self, requested: RequestedPages) -> int:
        """Read only the lengths of a column of texts; return the bytes read."""
        self._used = self._bytes_read = 0
        self._read_lengths(requested)
        return self._bytes_read

    def load_data(self, requested: RequestedPages) -> int:
        """Read a column of texts without their lengths, over these; return the bytes read."""
        self._used = self._bytes_read = 0
        self._read_data(requested)
        return self._bytes_read

    def _read_lengths(self, requested: RequestedPages) -> None:
        self._lengths = self._read("lengths", requested).view(np.int32)
        self._starts = self._lend(8 * len(self._lengths)).view(np.int64)
        data = self._reader.part(self._names["data"])
        if data is None:  # all texts are empty
            self._starts[:] = 0
            return
        about = (requested.pages, requested.first, self._reader.row_bounds)
        starts_of(self._lengths, *about, data.ends, data.unit_bytes, self._starts)

    def _read_data(self, requested: RequestedPages) -> None:
        self._values = self._read("data", requested)
        self._validity = self._read_validity(requested)

    def announce(self, first: int, last: int) -> None:
        """Say that the column of these pages will be loaded next."""
        for name in self._names.values():
            self._reader.announce(name, first, last)

    def extents(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return where the texts of some rows start, and how long they are."""
        return self._starts[rows], self._lengths[rows]

    def sizes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the size in bytes of a copy of each of some rows' values."""
        if self.encoding is Encoding.BYTES:
            return self._lengths[rows].astype(np.int64)
        sizes = np.zeros(int(self._page_bounds[-1]), np.int64)
        for page, message in self._messages.items():
            first, last = self._page_bounds[page : page + 2]
            sizes[first:last] = NESTED_COPIES * value_sizes(message)
        return sizes[rows]

    def gather(self, rows: NDArray[np.int64]) -> pa.Array:
        """Return rows of what was loaded, as a new array."""
        if self.encoding is Encoding.BYTES:
            return self.gather_texts(*self.extents(rows), rows)
        if self.encoding is Encoding.NESTED:
            page = np.searchsorted(self._page_bounds, rows, "right").astype(np.int32) - 1
            row = (rows - self._page_bounds[page]).astype(np.int32)
            return gather_from_chunks(self._dtype, self._messages, page, row)
        return join_fixed(self._dtype, self._values[rows], self._validity_at(rows))

    def gather_block(self, values: pa.Buffer, rows: NDArray[np.int64]) -> pa.Array:
        """Return rows of a column of fixed width whose values have been gathered."""
        return join_buffer(self._dtype, len(rows), values, self._validity_at(rows))

    def gather_texts(
        self,
        starts: NDArray[np.int64],
        lengths: NDArray[np.int32],
        rows: NDArray[np.int64],
    ) -> pa.Array:
        """Return texts whose extents are known, as a new array."""
        data = gather_bytes(self._values, starts, lengths)
        return join_bytes(self._dtype, lengths, data, self._validity_at(rows))

    def _validity_at(self, rows: NDArray[np.int64]) -> NDArray[np.uint8] | None:
        return None if self._validity is None else self._validity[rows]

    def _lend(self, size: int) -> NDArray[np.uint8]:
        """Return the next free bytes of the arena."""
        start = self._used
        self._used += aligned_bytes(size)
        assert start + size <= len(self._arena), "the disk buffer's arena was sized too small"
        return self._arena[start : start + size]

    def _read(self, part: str, requested: RequestedPages) -> NDArray[np.uint8]:
        name = self._names[part]
        out = self._lend(self._reader.part_bytes(name, requested.first, requested.last))
        requests = read_in_place(self._reader, name, requested, out)
        self._bytes_read += int(requests[0].sum())
        return out

    def _read_validity(self, requested: RequestedPages) -> NDArray[np.uint8] | None:
        part = self._reader.part(self._names["validity"])
        if part is None or not part.bytes_of(requested.pages):
            return None
        first, last = requested.first, requested.last
        bounds = self._reader.row_bounds
        out = self._lend(int(bounds[last] - bounds[first]))
        stored = self._read("validity", requested)
        if len(stored) == len(out):
            return stored
        out[:] = 1  # extents without nulls store no validity
        has_some = part.ends[requested.pages + 1] > part.ends[requested.pages]
        for page in requested.pages[has_some].tolist():
            at, start = int(bounds[page] - bounds[first]), part.size_bytes(first, page)
            size = part.size_bytes(page, page + 1)
            out[at : at + size] = stored[start : start + size]
        return out

    def _load_messages(self, requested: RequestedPages) -> None:
        name, first, last = self._names["message"], requested.first, requested.last
        image = self._read("message", requested)
        bounds = self._reader.row_bounds
        self._page_bounds = bounds[first : last + 1] - bounds[first]
        self._messages = {}
        for page in requested.pages.tolist():
            start = self._reader.part_bytes(name, first, page)
            size = self._reader.part_bytes(name, page, page + 1)
            values = nested_from_message(self._dtype, image[start : start + size])
            self._messages[page - first] = values


class SlabRows:
    """Rows whose columns are all in memory."""

    def __init__(
        self, slabs: Sequence[Slab], rows: NDArray[np.int64], codes: NDArray[np.int64]
    ) -> None:
        """Note which rows are meant; `codes` are those of all rows."""
        self._slabs = slabs
        self._rows = rows
        self._codes = codes

    @property
    def sizes(self) -> NDArray[np.int64] | None:
        """The size in bytes of each row's variable-width values; None if there are none."""
        found = [slab.sizes(self._rows) for slab in self._slabs if slab.is_variable]
        return sum(found[1:], found[0]) if found else None

    def gather(self) -> list[pa.Array]:
        """Copy the rows out of each column."""
        return [self._gather(slab) for slab in self._slabs]

    def _gather(self, slab: Slab) -> pa.Array:
        return (
            slab.from_codes(self._codes[self._rows]) if slab.is_implied else slab.gather(self._rows)
        )
