"""Reads parts of requested pages to where they would lie if all pages of a load were read.

::

    load        │ 20 │ 21 │ 22 │ 23 │ 24 │ 25 │ 26 │ 27 │
    requested     ██                  ██        ██           known before: from the window, or rows
    requests      ██                  ████████████           one for each, or one for all close by

Two pages share a request if reading what lies between them costs less than another request on the
device (`Reading.most_gap_bytes`). A gap is counted in bytes of the part, so in narrow columns it
may have more pages than in wide ones. All requests for a part of one file are made in one native
call where the file is local.

So a row is always at the same place of a load, whatever was read of it; what was not requested is
undefined there. A part of a page is compared with its checksum the first time this process
requests it. If every page is requested, they are read as by a scan, and the kernel may read ahead.

Memory: 32 bytes for each requested page, while it is read.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semistream.joins.row_kernels import plan_in_place
from semistream.relation.reader import PageReader

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RequestedPages:
    """Some of the pages of a load, or of a part of it."""

    first: int  # of the load
    last: int  # exclusive
    pages: Ints  # that are requested; they ascend
    by_file: tuple[slice, ...]  # those of them that lie in one file, unless all are requested

    @classmethod
    def of(cls, reader: PageReader, first: int, last: int, pages: Ints) -> "RequestedPages":
        """Find out which of the pages share a file."""
        bounds = [0]
        while bounds[-1] < len(pages) < last - first:
            bounds.append(reader.end_in_file(pages, bounds[-1]))
        return cls(first, last, pages, tuple(map(slice, bounds, bounds[1:])))

    @classmethod
    def all_of(cls, reader: PageReader, first: int, last: int) -> "RequestedPages":
        """Request every page of a load."""
        return cls.of(reader, first, last, np.arange(first, last))

    @property
    def are_all(self) -> bool:
        """Whether every page of the load is requested."""
        return len(self.pages) == self.last - self.first


def read_in_place(
    reader: PageReader, name: str, requested: RequestedPages, out: NDArray[np.uint8]
) -> Ints:
    """Read a part of requested pages; return the size and the place in `out` of each request."""
    part = reader.part(name)
    if part is None:  # no page has it
        return np.empty((2, 0), np.int64)
    if requested.are_all:
        reader.read_part(name, requested.first, requested.last, out)
        return np.array([[part.size_bytes(requested.first, requested.last)], [0]])
    starts = np.empty(len(requested.pages), np.int64)
    made = []
    for some in requested.by_file:
        pages = requested.pages[some]
        requests = np.empty((3, len(pages)), np.int64)
        where = (part.offsets, part.ends, part.unit_bytes, reader.most_gap_bytes)
        count = plan_in_place(pages, requested.first, *where, starts[some], requests)
        if count:
            reader.read_requests(part, int(pages[0]), requests[:, :count], out)
            reader.check_pages(part, pages, out, starts[some])
        made.append(requests[1:, :count])
    return made[0] if len(made) == 1 else np.concatenate(made, axis=1)
