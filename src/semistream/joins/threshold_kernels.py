"""The hot loops of the paper's front stage: a hash table of rows, and a heap of their counts.

A row of R has a *place*. `table` finds the place of a code (linear probing), `heap` has the places
by count, the least first. A hit raises only `counts`: the heap has the counts as they were
(`noted`), which are never too high, and is put in order when a least one is requested.
"""

import numpy as np
from numba import uint64

from semistream.jit import njit

NOWHERE = -1  # in the table: no place
EMPTY, HELD, FRESH = 0, 1, 2  # of a place: no row, a row, one that entered in this call
_MIX = uint64(0xD6E8FEB86659FD93)
_HALF = uint64(32)


@njit(inline="always")
def _slot_of(code, slot_count):
    mixed = uint64(code) ^ (uint64(code) >> _HALF)
    spread = (mixed * _MIX) >> _HALF
    return np.int64((spread * uint64(slot_count)) >> _HALF)


@njit(inline="always")
def _find(code, codes, table):
    """Return the slot of the table that has the place of a code, or where it would be."""
    slot = _slot_of(code, len(table))
    while table[slot] != NOWHERE and codes[table[slot]] != code:
        slot = slot + 1 if slot + 1 < len(table) else 0
    return slot


@njit(cache=True)
def look_up(codes, cached, table, counts, waits, out_probes, out_rows):
    """Find codes; write (index, place) pairs and which tuples wait; return how many pairs."""
    found = 0
    for i in range(len(codes)):
        place = table[_find(codes[i], cached, table)]
        waits[i] = place == NOWHERE
        if place != NOWHERE:
            counts[place] += 1
            out_probes[found] = i
            out_rows[found] = place
            found += 1
    return found


@njit(inline="always")
def _remove(code, codes, table):
    """Take a code out of the table; what was pushed on by it moves back."""
    hole = _find(code, codes, table)
    slot = hole
    while True:
        slot = slot + 1 if slot + 1 < len(table) else 0
        if table[slot] == NOWHERE:
            break
        home = _slot_of(codes[table[slot]], len(table))
        # It may move if its own slot is not between the hole and where it is.
        between = hole < home <= slot if hole < slot else home > hole or home <= slot
        if not between:
            table[hole] = table[slot]
            hole = slot
    table[hole] = NOWHERE


@njit(inline="always")
def _sift_down(heap, noted, size):
    """Let the first place of the heap sink to where it belongs."""
    at, place = 0, heap[0]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and noted[heap[child + 1]] < noted[heap[child]]:
            child += 1
        if noted[heap[child]] >= noted[place]:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = place


@njit(inline="always")
def _sift_up(heap, noted, at):
    """Let a place of the heap rise to where it belongs."""
    place = heap[at]
    while at > 0 and noted[heap[(at - 1) // 2]] > noted[place]:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = place


@njit(cache=True)
def admit(
    codes,
    tallies,
    threshold,
    cached,
    table,
    counts,
    noted,
    heap,
    state,
    occupied,
    out_candidates,
    out_places,
    out_dropped,
):
    """Let keys in that matched more than `threshold` tuples; return candidates, entries, evictions.

    A key takes a place that was never used, or that of the least frequent row. Stops when the
    output is full or a row would be replaced that entered just now: go on with the other keys.
    """
    entered = dropped = done = 0
    for i in range(len(codes)):
        # 1. Skip what may not enter, and what is here.
        if tallies[i] <= threshold or table[_find(codes[i], cached, table)] != NOWHERE:
            done += 1
            continue
        if entered == len(out_places):
            break
        if occupied[0] < len(heap):
            # 2. There is room.
            place = occupied[0]
            heap[place] = place
            occupied[0] += 1
            counts[place] = noted[place] = tallies[i]
            _sift_up(heap, noted, place)
        else:
            # 3. The least frequent row leaves. Counts have risen since they were noted.
            place = heap[0]
            while noted[place] != counts[place]:
                noted[place] = counts[place]
                _sift_down(heap, noted, len(heap))
                place = heap[0]
            if state[place] == FRESH:
                break
            if state[place] == HELD:
                _remove(cached[place], cached, table)
                out_dropped[dropped] = place
                dropped += 1
            counts[place] = noted[place] = tallies[i]
            _sift_down(heap, noted, len(heap))
        cached[place] = codes[i]
        table[_find(codes[i], cached, table)] = place
        state[place] = FRESH
        out_candidates[entered] = i
        out_places[entered] = place
        entered += 1
        done += 1
    for j in range(entered):
        state[out_places[j]] = HELD
    return done, entered, dropped


@njit(cache=True)
def evict(places, cached, table, counts, state):
    """Empty some places, for whose rows there was no room; they are the first to be used again."""
    for place in places:
        _remove(cached[place], cached, table)
        counts[place] = 0
        state[place] = EMPTY
