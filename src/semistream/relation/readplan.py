"""The read plan: parts of pages and values of rows, read by the requests that cost least.

What a join needs is known before it is read: first the key codes of the pages on which its tuples
may match, then columns of the rows that did. A plan turns such a list of pages, or of rows, into
requests, by what one costs on the device (`Reading.most_gap_bytes`):

=====================  ==========================================================================
pages close together   one request for all of them; the gaps between them are read as well
pages far apart        a request for each
rows far apart         a request for each value, if the file is local and was checked before
rows in the page       none, if mapping the file costs less: it is mapped, and they are looked at
cache                  where they lie
=====================  ==========================================================================

Requests are made in one native loop where the file is local. They go into a buffer that fits the
processor's cache, so what was just read is searched or copied from there. A part of a page is
compared with its checksum the first time this process sees it.

Whether to map depends on what it costs to map a part of this file, which is measured (`mapped.py`,
docs/decisions.md has the figures). Pages that were not compared with their checksums are compared
where they lie, too.

Memory: the buffer; what is mapped; and for each page requested its place in the buffer and its
request, 40 bytes.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from semistream.relation import read_kernels as kernels
from semistream.relation.mapped import NOT_MAPPED, MappedFile
from semistream.relation.pagetable import CODES
from semistream.relation.parts import Part
from semistream.relation.read_kernels import UNIT_BYTES
from semistream.relation.reader import PageReader

# Single values are read if the rows are fewer than this on each page: a request for a page's whole
# part costs about as much as this many for values of it.
_MOST_VALUES_PER_PAGE = 1.5

_MOST_PAGES = 4096  # in one view

# What looking at rows costs, in ns on a common machine; only their ratios matter.
_REQUEST_NS = 900.0
_COPIED_BYTE_NS = 0.2
_MAPPED_ROW_NS = 25.0  # cache misses that overlap
_LARGE_UNIT_NS = 1_500.0  # to map a unit of a file that is one large page, and to let go of it
_SMALL_UNIT_NS = 100_000.0  # if it is many small ones
_PAGE_FAULT_NS = 3_000.0  # which maps some of the small ones


@dataclass(frozen=True, slots=True)
class View:
    """A part of some of the requested pages, in memory until the next one is asked for."""

    first: int  # of the requested pages
    last: int  # exclusive
    data: NDArray[np.uint8]
    starts: NDArray[np.int64]  # where the part of each of these pages begins in `data`
    window: NDArray[np.int64]  # of a mapped file, for kernels (`mapped.py`)


class PlannedReads:
    """Brings parts of requested pages into view, a few at a time."""

    def __init__(
        self,
        reader: PageReader,
        buffer_bytes: int,
        mapped_bytes: int = 0,
        timer: AbstractContextManager[None] | None = None,
    ) -> None:
        """Allocate the buffer; it must hold the largest part of a page. `timer` times the reads.

        At most `mapped_bytes` of a file are mapped at a time.
        """
        self.bytes_read = 0
        self._timer = timer or nullcontext()
        self._reader = reader
        self._buffer = np.empty(buffer_bytes, np.uint8)
        self._mapped_bytes = mapped_bytes
        self._in_view: tuple[MappedFile, View] | None = None  # of a mapped file

    def views(self, name: str, pages: NDArray[np.int64], rows: int | None = None) -> Iterator[View]:
        """Yield views of a part of some pages, which ascend, until all have been in view.

        A view is overwritten by the next one. `rows` is the number of rows that will be looked at,
        in the order of the pages, if these are single ones.
        """
        part = self._reader.part(name)
        if part is None:  # no page has it
            return
        for first, last in self.runs(pages):
            share = None if rows is None else rows * (last - first) / len(pages)
            mapped = self._map(part, pages[first:last], share)
            yield from self._in_file(mapped, part, pages, first, last)

    def runs(self, pages: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        """Yield runs of pages that lie in one file."""
        first = 0
        while first < len(pages):
            last = self._reader.end_in_file(pages, first)
            yield first, last
            first = last

    def _in_file(
        self,
        mapped: MappedFile | None,
        part: Part,
        pages: NDArray[np.int64],
        first: int,
        last: int,
    ) -> Iterator[View]:
        """Yield views of pages in one file, which may be mapped."""
        if mapped is None:
            yield from self._read_in_turn(part, pages[:last], first)
        else:
            yield self._look(mapped, part, pages, first, last)
            self.release()

    def release(self) -> None:
        """Let go of what is mapped. It stays in the page cache, and may be looked at again."""
        if self._in_view is not None:
            mapped, view = self._in_view
            mapped.release(view.window)

    def values(self, name: str, width: int, rows: "RowsByPage") -> NDArray[np.uint8]:
        """Return the values of a fixed width of some rows, as bytes."""
        part = self._reader.part(name)
        assert part is not None, "every page has values"
        out = np.empty(len(rows.rows) * width, np.uint8)
        for first, last in self.runs(rows.pages):
            which, indexes, in_page = rows.within(first, last)
            some, count = rows.pages[first:last], which.stop - which.start
            mapped = self._map(part, some, count)
            is_apart = mapped is None and self._are_apart(part, some, count)
            if is_apart and bool(part.checked[some].all()):
                offsets = part.offsets[rows.pages[indexes]] + width * in_page
                self._read_values(part, int(some[0]), offsets, width, out[which.start * width :])
                continue
            for view in self._in_file(mapped, part, rows.pages, first, last):
                which, indexes, in_page = rows.within(view.first, view.last)
                about = (view.data, view.window, view.starts, view.first, indexes, in_page, width)
                kernels.gather_fixed(*about, out[which.start * width : which.stop * width])
        return out

    def are_apart(self, name: str, pages: NDArray[np.int64], rows: int) -> bool:
        """Return whether rows on some pages lie so far apart that each is best read by itself."""
        part = self._reader.part(name)
        return part is not None and all(
            self._are_apart(part, pages[first:last], rows * (last - first) / len(pages))
            for first, last in self.runs(pages)
        )

    def maps(self, name: str, pages: NDArray[np.int64], rows: int) -> bool:
        """Return whether rows on some pages would be looked at where they lie in a mapped file."""
        part = self._reader.part(name)
        runs = () if part is None else self.runs(pages)
        return part is not None and any(
            self._map(part, pages[first:last], rows * (last - first) / len(pages)) is not None
            for first, last in runs
        )

    def look_at_parts(
        self, parts: Sequence[Part], pages: NDArray[np.int64], rows: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]] | None:
        """Return a mapped file and its window, to look at rows of several parts where they lie.

        None if reading costs less. The pages lie in one file; they are compared with their
        checksums.
        """
        widest = max(parts, key=lambda part: part.unit_bytes)
        mapped = self._map(widest, pages, rows, parts)
        if mapped is None:
            return None
        views = [self._look(mapped, part, pages, 0, len(pages)) for part in parts]
        return mapped.data, views[-1].window

    def read_each(
        self, name: str, page: int, offsets: NDArray[np.int64], width: int
    ) -> NDArray[np.uint8]:
        """Return `width` bytes at each offset of a page's file, back to back in the buffer.

        It is for pages that were compared with their checksums.
        """
        part = self._reader.part(name)
        assert part is not None, "the caller has found it"
        out = self._buffer[: width * len(offsets)]
        self._read_values(part, page, offsets, width, out)
        return out

    @property
    def buffer_bytes(self) -> int:
        """The size of the buffer."""
        return len(self._buffer)

    def _are_apart(self, part: Part, pages: NDArray[np.int64], rows: float) -> bool:
        """Return whether a request for each value costs least."""
        if not self._reader.reads_values or rows > _MOST_VALUES_PER_PAGE * len(pages):
            return False
        span = int(part.offsets[pages[-1]] - part.offsets[pages[0]])
        is_dense = 0 <= span < len(pages) * (self._reader.most_gap_bytes + part.bytes_of(pages[:1]))
        return not is_dense

    def _read_values(
        self,
        part: Part,
        page: int,
        offsets: NDArray[np.int64],
        width: int,
        out: NDArray[np.uint8],
    ) -> None:
        """Read a value at each offset of the file in which a page lies."""
        requests = np.empty((3, len(offsets)), np.int64)
        requests[0], requests[1] = offsets, width
        requests[2] = width * np.arange(len(offsets))
        with self._timer:
            self._reader.read_requests(part, page, requests, out)
        self.bytes_read += width * len(offsets)

    def _map(
        self,
        part: Part,
        pages: NDArray[np.int64],
        rows: float | None,
        parts: Sequence[Part] | None = None,
    ) -> MappedFile | None:
        """Map the file of some pages, if they are cached and looking at rows there costs least.

        Rows of all `parts` are looked at, of which this one costs most.
        """
        self._in_view = None
        if rows is None or self._mapped_bytes < 2 * UNIT_BYTES:
            return None
        if self._reader.most_part_bytes(part.name, 1) > UNIT_BYTES:
            return None
        between = part.size_bytes(int(pages[0]), int(pages[-1]) + 1)
        requested = _REQUEST_NS * len(pages) + _COPIED_BYTE_NS * part.bytes_of(pages)
        read_ns = min(requested, _COPIED_BYTE_NS * between)
        if part.name != CODES:  # single values can be requested
            read_ns = min(read_ns, _REQUEST_NS * rows)
        units = min(2 + between / UNIT_BYTES, rows)
        if read_ns < _mapped_ns(units, rows, small_share=0):
            return None
        mapped = self._reader.map_cached(parts or (part,), pages)
        if mapped is None:
            return None
        small_share = mapped.small_share(part.offsets[pages])
        return mapped if _mapped_ns(units, rows, small_share) <= read_ns else None

    def _look(
        self, mapped: MappedFile, part: Part, pages: NDArray[np.int64], first: int, last: int
    ) -> View:
        """Return pages of a mapped file where they lie, compared with their checksums."""
        some = pages[first:last]
        self._check_in_place(mapped, part, some[~part.checked[some]])
        self.bytes_read += part.bytes_of(some)
        window = mapped.window(self._mapped_bytes)
        view = View(first, last, mapped.data, part.offsets[some], window)
        self._in_view = (mapped, view)
        return view

    def _check_in_place(self, mapped: MappedFile, part: Part, pages: NDArray[np.int64]) -> None:
        """Compare pages of a mapped file with their checksums, some at a time."""
        if not len(pages):
            return
        begins = part.offsets[pages]
        ends = begins + part.sizes_of(pages)
        # Units that are mapped, at the most: a page may begin in one and end in the next.
        in_units = begins // UNIT_BYTES
        is_new = np.diff(in_units, prepend=-1) != 0
        units = np.cumsum(is_new.astype(np.int64) + ((ends - 1) // UNIT_BYTES > in_units))
        turns = units // (self._mapped_bytes // UNIT_BYTES - 1)
        bounds = [0, *(np.flatnonzero(np.diff(turns)) + 1).tolist(), len(pages)]
        window = mapped.window(self._mapped_bytes)
        for first, last in pairwise(bounds):
            window[:2] = begins[first:last].min() // UNIT_BYTES * UNIT_BYTES, ends[first:last].max()
            try:
                with self._timer:
                    some = slice(first, last)
                    self._reader.check_pages(part, pages[some], mapped.data, begins[some])
            finally:
                mapped.release(window)

    def _read_in_turn(self, part: Part, pages: NDArray[np.int64], first: int = 0) -> Iterator[View]:
        """Read pages of one file into the buffer, as many at a time as it holds."""
        while first < len(pages):
            with self._timer:
                view = self._read(part, pages, first)
            yield view
            first = view.last

    def _read(self, part: Part, pages: NDArray[np.int64], first: int) -> View:
        """Return the next pages after reading them into the buffer, as many as it holds."""
        count = min(_MOST_PAGES, len(pages) - first)
        requests, starts = np.empty((3, count), np.int64), np.empty(count, np.int64)
        where = (part.offsets, part.ends, part.unit_bytes, self._reader.most_gap_bytes)
        room = (len(self._buffer), starts, requests)
        last, count = kernels.plan_requests(pages[: first + count], first, *where, *room)
        assert last > first, "the buffer was sized too small for a page"
        requests, starts = requests[:, :count], starts[: last - first]
        self._reader.read_requests(part, int(pages[first]), requests, self._buffer)
        self._reader.check_pages(part, pages[first:last], self._buffer, starts)
        self.bytes_read += int(requests[1].sum())
        return View(first, last, self._buffer, starts, NOT_MAPPED)


def _mapped_ns(units: float, rows: float, small_share: float) -> float:
    """Return what it costs to look at rows in some units of a mapped file."""
    small_ns = min(_SMALL_UNIT_NS, _PAGE_FAULT_NS * rows / units)
    unit_ns = small_share * small_ns + (1 - small_share) * _LARGE_UNIT_NS
    return units * unit_ns + _MAPPED_ROW_NS * rows


class RowsByPage:
    """Some rows of R, by page: on which pages they lie, and where on these."""

    def __init__(self, rows: NDArray[np.int64], row_bounds: NDArray[np.int64]) -> None:
        """Find the pages of the rows, which do not go back to an earlier page."""
        self.rows = rows
        pages, self._indexes, self._in_page = np.empty((3, len(rows)), np.int64)
        about = (row_bounds, pages, self._indexes, self._in_page)
        self.pages = pages[: kernels.locate_rows(rows, *about)]

    def within(self, first: int, last: int) -> tuple[slice, NDArray[np.int64], NDArray[np.int64]]:
        """Return which rows are on some of the pages: their page's index, and their place on it."""
        if last - first == len(self.pages):
            return slice(0, len(self.rows)), self._indexes, self._in_page
        begin, end = np.searchsorted(self._indexes, (first, last)).tolist()
        return slice(begin, end), self._indexes[begin:end], self._in_page[begin:end]
