"""The read plan: parts of requested pages come into view, each in the way that costs least.

What a join needs is known before it is read: first the key codes of the pages on which its tuples
may match, then columns of the rows that did. A plan turns such a list of pages into requests:

==============================  =================================================================
of a local file, close by       a window of the file is mapped into memory: nothing is copied
of a local file, far apart      just these parts are read, all in one native loop
of any other file               requests; a gap is read along if that costs less than another one
==============================  =================================================================

A mapped window is unmapped when the next one is due, so what is mapped never piles up in the
process: windows and buffer have a fixed size (`PlannedReads.size_bytes`), which the caller reserves.
The parts of a page are compared with their checksums the first time this process sees them.
"""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semistream.relation import read_kernels as kernels
from semistream.relation.reader import PageReader, Part

# The cost of a mapped window, of each byte in it, and of a request to a local file that is in the
# page cache: measured, see docs/decisions.md.
_WINDOW_S = 12e-6
_MAPPED_BYTE_S = 1 / 40e9
_REQUEST_S = 0.8e-6
_MOST_WINDOW_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class View:
    """A part of some of the requested pages, in memory until the next one is asked for."""

    first: int  # of the requested pages
    last: int  # exclusive
    data: NDArray[np.uint8]
    starts: NDArray[np.int64]  # where the part of each of these pages begins in `data`


class PlannedReads:
    """Brings parts of requested pages into view, a few at a time."""

    def __init__(self, reader: PageReader, size_bytes: int) -> None:
        """Use at most `size_bytes`; a half of it is for mapped windows, if there are any."""
        self.bytes_read = 0  # of the parts that were in view
        self._reader = reader
        can_map = reader.can_map
        self._buffer = np.empty(size_bytes // 2 if can_map else size_bytes, np.uint8)
        self._window_bytes = min(_MOST_WINDOW_BYTES, size_bytes // 2) if can_map else 0
        # So many pages within a window cost as much as the window.
        window_s = _WINDOW_S + self._window_bytes * _MAPPED_BYTE_S
        self._dense = max(2, int(window_s / _REQUEST_S))
        self._room_in_window = self._window_bytes - mmap.ALLOCATIONGRANULARITY

    def views(self, name: str, pages: NDArray[np.int64]) -> Iterator[View]:
        """Yield views of a part of some pages, which ascend, until all have been in view.

        The caller must drop a view before it asks for the next.
        """
        part = self._reader.part(name)
        if part is None:  # no page has it
            return
        self.bytes_read += part.bytes_of(pages)
        at = 0
        while at < len(pages):
            in_file = pages[: self._reader.end_in_file(pages, at)]
            view = self._mapped(part, in_file, at) or self._planned(part, in_file, at)
            at = view.last
            yield view
            del view

    def values(self, name: str, width: int, rows: "RowsByPage") -> NDArray[np.uint8]:
        """Return the values of a fixed width of some rows, as bytes.

        Where they are few and far apart, only they are read, not the parts that they lie in. That
        is for parts whose checksums were compared before.
        """
        part = self._reader.part(name)
        assert part is not None, "every page has values"
        out = np.empty(len(rows.rows) * width, np.uint8)
        at = 0
        while at < len(rows.pages):
            in_file = rows.pages[: self._reader.end_in_file(rows.pages, at)]
            view = self._mapped(part, in_file, at)
            last = self._end_of_sparse(part, in_file, at) if view is None else view.last
            if view is None and not (self._window_bytes and part.checked[in_file[at:last]].all()):
                view = self._planned(part, in_file, at)
                last = view.last
            which, indexes, in_page = rows.within(at, last)
            some = out[which.start * width : which.stop * width]
            if view is None:
                offsets = part.offsets[in_file[at:last]]
                where = (offsets, at, indexes, in_page, width)
                self._reader.read_values(part, int(in_file[at]), *where, some)
                self.bytes_read += some.nbytes
            else:
                kernels.gather_fixed(view.data, view.starts, at, indexes, in_page, width, some)
                self.bytes_read += part.bytes_of(in_file[at:last])
                del view
            at = last
        return out

    def _end_of_sparse(self, part: Part, pages: NDArray[np.int64], first: int) -> int:
        """Return up to which of some pages none are worth a window."""
        about = (part.offsets, part.ends, part.unit_bytes, self._room_in_window, self._dense)
        return max(first + 1, int(kernels.end_of_sparse(pages, first, *about)))

    def _mapped(self, part: Part, pages: NDArray[np.int64], first: int) -> View | None:
        """Return the next pages through a window of the file, if they lie close together."""
        if not self._window_bytes or first + self._dense > len(pages):
            return None
        where = (part.offsets, part.ends, part.unit_bytes, self._room_in_window)
        last = int(kernels.end_of_window(pages, first, *where))
        if last - first < self._dense:
            return None
        some = pages[first:last]
        start = int(part.offsets[some[0]])
        start -= start % mmap.ALLOCATIONGRANULARITY
        final = int(some[-1])
        end = int(part.offsets[final]) + part.size_bytes(final, final + 1)
        data = self._reader.map(part, int(some[0]), start, end - start)
        return self._checked(part, pages, View(first, last, data, part.offsets[some] - start))

    def _planned(self, part: Part, pages: NDArray[np.int64], first: int) -> View:
        """Return the next pages after reading them into the buffer, as many as it holds."""
        if self._window_bytes:
            pages = pages[: self._end_of_sparse(part, pages, first)]
        count = len(pages) - first
        requests, starts = np.empty((3, count), np.int64), np.empty(count, np.int64)
        where = (part.offsets, part.ends, part.unit_bytes, self._reader.most_gap_bytes)
        room = (len(self._buffer), starts, requests)
        last, count = kernels.plan_requests(pages, first, *where, *room)
        assert last > first, "the buffer was sized too small for a page"
        self._reader.read_requests(part, int(pages[first]), requests[:, :count], self._buffer)
        return self._checked(part, pages, View(first, last, self._buffer, starts[: last - first]))

    def _checked(self, part: Part, pages: NDArray[np.int64], view: View) -> View:
        self._reader.check_pages(part, pages[view.first : view.last], view.data, view.starts)
        return view


class RowsByPage:
    """Some rows of R, by page: on which pages they lie, and where on these."""

    def __init__(self, rows: NDArray[np.int64], row_bounds: NDArray[np.int64]) -> None:
        """Find the pages of the rows, which do not go back to an earlier page."""
        self.rows = rows
        pages, self._indexes, self._in_page = np.empty((3, len(rows)), np.int64)
        about = (row_bounds, pages, self._indexes, self._in_page)
        self.pages = pages[: kernels.pages_of_rows(rows, *about)]

    def within(
        self, first: int, last: int
    ) -> tuple[slice, NDArray[np.int64], NDArray[np.int64]]:
        """Return which rows are on some of the pages: their page's index, and their place on it."""
        if last - first == len(self.pages):
            return slice(0, len(self.rows)), self._indexes, self._in_page
        begin, end = np.searchsorted(self._indexes, (first, last)).tolist()
        return slice(begin, end), self._indexes[begin:end], self._in_page[begin:end]
