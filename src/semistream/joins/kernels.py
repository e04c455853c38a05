"""The hot loops of the join: free functions over arrays, compiled by Numba.

The hash table is two integer arrays over a ring of slots: `heads` gives the newest slot of each
bucket's chain, `following` the next older slot in it. A tuple enters at the head. It leaves
without being unlinked: a chain ends at the first slot that is no longer *live*, that is, not among
the `live` newest slots of the ring, counted back from `newest`. If a slot has been used again
since, what leads to it is stale; then it is newer than the slot that leads to it, or it belongs to
another bucket, and the chain ends there as well. (Every chain runs from newer to older, so nothing
behind such a slot can be live.)

A bucket is ``(code * factor - base) >> shift`` in 64-bit arithmetic. With ``factor = 1`` that
keeps the order of the codes: since R is scanned in code order, the scan then walks through the
table from one end to the other instead of jumping about in it. See `semistream.joins.buckets`.

Looking up a slot is a cache miss, and what costs time is waiting for one miss before the next.
So probes work in rounds over a block of candidates: the first slots of all their chains, then the
second ones, and so on. The loads of a round do not depend on each other and overlap.

Output arrays have a fixed size. A probe stops when they are full and says in `position` where to
go on, so even a join that multiplies rows stays within its memory.
"""

# mypy: disallow_untyped_defs = False
# mypy: disallow_untyped_calls = False

import numpy as np
from numba import njit, uint64
from numpy.typing import NDArray

NO_SLOT = -1
BLOCK = 1024

# What `position` holds.
_NEXT = 0  # the next probing code that is not in a block yet
_COUNT = 1  # how many candidates this round has
_AT = 2  # the next of them
_KEPT = 3  # how many are kept for the next round
_RESUME = 4  # the first match of that candidate that is still to be written


def start_of_probe() -> NDArray[np.int64]:
    """Return the position from which a probe begins."""
    return np.zeros(5, np.int64)


def is_complete(position: NDArray[np.int64], code_count: int) -> bool:
    """Return whether a probe of so many codes has found everything."""
    return bool(position[_NEXT] == code_count and position[_COUNT] == 0)


def make_candidates() -> NDArray[np.int64]:
    """Return the scratch space of a probe, `BLOCK` candidates.

    Of each: its slot, the first and last probing code it is a candidate for, and, fetched at the
    start of a round, the code at its slot and the next older slot of the chain.
    """
    return np.zeros((5, BLOCK), np.int64)


@njit(inline="always")
def fetch_round(candidates, count, slot_codes, following):
    """Fetch what the candidates' slots hold, and nothing else.

    This loop is where the cache misses are. It is kept free of branches that depend on what is
    fetched, since a mispredicted one would wait for its miss and undo the overlap.
    """
    slots = candidates[0]
    for i in range(count):
        candidates[3, i] = slot_codes[slots[i]]
        candidates[4, i] = following[slots[i]]


@njit(inline="always")
def bucket_of(code, factor, base, shift):
    """Return the bucket of a code."""
    return np.int64((uint64(code) * factor - base) >> shift)


@njit(inline="always")
def age_of(slot, newest, capacity):
    """Return how many slots of the ring are newer than this one."""
    age = newest - slot
    return age if age >= 0 else age + capacity


@njit(inline="always")
def live_or_none(slot, older, capacity, newest, live):
    """Return the slot that follows in a chain if it is live and really older, else NO_SLOT."""
    age = age_of(older, newest, capacity)
    is_live = (older != NO_SLOT) & (age < live) & (age > age_of(slot, newest, capacity))
    return older if is_live else NO_SLOT


@njit(inline="always")
def head_of_chain(bucket, heads, capacity, newest, live):
    """Return the newest live slot of a bucket, or NO_SLOT."""
    slot = heads[bucket]
    is_live = (slot != NO_SLOT) & (age_of(slot, newest, capacity) < live)
    return slot if is_live else NO_SLOT


@njit(cache=True)
def insert(codes, first_slot, slot_codes, heads, following, factor, base, shift):
    """Put codes at consecutive slots from `first_slot`, round the ring, and into their chains."""
    capacity = len(slot_codes)
    slot = first_slot
    for code in codes:
        bucket = bucket_of(code, factor, base, shift)
        slot_codes[slot] = code
        following[slot] = heads[bucket]
        heads[bucket] = slot
        slot += 1
        if slot == capacity:
            slot = 0


