"""The hot loops of the join: free functions over arrays, compiled by Numba.

The hash table is three integer arrays: `heads` and `tails` give the first and last slot of each
bucket's chain, `following` the slot after each slot. A chain is kept in arrival order, so the
oldest tuple of a window is always the head of its chain and leaves in constant time.

A bucket is ``(code * factor - base) >> shift`` in 64-bit arithmetic. With ``factor = 1`` that
keeps the order of the codes: since R is scanned in code order, the scan then walks through the
table from one end to the other instead of jumping about in it. See `semistream.join.buckets`.

Output arrays have a fixed size. `probe` stops when they are full and says where to go on, so
even a join that multiplies rows stays within its memory.
"""

# mypy: disallow_untyped_defs = False
# mypy: disallow_untyped_calls = False

import numpy as np
from numba import njit, uint64

NO_SLOT = -1


@njit(inline="always")
def bucket_of(code, factor, base, shift):
    """Return the bucket of a code."""
    return np.int64((uint64(code) * factor - base) >> shift)


@njit(cache=True)
def insert(codes, first_slot, slot_codes, heads, tails, following, factor, base, shift):
    """Append codes to the chains, at consecutive slots from `first_slot`, round the ring."""
    capacity = len(slot_codes)
    slot = first_slot
    for code in codes:
        bucket = bucket_of(code, factor, base, shift)
        slot_codes[slot] = code
        following[slot] = NO_SLOT
        if heads[bucket] == NO_SLOT:
            heads[bucket] = slot
        else:
            following[tails[bucket]] = slot
        tails[bucket] = slot
        slot += 1
        if slot == capacity:
            slot = 0


@njit(cache=True)
def expire(first_slot, count, slot_codes, heads, following, factor, base, shift):
    """Unlink the oldest `count` tuples: each is the head of its chain."""
    capacity = len(slot_codes)
    slot = first_slot
    for _ in range(count):
        bucket = bucket_of(slot_codes[slot], factor, base, shift)
        heads[bucket] = following[slot]
        slot += 1
        if slot == capacity:
            slot = 0


@njit(cache=True)
def probe(
    codes, position, slot_codes, heads, following, factor, base, shift, out_probes, out_slots
):
    """Find the tuples in the table whose code equals a probing code; return how many.

    Writes (index of the probing code, slot) pairs, in probing order. `position` is
    ``[next probing index, next slot in its chain or NO_SLOT]`` and is updated in place: the
    probe is complete when ``position[0] == len(codes)``.
    """
    found = 0
    index = position[0]
    slot = position[1]
    while index < len(codes):
        code = codes[index]
        if slot == NO_SLOT:
            slot = heads[bucket_of(code, factor, base, shift)]
        while slot != NO_SLOT:
            if slot_codes[slot] == code:
                if found == len(out_probes):
                    position[0] = index
                    position[1] = slot
                    return found
                out_probes[found] = index
                out_slots[found] = slot
                found += 1
            slot = following[slot]
        index += 1
    position[0] = index
    position[1] = NO_SLOT
    return found


@njit(cache=True)
def mark_matched(matched, slots):
    """Note that these tuples have found a match."""
    for slot in slots:
        matched[slot] = 1


@njit(cache=True)
def first_matches(matched, slots):
    """Note matches, and return for each pair whether it is its tuple's first."""
    first = np.zeros(len(slots), np.bool_)
    for i in range(len(slots)):
        if not matched[slots[i]]:
            matched[slots[i]] = 1
            first[i] = True
    return first


@njit(cache=True)
def touched_pages(rows, row_bounds, first_page, last_page):
    """Return, for each page of a range, whether any of the ascending rows lies on it."""
    touched = np.zeros(last_page - first_page, np.bool_)
    base = row_bounds[first_page]
    page = first_page
    for row in rows:
        while row + base >= row_bounds[page + 1]:
            page += 1
        touched[page - first_page] = True
    return touched


@njit(cache=True)
def rows_in_runs(rows, row_bounds, first_page, run_firsts, run_lasts):
    """Renumber ascending rows of a page range as rows of just those runs of its pages."""
    places = np.empty(len(rows), np.int64)
    base = row_bounds[first_page]
    run = 0
    before = 0  # rows in the runs that lie behind
    for i in range(len(rows)):
        row = rows[i] + base
        while row >= row_bounds[run_lasts[run]]:
            before += row_bounds[run_lasts[run]] - row_bounds[run_firsts[run]]
            run += 1
        places[i] = row - row_bounds[run_firsts[run]] + before
    return places


@njit(cache=True)
def starts_of(lengths, starts):
    """Fill in where each of the rows that lie back to back starts."""
    at = 0
    for i in range(len(lengths)):
        starts[i] = at
        at += lengths[i]


@njit(cache=True)
def gather_bytes(data, starts, lengths, rows):
    """Return the lengths and the bytes of some rows, back to back."""
    out_lengths = np.empty(len(rows), np.int32)
    total = 0
    for i in range(len(rows)):
        out_lengths[i] = lengths[rows[i]]
        total += out_lengths[i]
    out = np.empty(total, np.uint8)
    at = 0
    for i in range(len(rows)):
        start = starts[rows[i]]
        for j in range(out_lengths[i]):
            out[at + j] = data[start + j]
        at += out_lengths[i]
    return out_lengths, out


@njit(cache=True)
def compact_bytes(data, starts, lengths, slots):
    """Move the bytes of these slots, given in the order they lie, to the front; return the end."""
    at = 0
    for slot in slots:
        start = starts[slot]
        for j in range(lengths[slot]):
            data[at + j] = data[start + j]
        starts[slot] = at
        at += lengths[slot]
    return at


@njit(cache=True)
def scatter_bytes(lengths, slots, cursor, slot_starts, slot_lengths):
    """Note where rows that were appended to the arena at `cursor` lie."""
    at = cursor
    for i in range(len(lengths)):
        slot_starts[slots[i]] = at
        slot_lengths[slots[i]] = lengths[i]
        at += lengths[i]
