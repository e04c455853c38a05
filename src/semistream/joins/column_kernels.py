"""The hot loops that copy rows out of columns of a fixed width, all columns in one call.

::

    pages ──► requests for one column ──► arena ──► its rows ──► out
                    ▲ the next column ◄──────────────┘

The arena holds one column at a time. So what was just read is copied out of the processor's cache.
In a mapped file there is no arena: rows are copied from where they lie.

What the page table has of each column is given by addresses: its arrays need not be copied to lie
side by side. The caller keeps them alive.
"""

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from semistream.jit import njit
from semistream.joins.row_kernels import plan_in_place
from semistream.relation.moves import move_1, move_4, move_8, to_flags, to_numbers
from semistream.relation.read_kernels import _announce, _read, _read_at_once, gather_fixed

UNCHECKED = -1
FAILED = -2


@njit(cache=True, nogil=True)
def _gather(arena_at, places, width, out_at):
    """Copy rows out of a column; the usual widths have a loop each, of single moves."""
    if width == 8:
        for i in range(len(places)):
            move_8(arena_at + places[i] * 8, out_at + i * 8)
    elif width == 4:
        for i in range(len(places)):
            move_4(arena_at + places[i] * 4, out_at + i * 4)
    else:
        for i in range(len(places)):
            for j in range(width):
                move_1(arena_at + places[i] * width + j, out_at + i * width + j)


@njit(cache=True, nogil=True)
def read_and_gather(
    descriptor,
    pages,
    row_bounds,
    places,
    offsets_at,
    checked_at,
    widths,
    most_gap,
    arena,
    starts,
    out,
):
    """Read columns of some pages of one file, and copy rows out of each; return the bytes read.

    `places` are the rows, counted from the first row of the first page. Of each column there are
    the address of its pages' offsets in the file and of the flags that tell which were checked, the
    width of a value, and where its rows go in `out`. Returns `UNCHECKED` if a page must be compared
    with its checksum first, and `FAILED` if a request is not answered in full.
    """
    page_count, first = len(row_bounds) - 1, pages[0]
    # 1. Nothing is read unless all has been checked.
    for column in range(len(widths)):
        checked = carray(to_flags(checked_at[column]), page_count)
        for page in pages:
            if not checked[page]:
                return UNCHECKED
    page_starts = np.empty(len(pages), np.int64)
    requests = np.empty((3, len(pages)), np.int64)
    vector = np.empty(2, np.uint64)
    base = arena.ctypes.data
    is_announced = False
    total = 0
    for column in range(len(widths)):
        width = widths[column]
        # 2. Plan the requests for one column.
        offsets = carray(to_numbers(offsets_at[column]), page_count)
        about = (row_bounds, width, most_gap, page_starts, requests)
        count = plan_in_place(pages, first, offsets, *about)
        # 3. Make them. The first time that one has to wait for the device, announce what all other
        # columns need, so that the device works on all of it at once.
        for i in range(count):
            offset, size, to = requests[0, i], requests[1, i], base + requests[2, i]
            total += size
            if _read_at_once(descriptor, to, size, offset, vector) == size:
                continue
            if not is_announced:
                is_announced = True
                others = np.empty((3, len(pages)), np.int64)
                for other in range(column, len(widths)):
                    theirs = carray(to_numbers(offsets_at[other]), page_count)
                    about = (row_bounds, widths[other], most_gap, page_starts, others)
                    for j in range(plan_in_place(pages, first, theirs, *about)):
                        _announce(descriptor, others[0, j], others[1, j])
            if _read(descriptor, to, size, offset) != size:
                return FAILED
        # 4. Copy the rows out, while the column is in the processor's cache.
        _gather(base, places, width, out.ctypes.data + starts[column])
    return total


@njit(cache=True, nogil=True)
def look_and_gather(
    data, window, pages, first, indexes, in_page, offsets_at, page_count, widths, starts, out
):
    """Copy rows of some pages of a mapped file out of each column.

    `indexes` tell each row's page among `pages`, counted from `first`. Of each column there are the
    address of its pages' offsets in the file, the width of a value, and where its rows go in `out`.
    """
    begins = np.empty(len(pages), np.int64)
    for column in range(len(widths)):
        offsets = carray(to_numbers(offsets_at[column]), page_count)
        for i in range(len(pages)):
            begins[i] = offsets[pages[i]]
        width, to = widths[column], starts[column]
        some = out[to : to + len(indexes) * width]
        gather_fixed(data, window, begins, first, indexes, in_page, width, some)