@njit(cache=True)
def probe(
    codes,
    position,
    candidates,
    slot_codes,
    heads,
    following,
    newest,
    live,
    factor,
    base,
    shift,
    out_probes,
    out_slots,
):
    """Find the tuples in the table whose code equals a probing code; return how many.

    Writes (index of the probing code, slot) pairs. `position` says where to go on and is updated
    in place; begin with `start_of_probe`, go on until `is_complete`.
    """
    capacity = len(slot_codes)
    slots = candidates[0]
    probes = candidates[1]
    index, count, at, kept = position[_NEXT], position[_COUNT], position[_AT], position[_KEPT]
    found = 0
    while found < len(out_probes):
        if count == 0:
            if index == len(codes):
                break
            upto = min(index + BLOCK, len(codes))
            while index < upto:
                bucket = bucket_of(codes[index], factor, base, shift)
                slots[count] = head_of_chain(bucket, heads, capacity, newest, live)
                probes[count] = index
                count += slots[count] != NO_SLOT
                index += 1
        if at == 0:
            fetch_round(candidates, count, slot_codes, following)
        while at < count and found < len(out_probes):
            slot = slots[at]
            code = candidates[3, at]
            probing = codes[probes[at]]
            out_probes[found] = probes[at]
            out_slots[found] = slot
            found += code == probing
            is_ours = bucket_of(code, factor, base, shift) == bucket_of(
                probing, factor, base, shift
            )
            slots[kept] = live_or_none(slot, candidates[4, at], capacity, newest, live)
            probes[kept] = probes[at]
            kept += is_ours & (slots[kept] != NO_SLOT)
            at += 1
        if at == count:
            count, at, kept = kept, 0, 0
    position[_NEXT], position[_COUNT], position[_AT], position[_KEPT] = index, count, at, kept
    return found


@njit(cache=True)
def probe_sorted(
    codes,
    position,
    candidates,
    slot_codes,
    heads,
    following,
    newest,
    live,
    factor,
    base,
    shift,
    out_probes,
    out_slots,
):
    """Do as `probe` for ordered buckets and codes that ascend, by looking from the other side.

    The codes that share a bucket lie together, so for each such run it is the tuples in the
    bucket that look for their code in the run, at the place where an even spread would have it.
    That costs per tuple, not per probing code. (The codes may ascend in several stretches, one
    after the other: a run ends where they fall.)
    """
    capacity = len(slot_codes)
    slots, firsts, lasts = candidates[0], candidates[1], candidates[2]
    index, count, at, kept = position[_NEXT], position[_COUNT], position[_AT], position[_KEPT]
    resume = position[_RESUME]
    found = 0
    while found < len(out_probes):
        if count == 0:
            if index == len(codes):
                break
            while index < len(codes) and count < BLOCK:
                first = index
                bucket = bucket_of(codes[first], factor, base, shift)
                index += 1
                while (
                    index < len(codes)
                    and codes[index] >= codes[index - 1]
                    and bucket_of(codes[index], factor, base, shift) == bucket
                ):
                    index += 1
                slots[count] = head_of_chain(bucket, heads, capacity, newest, live)
                firsts[count] = first
                lasts[count] = index - 1
                count += slots[count] != NO_SLOT
        if at == 0:
            fetch_round(candidates, count, slot_codes, following)
        while at < count and found < len(out_probes):
            slot = slots[at]
            first = firsts[at]
            last = lasts[at]
            code = candidates[3, at]
            row = max(resume, find_code(codes, first, last, code))
            resume = 0
            while row <= last and codes[row] == code and found < len(out_probes):
                out_probes[found] = row
                out_slots[found] = slot
                found += 1
                row += 1
            if row <= last and codes[row] == code:
                resume = row
                break
            is_ours = bucket_of(code, factor, base, shift) == bucket_of(
                codes[first], factor, base, shift
            )
            slots[kept] = live_or_none(slot, candidates[4, at], capacity, newest, live)
            firsts[kept] = first
            lasts[kept] = last
            kept += is_ours & (slots[kept] != NO_SLOT)
            at += 1
        if at == count:
            count, at, kept = kept, 0, 0
    position[_NEXT], position[_COUNT], position[_AT], position[_KEPT] = index, count, at, kept
    position[_RESUME] = resume
    return found


@njit(inline="always")
def find_code(codes, first, last, code):
    """Return the first place in ``first … last`` with at least this code, else ``last + 1``."""
    if code > codes[last]:
        return last + 1
    if code <= codes[first]:
        return first
    offset = np.float64(uint64(code) - uint64(codes[first]))
    span = np.float64(uint64(codes[last]) - uint64(codes[first]))
    row = first + np.int64(offset * (last - first) / span)
    while codes[row] >= code:
        row -= 1
    while codes[row] < code:
        row += 1
    return row


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
    """Return, for each page of a range, whether any row lies on it; rows roughly ascend."""
    touched = np.zeros(last_page - first_page, np.bool_)
    base = row_bounds[first_page]
    page = first_page
    for row in rows:
        while row + base >= row_bounds[page + 1]:
            page += 1
        while row + base < row_bounds[page]:
            page -= 1
        touched[page - first_page] = True
    return touched


@njit(cache=True)
def rows_in_runs(rows, row_bounds, first_page, run_firsts, run_lasts):
    """Renumber rows of a page range as rows of some runs of its pages; rows roughly ascend."""
    places = np.empty(len(rows), np.int64)
    base = row_bounds[first_page]
    run = 0
    before = 0  # rows in the runs that lie behind
    for i in range(len(rows)):
        row = rows[i] + base
        while row >= row_bounds[run_lasts[run]]:
            before += row_bounds[run_lasts[run]] - row_bounds[run_firsts[run]]
            run += 1
        while row < row_bounds[run_firsts[run]]:
            run -= 1
            before -= row_bounds[run_lasts[run]] - row_bounds[run_firsts[run]]
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


