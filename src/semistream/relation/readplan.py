"""The read plan: parts of pages and values of rows, read by the requests that cost least.

What a join needs is known before it is read: first the key codes of the pages on which its tuples
may match, then columns of the rows that did. A plan turns such a list of pages, or of rows, into
requests, by what one costs on the device (`Reading.most_gap_bytes`):

=====================  ==========================================================================
pages close together   one request for all of them; the gaps between them are read as well
pages far apart        a request for each
rows far apart         a request for each value, if the file is local and was checked before
a few rows on most     none: the file is mapped, and they are looked at where they lie in the page
pages                  cache, if they are there
=====================  ==========================================================================

Requests are made in one native loop where the file is local. They go into a buffer that fits the
processor's cache, so what was just read is searched or copied from there. A part of a page is
compared with its checksum the first time this process sees it.

A mapped file costs by its length, whatever is looked at, but less than a copy of it. So mapping is
best between a request for each row and a copy of everything (docs/decisions.md has the figures).

Memory: the buffer; what is mapped, which is released with each view; and for each page requested
its place in the buffer and its request, 40 bytes.
"""

import mmap
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semistream.relation import read_kernels as kernels
from semistream.relation.pagetable import CODES
from semistream.relation.parts import Part
from semistream.relation.reader import PageReader

# Single values are read if the rows are fewer than this on each page: a request for a page's whole
# part costs about as much as this many for values of it.
_MOST_VALUES_PER_PAGE = 1.5

_MOST_PAGES = 4096  # in one view

# A page fault maps what lies around it as well, at most one entry of the processor's page table.
MAPPED_UNIT = 2 << 20
# What looking at rows costs, in ns on a common machine; only their ratios matter.
_REQUEST_NS = 900.0
_COPIED_BYTE_NS = 0.2
_MAPPED_BYTE_NS = 0.08  # of all that lies between the first row and the last
_MAPPED_ROW_NS = 60.0  # each is a cache miss


@dataclass(frozen=True, slots=True)
class View:
    """A part of some of the requested pages, in memory until the next one is asked for."""

    first: int  # of the requested pages
    last: int  # exclusive
    data: NDArray[np.uint8]
    starts: NDArray[np.int64]  # where the part of each of these pages begins in `data`


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
        # In view at a time; the first page of a view may begin in the unit before.
        self._mapped_units = mapped_bytes // MAPPED_UNIT - 1
        self._in_view: tuple[mmap.mmap, View] | None = None  # of a mapped file

    def views(self, name: str, pages: NDArray[np.int64], rows: int | None = None) -> Iterator[View]:
        """Yield views of a part of some pages, which ascend, until all have been in view.

        A view is overwritten by the next one. `rows` is the number of rows that will be looked at,
        if these are single ones.
        """
        part = self._reader.part(name)
        if part is None:  # no page has it
            return
        at = end = 0
        mapped = None
        while at < len(pages):
            if at == end:
                end = self._reader.end_in_file(pages, at)
                share = None if rows is None else rows * (end - at) / len(pages)
                mapped = self._map(part, pages[at:end], share)
            with self._timer:
                if mapped is None:
                    view = self._read(part, pages[:end], at)
                else:
                    view = self._look(mapped, part, pages[:end], at)
            at = view.last
            yield view
            self.release()

    def release(self) -> None:
        """Let go of what is mapped. It stays in the page cache, and may be looked at again."""
        if self._in_view is not None:
            mapped, view = self._in_view
            begin = int(view.starts[0]) // MAPPED_UNIT * MAPPED_UNIT
            end = min(len(mapped), (int(view.starts[-1]) // MAPPED_UNIT + 2) * MAPPED_UNIT)
            mapped.madvise(mmap.MADV_DONTNEED, begin, end - begin)

    def values(self, name: str, width: int, rows: "RowsByPage") -> NDArray[np.uint8]:
        """Return the values of a fixed width of some rows, as bytes."""
        part = self._reader.part(name)
        assert part is not None, "every page has values"
        out = np.empty(len(rows.rows) * width, np.uint8)
        count = len(rows.rows)
        if self._are_apart(part, rows) and not self._is_for_mapping(part, rows.pages, count):
            with self._timer:
                self._read_values(part, width, rows, out)
            return out
        for view in self.views(name, rows.pages, count):
            which, indexes, in_page = rows.within(view.first, view.last)
            some = out[which.start * width : which.stop * width]
            about = (view.data, view.starts, view.first, indexes, in_page, width)
            kernels.gather_fixed(*about, some)
        return out

    def _are_apart(self, part: Part, rows: "RowsByPage") -> bool:
        """Return whether a request for each value costs least; all parts must have been checked."""
        pages = rows.pages
        if not self._reader.reads_values or len(rows.rows) > _MOST_VALUES_PER_PAGE * len(pages):
            return False
        span = int(part.offsets[pages[-1]] - part.offsets[pages[0]])
        is_dense = 0 <= span < len(pages) * (self._reader.most_gap_bytes + part.bytes_of(pages[:1]))
        return not is_dense and bool(part.checked[pages].all())

    def _read_values(
        self, part: Part, width: int, rows: "RowsByPage", out: NDArray[np.uint8]
    ) -> None:
        first = 0
        while first < len(rows.pages):
            last = self._reader.end_in_file(rows.pages, first)
            which, indexes, in_page = rows.within(first, last)
            requests = np.empty((3, len(indexes)), np.int64)
            requests[0] = part.offsets[rows.pages[indexes]] + width * in_page
            requests[1] = width
            requests[2] = width * np.arange(which.start, which.stop)
            self._reader.read_requests(part, int(rows.pages[first]), requests, out)
            first = last
        self.bytes_read += out.nbytes

    def _is_for_mapping(self, part: Part, pages: NDArray[np.int64], rows: float | None) -> bool:
        """Return whether looking at rows where they lie costs less than reading them."""
        if rows is None or self._mapped_units < 1:
            return False
        if self._reader.most_part_bytes(part.name, 1) > MAPPED_UNIT:
            return False
        between = part.size_bytes(int(pages[0]), int(pages[-1]) + 1)
        requested = _REQUEST_NS * len(pages) + _COPIED_BYTE_NS * part.bytes_of(pages)
        read_ns = min(requested, _COPIED_BYTE_NS * between)
        if part.name != CODES and part.checked[pages].all():  # single values can be requested
            read_ns = min(read_ns, _REQUEST_NS * rows)
        return _MAPPED_BYTE_NS * between + _MAPPED_ROW_NS * rows < read_ns

    def _map(self, part: Part, pages: NDArray[np.int64], rows: float | None) -> mmap.mmap | None:
        """Map the file of some pages, if that is best and they are in the page cache."""
        self._in_view = None
        if not self._is_for_mapping(part, pages, rows):
            return None
        return self._reader.map_cached(part, pages)

    def _look(self, mapped: mmap.mmap, part: Part, pages: NDArray[np.int64], first: int) -> View:
        """Return the next pages where they lie in a mapped file."""
        where = (part.offsets, part.ends, part.unit_bytes)
        last = kernels.pages_within(pages, first, *where, MAPPED_UNIT, self._mapped_units)
        some = pages[first:last]
        view = View(first, last, np.frombuffer(mapped, np.uint8), part.offsets[some])
        self._in_view = (mapped, view)
        self._reader.check_pages(part, some, view.data, view.starts)
        self.bytes_read += part.bytes_of(some)
        return view

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
        return View(first, last, self._buffer, starts)


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
