"""Reads parts of requested pages to where they would lie if all pages of a load were read.

::

    load        │ 20 │ 21 │ 22 │ 23 │ 24 │ 25 │ 26 │ 27 │
    requested     ██                  ██        ██           known before: from the window, or rows
    requests      ██                  ████████████           one for each, or one for all close by

Two pages share a request if reading what lies between them costs less than another request on the
device (`Reading.most_gap_bytes`). A gap is counted in bytes of the part: of narrow columns more
pages are read along than of wide ones. All requests for a part of one file are made in one native
call where the file is local.

So a row is always at the same place of a load, whatever was read of it; what was not requested is
undefined there. A part of a page is compared with its checksum the first time this process
requests it. If all of a load is read, it is read as a scan does, and the kernel may read ahead.

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
    """Some of the pages of a load."""

    first: int  # of the load
    last: int  # exclusive
    pages: Ints  # that are requested; they ascend
    by_file: tuple[slice, ...]  # those of them that lie in one file

    @classmethod
    def of(cls, reader: PageReader, first: int, last: int, pages: Ints) -> "RequestedPages":
        """Find out which of the pages share a file."""
        bounds = [0]
        while bounds[-1] < len(pages):
            bounds.append(reader.end_in_file(pages, bounds[-1]))
        return cls(first, last, pages, tuple(map(slice, bounds, bounds[1:])))

    @classmethod
    def all_of(cls, reader: PageReader, first: int, last: int) -> "RequestedPages":
        """Request every page of a load."""
        return cls.of(reader, first, last, np.arange(first, last))


def read_in_place(
    reader: PageReader, name: str, requested: RequestedPages, out: NDArray[np.uint8]
) -> Ints:
    """Read a part of requested pages; return the requests: offset, size and place in `out`."""
    part = reader.part(name)
    if part is None:  # no page has it
        return np.empty((3, 0), np.int64)
    starts = np.empty(len(requested.pages), np.int64)
    planned = []
    for some in requested.by_file:
        pages = requested.pages[some]
        requests = np.empty((3, len(pages)), np.int64)
        where = (part.offsets, part.ends, part.unit_bytes, reader.most_gap_bytes)
        count = plan_in_place(pages, requested.first, *where, starts[some], requests)
        planned.append(requests[:, :count])
    whole_bytes = part.size_bytes(requested.first, requested.last)
    if sum(int(requests[1].sum()) for requests in planned) == whole_bytes:
        reader.read_part(name, requested.first, requested.last, out)
    else:
        for some, requests in zip(requested.by_file, planned, strict=True):
            pages = requested.pages[some]
            if requests.shape[1]:
                reader.read_requests(part, int(pages[0]), requests, out)
            reader.check_pages(part, pages, out, starts[some])
    return planned[0] if len(planned) == 1 else np.concatenate(planned, axis=1)
