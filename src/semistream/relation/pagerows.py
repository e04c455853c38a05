"""Whole rows of consecutive pages as Arrow batches: for upserts and compaction.

Joins gather single rows into memory that is reserved (`semistream.joins.slab`); here all live rows
of some pages are copied, a few megabytes at a time.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.columns import (
    Encoding,
    concatenate,
    encoding_of,
    join_bytes,
    join_fixed,
    nested_from_message,
    numpy_dtype,
)
from semistream.relation.deltas import are_live
from semistream.relation.layout import part_names
from semistream.relation.reader import PageReader

_CHUNK_BYTES = 16 << 20  # of pages that are read at a time


class PageRows:
    """Reads columns of whole pages; the reader must read these columns."""

    def __init__(self, reader: PageReader, columns: Sequence[str] | None = None) -> None:
        """Read some columns, or all."""
        schema = reader.manifest.schema
        names = schema.names if columns is None else columns
        self._reader = reader
        self._fields = [(schema.get_field_index(n), schema.field(n).type) for n in names]
        self.schema = pa.schema([schema.field(name) for name in names])

    def live(self, first: int, last: int) -> Iterator[tuple[NDArray[np.int64], pa.RecordBatch]]:
        """Yield the codes and the rows of pages ``first … last - 1`` without dead rows."""
        bounds = self._reader.row_bounds
        for a, b in self.chunks(first, last):
            codes, batch = self.read(a, b)
            live = are_live(self._reader.dead, np.arange(bounds[a], bounds[b]))
            if live.all():
                yield codes, batch
            elif live.any():
                yield codes[live], batch.take(pa.array(np.flatnonzero(live)))

    def chunks(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Cut a range of pages so that each piece has a few megabytes."""
        ends = np.cumsum(self._reader.page_sizes()[first:last])
        at = first
        while at < last:
            before = ends[at - first - 1] if at > first else 0
            found = first + int(np.searchsorted(ends, before + _CHUNK_BYTES, "right"))
            end = max(at + 1, found)
            yield at, end
            at = end

    def read(self, first: int, last: int) -> tuple[NDArray[np.int64], pa.RecordBatch]:
        """Return the codes and the rows of pages ``first … last - 1``, dead ones among them."""
        count = int(self._reader.row_bounds[last] - self._reader.row_bounds[first])
        codes = np.empty(count, np.int64)
        self._reader.read_codes(first, last, codes)
        columns = [self._column(index, t, first, last, codes) for index, t in self._fields]
        return codes, pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(
        self, index: int, dtype: pa.DataType, first: int, last: int, codes: NDArray[np.int64]
    ) -> pa.Array:
        if index not in self._reader.manifest.stored_fields:  # a lone integer key
            return join_fixed(pa.int64(), codes, None).cast(dtype)
        names = part_names(index, dtype)
        encoding = encoding_of(dtype)
        if encoding is Encoding.NESTED:
            return self._messages(names["message"], dtype, first, last)
        validity = self._validity(names["validity"], first, last, len(codes))
        if encoding is Encoding.FIXED:
            values = self._part(names["values"], first, last).view(numpy_dtype(dtype))
            return join_fixed(dtype, values, validity)
        lengths = self._part(names["lengths"], first, last).view(np.int32)
        return join_bytes(dtype, lengths, self._part(names["data"], first, last), validity)

    def _part(self, name: str, first: int, last: int) -> NDArray[np.uint8]:
        out = np.empty(self._reader.part_bytes(name, first, last), np.uint8)
        if len(out):
            self._reader.read_part(name, first, last, out)
        return out

    def _validity(self, name: str, first: int, last: int, count: int) -> NDArray[np.uint8] | None:
        stored = self._part(name, first, last)
        if len(stored) in (0, count):
            return stored if len(stored) else None
        out = np.ones(count, np.uint8)  # extents without nulls store no validity
        bounds = self._reader.row_bounds[first : last + 1] - self._reader.row_bounds[first]
        for page in range(first, last):
            at = self._reader.part_bytes(name, first, page)
            size = self._reader.part_bytes(name, page, page + 1)
            start = int(bounds[page - first])
            out[start : start + size] = stored[at : at + size]
        return out

    def _messages(self, name: str, dtype: pa.DataType, first: int, last: int) -> pa.Array:
        image = self._part(name, first, last)
        sizes = [self._reader.part_bytes(name, page, page + 1) for page in range(first, last)]
        pieces = np.split(image, np.cumsum(sizes)[:-1])
        return concatenate([nested_from_message(dtype, piece) for piece in pieces])
