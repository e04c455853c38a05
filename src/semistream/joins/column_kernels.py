"""The hot loop that reads columns of a fixed width and copies rows out of them, in one call.

::

    pages ──► requests for one column ──► arena ──► its rows ──► out
                    ▲ the next column ◄──────────────┘

The arena holds one column at a time. So what was just read is copied out of the processor's cache.

What the page table has of each column is given by addresses: its arrays need not be copied to lie
side by side. The caller keeps them alive.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

from semistream.jit import njit
from semistream.joins.row_kernels import plan_in_place
from semistream.relation.read_kernels import _announce, _read, _read_at_once

UNCHECKED = -1
FAILED = -2


def _make_pointer(pointed_to: Any) -> Any:
    """Return a function that turns an address into a pointer."""

    def make(context, address):
        def build(context, builder, signature, arguments):
            to = context.get_value_type(signature.return_type)
            return builder.inttoptr(arguments[0], to)

        return types.CPointer(pointed_to)(types.int64), build

    return intrinsic(make)


def _make_move(width: int) -> Any:
    """Return a function that copies some bytes from one address to another, wherever these are."""

    def make(context, source, target):
        def build(context, builder, signature, arguments):
            number = ir.IntType(8 * width)
            source, target = (builder.inttoptr(a, number.as_pointer()) for a in arguments)
            builder.store(builder.load(source, align=1), target, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), build

    return intrinsic(make)


_to_numbers = _make_pointer(types.int64)
_to_flags = _make_pointer(types.boolean)
_move_1, _move_4, _move_8 = map(_make_move, (1, 4, 8))


@njit(cache=True, nogil=True)
def _gather(arena_at, places, width, out_at):
    """Copy rows out of a column; the usual widths have a loop each, of single moves."""
    if width == 8:
        for i in range(len(places)):
            _move_8(arena_at + places[i] * 8, out_at + i * 8)
    elif width == 4:
        for i in range(len(places)):
            _move_4(arena_at + places[i] * 4, out_at + i * 4)
    else:
        for i in range(len(places)):
            for j in range(width):
                _move_1(arena_at + places[i] * width + j, out_at + i * width + j)


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
        checked = carray(_to_flags(checked_at[column]), page_count)
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
        offsets = carray(_to_numbers(offsets_at[column]), page_count)
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
                    theirs = carray(_to_numbers(offsets_at[other]), page_count)
                    about = (row_bounds, widths[other], most_gap, page_starts, others)
                    for j in range(plan_in_place(pages, first, theirs, *about)):
                        _announce(descriptor, others[0, j], others[1, j])
            if _read(descriptor, to, size, offset) != size:
                return FAILED
        # 4. Copy the rows out, while the column is in the processor's cache.
        _gather(base, places, width, out.ctypes.data + starts[column])
    return total
