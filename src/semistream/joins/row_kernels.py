"""The hot loops of rows: which pages to read for them, and how they lie in arenas.

A *record* of an arena is a slot, a length and the bytes, so that the arena can be squeezed from
front to back: a record whose slot points elsewhere has been dropped.
"""

import numpy as np

from semistream.budget.rowsizes import RECORD_HEADER_BYTES
from semistream.jit import njit
from semistream.joins.kernels import NO_SLOT


@njit(cache=True)
def plan_reads(
    rows, row_bounds, first_page, last_page, most_gap, out_firsts, out_lasts, out_places
):
    """Choose which runs of pages to read for some rows of a page range; return how many runs.

    Rows count from the range's first. Pages without one of these rows are read along where at most
    `most_gap` of them lie between two others. Writes the runs' first and last (exclusive) pages,
    and for each row its place among the rows of all runs, back to back. Runs are few.
    """
    # 1. Mark the pages that have one of the rows.
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
    # 2. Join them to runs: one request for each, and a short gap costs less than another request.
    count = 0
    for page in range(first_page, last_page):
        if is_requested[page - first_page]:
            if count == 0 or page - out_lasts[count - 1] > most_gap:
                out_firsts[count] = page
                count += 1
            out_lasts[count - 1] = page + 1
    # 3. Translate rows to places. They mostly ascend, so the next run is found by a step or two.
    run = 0
    before = 0  # rows in the runs that lie behind
    for i in range(len(rows)):
        row = rows[i] + base
        while row >= row_bounds[out_lasts[run]]:
            before += row_bounds[out_lasts[run]] - row_bounds[out_firsts[run]]
            run += 1
        while row < row_bounds[out_firsts[run]]:
            run -= 1
            before -= row_bounds[out_lasts[run]] - row_bounds[out_firsts[run]]
        out_places[i] = row - row_bounds[out_firsts[run]] + before
    return count


@njit(cache=True)
def starts_of(lengths, starts):
    """Fill in where each of the rows that lie back to back starts."""
    at = 0
    for i in range(len(lengths)):
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
