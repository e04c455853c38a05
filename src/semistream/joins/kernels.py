"""The hot loops of the hash table: free functions over arrays, compiled by Numba.

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

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from semistream.budget.tuplesizes import BLOCK, CANDIDATE_FIELDS
from semistream.jit import njit
from semistream.relation.codepages_kernels import WORD_BITS, bit_at

NO_SLOT = -1
# What is known of a tuple: it has a match; a row with another key has its code; it cannot match.
# Bits.
MATCHED = 1
SHARES_CODE = 2
UNMATCHABLE = 4

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
    """Return whether a probe of `code_count` codes has found everything."""
    return bool(position[_NEXT] == code_count and position[_COUNT] == 0)


def make_candidates() -> NDArray[np.int64]:
    """Return the scratch space of a probe, `BLOCK` candidates.

    Of each: its slot, the first and last probing code it is a candidate for, and, fetched at the
    start of a round, the code at its slot and the next older slot of the chain.
    """
    return np.zeros((CANDIDATE_FIELDS, BLOCK), np.int64)


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


@njit(inline="always")
def put_first(code, slot, bucket, slot_codes, heads, following):
    """Put a code at a slot, as the newest of its bucket's chain; return the slot after it."""
    slot_codes[slot] = code
    following[slot] = heads[bucket]
    heads[bucket] = slot
    slot += 1
    return slot if slot < len(slot_codes) else 0


@njit(cache=True)
def insert(codes, first_slot, slot_codes, heads, following, factor, base, shift):
    """Put codes at consecutive slots from `first_slot`, round the ring, and into their chains."""
    slot = first_slot
    for code in codes:
        bucket = bucket_of(code, factor, base, shift)
        slot = put_first(code, slot, bucket, slot_codes, heads, following)


@njit(cache=True)
def insert_apart(
    codes,
    first_slot,
    slot_codes,
    heads,
    following,
    factor,
    base,
    shift,
    listed_shift,
    first_listed,
    bits,
    first_code,
):
    """Do as `insert`; codes whose bit is set go into chains of their own.

    The buckets of those begin at `first_listed`. Free of branches that depend on the code.
    """
    last_bit = uint64(len(bits) * WORD_BITS - 1)
    slot = first_slot
    for code in codes:
        number = uint64(code - first_code)
        is_listed = (number <= last_bit) & (bit_at(bits, min(number, last_bit)) == 1)
        bucket = bucket_of(code, factor, base, listed_shift if is_listed else shift)
        bucket += first_listed if is_listed else 0
        slot = put_first(code, slot, bucket, slot_codes, heads, following)


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
        # 1. Begin a block: the heads of the next codes' chains are the candidates of round one.
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
        # 2. Begin a round: fetch the slots of all candidates, so that their misses overlap.
        if at == 0:
            fetch_round(candidates, count, slot_codes, following)
        # 3. Write the pairs of the round, and keep the chains that go on. Both are counted without
        # a branch. The round may be cut where the output is full: `at` and `kept` say where.
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
        # 4. End the round: the chains that were kept are the candidates of the next one.
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
    block = min(BLOCK, max(64, len(out_probes) // 16))
    started = 0
    while found < len(out_probes):
        # 1. Begin a block: runs of codes that share a bucket, each a candidate for its tuples. A
        # block whose pairs are cut in two has its rows fetched twice, page by page: if the next one
        # yields as many as those before on average, and some more, it waits for the next call.
        if count == 0:
            if index == len(codes) or (started and len(out_probes) - found < 1.3 * found / started):
                break
            started += 1
            while index < len(codes) and count < block:
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
        # 2. Begin a round: fetch the slots of all candidates, so that their misses overlap.
        if at == 0:
            fetch_round(candidates, count, slot_codes, following)
        # 3. Look for each tuple's code in its run, write its pairs, and keep the chains that go on.
        # If the output is full among the pairs of one tuple, `resume` is the next of them.
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
        # 4. End the round: the chains that were kept are the candidates of the next one.
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
        matched[slot] |= MATCHED


@njit(cache=True)
def first_matches(matched, slots):
    """Note matches, and return for each pair whether it is its tuple's first."""
    first = np.zeros(len(slots), np.bool_)
    for i in range(len(slots)):
        if not matched[slots[i]] & MATCHED:
            matched[slots[i]] |= MATCHED
            first[i] = True
    return first


@njit(cache=True)
def keep_pairs(kept, matched, slots):
    """Return which pairs are kept, and their slots; of the other tuples note that R has their code.

    Without branches: whether a pair is kept cannot be predicted.
    """
    which = np.empty(len(slots), np.int32)
    kept_slots = np.empty_like(slots)
    count = 0
    for i in range(len(slots)):
        slot = slots[i]
        matched[slot] |= np.uint8(0) if kept[i] else np.uint8(SHARES_CODE)
        which[count] = i
        kept_slots[count] = slot
        count += kept[i]
    return which[:count], kept_slots[:count]
