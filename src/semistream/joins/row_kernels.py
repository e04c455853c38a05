"""The hot loops of rows: which pages to read for them, and how they lie in arenas.

A *record* of an arena is a slot, a length and the bytes, so that the arena can be squeezed from
front to back: a record whose slot points elsewhere has been dropped.
"""

import numpy as np

from semistream.budget.rowsizes import RECORD_HEADER_BYTES
from semistream.jit import njit
from semistream.joins.kernels import NO_SLOT
from semistream.relation.writer import CODE_BYTES


@njit(cache=True)
def pages_of_rows(rows, row_bounds, first_page, last_page, out_pages):
    """Find the pages of some rows of a page range; return how many there are.

    Rows count from the range's first, in any order. Each page is written once; they ascend.
    """
    base = row_bounds[first_page]
    is_requested = np.zeros(last_page - first_page, np.bool_)
    # Pages have about as many rows each: the guess is right or next to it.
    pages_per_row = (last_page - first_page) / np.float64(row_bounds[last_page] - base)
    for row in rows:
        page = first_page + np.int64(row * pages_per_row)
        while row + base >= row_bounds[page + 1]:
            page += 1
        while row + base < row_bounds[page]:
            page -= 1
        is_requested[page - first_page] = True
    count = 0
    for page in range(first_page, last_page):
        if is_requested[page - first_page]:
            out_pages[count] = page
            count += 1
    return count


@njit(cache=True)
def plan_in_place(pages, first_page, offsets, ends, unit_bytes, most_gap, out_starts, out_requests):
    """Plan the requests for a part of some pages of one file; return how many requests.

    Two pages share a request if at most `most_gap` bytes lie between them, all of this part. Writes
    where each page begins if all pages from `first_page` on lie back to back, and of each request
    its offset, its size, and its place among them.
    """
    count = 0
    for i in range(len(pages)):
        page = pages[i]
        size = (ends[page + 1] - ends[page]) * unit_bytes
        place = (ends[page] - ends[first_page]) * unit_bytes
        out_starts[i] = place
        if size == 0:
            continue
        if count:
            gap = place - out_requests[2, count - 1] - out_requests[1, count - 1]
            in_file = offsets[page] - out_requests[0, count - 1] - out_requests[1, count - 1]
            if gap <= most_gap and gap == in_file:
                out_requests[1, count - 1] += gap + size
                continue
        out_requests[0, count] = offsets[page]
        out_requests[1, count] = size
        out_requests[2, count] = place
        count += 1
    return count


@njit(cache=True)
def end_runs(requests, row_bounds, first_page, last_page, codes, out_ends):
    """Say of each page of a load up to which row its codes were read; return how many pages were.

    `requests` are the size and the place of each one that was made for the codes. Writes for each
    page the row, counted from the first of the load, at which the codes that were read with it end;
    0 if it was not read. The code behind them is set to one that differs, so that no run of equal
    codes seems to go on there.
    """
    out_ends[:] = 0
    base = row_bounds[first_page]
    page = last_page - 1
    read = 0
    end = begin = np.int64(-1)
    for i in range(requests.shape[1] - 1, -1, -1):
        start = requests[1, i] // CODE_BYTES
        stop = start + requests[0, i] // CODE_BYTES
        if stop != begin:  # else the next run begins where this one ends
            end = stop
            if end < len(codes):
                codes[end] = ~codes[end - 1]
        begin = start
        while row_bounds[page] - base >= stop:
            page -= 1
        while page >= first_page and row_bounds[page] - base >= start:
            out_ends[page - first_page] = end
            page -= 1
            read += 1
    return read


@njit(cache=True)
def starts_of(lengths, pages, first_page, row_bounds, data_ends, unit_bytes, starts):
    """Fill in where each row of some pages starts, if the data of all pages lie back to back."""
    for page in pages:
        at = (data_ends[page] - data_ends[first_page]) * unit_bytes
        first = row_bounds[page] - row_bounds[first_page]
        for i in range(first, row_bounds[page + 1] - row_bounds[first_page]):
            starts[i] = at
            at += lengths[i]


@njit(cache=True)
def gather_bytes(data, starts, lengths):
    """Return the bytes of rows that lie anywhere in `data`, back to back."""
    total = np.int64(0)
    for length in lengths:
        total += length
    out = np.empty(total, np.uint8)
    at = 0
    for i in range(len(starts)):
        start = starts[i]
        for j in range(lengths[i]):
            out[at + j] = data[start + j]
        at += lengths[i]
    return out


@njit(inline="always")
def write_int32(data, at, value):
    """Write a number of four bytes, wherever it lies."""
    for i in range(4):
        data[at + i] = (value >> (8 * i)) & 0xFF


@njit(inline="always")
def read_int32(data, at):
    """Read a number of four bytes."""
    value = np.int64(0)
    for i in range(4):
        value |= np.int64(data[at + i]) << (8 * i)
    return value


@njit(cache=True)
def append_records(slots, lengths, data, arena, cursor, starts):
    """Append rows to an arena at `cursor`; return where the next one goes."""
    source = 0
    for i in range(len(slots)):
        starts[slots[i]] = cursor
        write_int32(arena, cursor, slots[i])
        write_int32(arena, cursor + 4, lengths[i])
        cursor += RECORD_HEADER_BYTES
        for j in range(lengths[i]):
            arena[cursor + j] = data[source + j]
        source += lengths[i]
        cursor += lengths[i]
    return cursor


@njit(cache=True)
def drop_records(arena, starts, slots):
    """Forget the records of some slots; return the bytes that become free."""
    freed = 0
    for slot in slots:
        freed += RECORD_HEADER_BYTES + read_int32(arena, starts[slot] + 4)
        starts[slot] = NO_SLOT
    return freed


@njit(cache=True)
def add_record_lengths(arena, starts, slots, sizes):
    """Add to `sizes` how many bytes the records at some slots hold."""
    for i in range(len(slots)):
        sizes[i] += read_int32(arena, starts[slots[i]] + 4)


@njit(cache=True)
def squeeze_records(arena, end, starts):
    """Move the records that are still pointed to together; return where they end."""
    to = 0
    at = 0
    while at < end:
        slot = read_int32(arena, at)
        size = RECORD_HEADER_BYTES + read_int32(arena, at + 4)
        if starts[slot] == at:
            for j in range(size):
                arena[to + j] = arena[at + j]
            starts[slot] = to
            to += size
        at += size
    return to


@njit(cache=True)
def gather_records(arena, starts, slots):
    """Return the lengths and the bytes of the records at some slots, back to back."""
    lengths = np.empty(len(slots), np.int32)
    total = 0
    for i in range(len(slots)):
        lengths[i] = read_int32(arena, starts[slots[i]] + 4)
        total += lengths[i]
    out = np.empty(total, np.uint8)
    at = 0
    for i in range(len(slots)):
        start = starts[slots[i]] + RECORD_HEADER_BYTES
        for j in range(lengths[i]):
            out[at + j] = arena[start + j]
        at += lengths[i]
    return lengths, out