@njit(inline="always")
def home_page(code, first_codes, page_bounds, is_unique):
    """Return the first page that may hold a code; its partition must have pages."""
    partition = code % len(page_bounds)
    first = page_bounds[partition, 0]
    low = first
    high = page_bounds[partition, 1]
    while low < high:  # find the first page whose first code is not less
        middle = (low + high) // 2
        if first_codes[middle] < code:
            low = middle + 1
        else:
            high = middle
    if is_unique and low < page_bounds[partition, 1] and first_codes[low] == code:
        return low
    return max(first, low - 1)


@njit(cache=True)
def home_pages(codes, first_codes, page_bounds, is_unique):
    """Return the home page of each code, or -1 where its partition has no pages."""
    homes = np.empty(len(codes), np.int64)
    for i in range(len(codes)):
        partition = codes[i] % len(page_bounds)
        if page_bounds[partition, 0] == page_bounds[partition, 1]:
            homes[i] = -1
        else:
            homes[i] = home_page(codes[i], first_codes, page_bounds, is_unique)
    return homes


@njit(inline="always")
def bucket_in_page(code, home, first_codes, page_bounds, per_page):
    """Return which of its home page's buckets a code belongs to, by its place between pages."""
    last_page = page_bounds[code % len(page_bounds), 1] - 1
    if per_page == 1 or home == last_page or code <= first_codes[home]:
        return home * per_page
    offset = np.float64(uint64(code) - uint64(first_codes[home]))
    span = np.float64(uint64(first_codes[home + 1]) - uint64(first_codes[home])) + 1.0
    return home * per_page + min(per_page - 1, np.int64(offset / span * per_page))


@njit(cache=True)
def enter_room(
    codes, slots, slot_codes, heads, following, per_page, first_codes, page_bounds, is_unique
):
    """Put codes at the given free slots, into the chains of their home pages."""
    for i in range(len(codes)):
        code = codes[i]
        slot = slots[i]
        home = home_page(code, first_codes, page_bounds, is_unique)
        bucket = bucket_in_page(code, home, first_codes, page_bounds, per_page)
        slot_codes[slot] = code
        following[slot] = heads[bucket]
        heads[bucket] = slot


@njit(cache=True)
def take_chains(first_bucket, last_bucket, heads, following, out_slots, out_buckets):
    """Take the slots of some buckets' chains out of the table, as many as fit; return how many.

    Call again for the same buckets until it returns 0.
    """
    taken = 0
    for bucket in range(first_bucket, last_bucket):
        if taken == len(out_slots):
            break
        out_slots[taken] = heads[bucket]
        out_buckets[taken] = bucket
        if heads[bucket] != NO_SLOT:
            heads[bucket] = NO_SLOT
            taken += 1
    at = 0
    while at < taken:
        older = following[out_slots[at]]
        if older != NO_SLOT:
            if taken < len(out_slots):
                out_slots[taken] = older
                out_buckets[taken] = out_buckets[at]
                taken += 1
            else:
                heads[out_buckets[at]] = older
        at += 1
    return taken


@njit(cache=True)
def match_sorted(
    codes,
    wanted,
    homes,
    row_bounds,
    page_bounds,
    first_page,
    last_page,
    position,
    out_rows,
    out_wanted,
):
    """Find wanted codes among the ascending codes of some pages; return how many pairs there are.

    Writes (row, index into wanted) pairs and stops when the output is full; `position` is
    ``[next wanted, first match of it still to be written]`` and is updated in place. Complete when
    ``position[0] == len(wanted)``. A code's first match lies on its home page or the one after it
    in its partition, or, if these were read before, at the very start.
    """
    found = 0
    index = position[0]
    resume = position[1]
    base = row_bounds[first_page]
    last = len(codes) - 1
    while index < len(wanted):
        home = homes[index]
        low = max(0, row_bounds[home] - base)
        beyond = min(home + 2, last_page, page_bounds[wanted[index] % len(page_bounds), 1])
        high = max(low, min(last, row_bounds[beyond] - base - 1))
        row = max(resume, find_code(codes, low, high, wanted[index]))
        while row <= last and codes[row] == wanted[index]:
            if found == len(out_rows):
                position[0] = index
                position[1] = row
                return found
            out_rows[found] = row
            out_wanted[found] = index
            found += 1
            row += 1
        resume = 0
        index += 1
    position[0] = index
    position[1] = 0
    return found


@njit(cache=True)
def first_occupied(heads):
    """Return the first bucket with a chain."""
    bucket = 0
    while heads[bucket] == NO_SLOT:
        bucket += 1
    return bucket


@njit(cache=True)
def close_ranks(queue, place, front, back):
    """Move the valid entries of a ring queue together, behind `front`; return the new end."""
    to = front
    for at in range(front, back):
        slot = queue[at % len(queue)]
        if place[slot] == at:
            queue[to % len(queue)] = slot
            place[slot] = to
            to += 1
    return to
