"""The hot loops of the front stage: a set-associative table of hot rows, as in a processor's cache.

A code belongs to one *set* of `WAYS` ways, which fill one cache line: seven codes, a byte of state
for each, and a byte that says when the set last grew older. A row's place in the store is its set
and way, so nothing points anywhere and nothing has to be kept in order. `table` has the line as
numbers of eight bytes, of which the last is the state; `state` is a view of its bytes: a count of
up to `MOST` in the low bits, and what the way holds.

A way that holds nothing has a code that belongs to another set, so a look-up need not check.
"""

import numpy as np
from numba import uint64

from semistream.budget.frontsizes import WAYS
from semistream.jit import njit

AGED = WAYS  # the byte behind the states
WORDS = WAYS + 1  # of a line
MOST = 15  # the count saturates
HAS_ROW = 0x10
MISSING = 0x20  # the key is known not to be in R
FRESH = 0x40  # entered in the course of this call
LEAST_TALLY = 2  # a lone match is no evidence once the cache is full

_MIX = uint64(0xD6E8FEB86659FD93)
_HALF = uint64(32)


@njit(inline="always")
def set_of(code, set_count):
    """Return the set that a code belongs to."""
    mixed = uint64(code) ^ (uint64(code) >> _HALF)
    spread = (mixed * _MIX) >> _HALF
    return np.int64((spread * uint64(set_count)) >> _HALF)


@njit(cache=True)
def find_strangers(set_count):
    """Return a set, a code that does not belong to it, and a code that belongs to it alone.

    The first code is what the empty ways of that set hold, the second what those of all other sets
    do. There must be at least two sets.
    """
    which = set_of(0, set_count)
    code = 1
    while set_of(code, set_count) == which:
        code += 1
    return np.array([which, code, 0])


@njit(cache=True)
def fill_with_strangers(table, strangers):
    """Make every way of the table empty."""
    for at in range(len(table)):
        for w in range(WAYS):
            table[at, w] = strangers[1] if at == strangers[0] else strangers[2]


@njit(cache=True)
def look_up(codes, table, state, waits, out_probes, out_rows):
    """Find codes in the table; write (index, row) pairs and which tuples wait; return pair count.

    For keys of one row; the output must have room for a pair for each code. A key that is known
    to be missing yields none and need not wait. In loops of one step each, free of branches that
    depend on what is found, so that the misses overlap: 10 ns a code instead of 31.
    """
    count = len(codes)
    # 1. The set of each code: arithmetic alone.
    for i in range(count):
        out_rows[i] = set_of(codes[i], len(table))
    # 2. The way of each code, or -1: one cache line is fetched for each, and nothing depends on it.
    for i in range(count):
        code = codes[i]
        way = np.int64(-1)
        for w in range(WAYS):
            way = np.int64(w) if table[out_rows[i], w] == code else way
        out_probes[i] = way
    # 3. Count hits and write pairs over what has been read; a pair that is none is overwritten.
    found = 0
    for i in range(count):
        is_hit = out_probes[i] >= 0
        at, found_at = out_rows[i], max(out_probes[i], 0)
        kind = state[at, found_at]
        state[at, found_at] = kind + (is_hit & ((kind & MOST) < MOST))
        waits[i] = not is_hit
        out_probes[found] = i
        out_rows[found] = at * WAYS + found_at
        found += is_hit & ((kind & HAS_ROW) != 0)
    return found


@njit(cache=True)
def look_up_runs(codes, table, state, waits, out_probes, out_rows):
    """Do as `look_up` for keys of several rows, which stand in as many ways of their set."""
    found = 0
    for i in range(len(codes)):
        at = set_of(codes[i], len(table))
        waits[i] = True
        for w in range(WAYS):
            if table[at, w] == codes[i]:
                waits[i] = False
                state[at, w] += (state[at, w] & MOST) < MOST
                if state[at, w] & HAS_ROW:
                    out_probes[found] = i
                    out_rows[found] = at * WAYS + w
                    found += 1
    return found


@njit(inline="always")
def weakest_of(at, state):
    """Return the way of a set that has the least count and did not enter just now, or -1."""
    weakest = -1
    least = MOST + 1
    for w in range(WAYS):
        kind = state[at, w]
        # An empty way counts less than one whose count is zero.
        count = (kind & MOST) - (kind == 0)
        if not kind & FRESH and count < least:
            least = count
            weakest = w
    return weakest


@njit(inline="always")
def vacate(at, way, table, state, occupied, strangers, out_dropped, dropped):
    """Empty a way and all others of its set with the same code; note rows that are dropped."""
    code = table[at, way]
    for w in range(WAYS):
        if table[at, w] == code:
            if state[at, w] & HAS_ROW:
                out_dropped[dropped] = at * WAYS + w
                dropped += 1
            occupied[0] -= state[at, w] != 0
            state[at, w] = 0
            table[at, w] = strangers[1] if at == strangers[0] else strangers[2]
    return dropped


@njit(inline="always")
def count_competitors(at, tally, state):
    """Return how many ways of a set a candidate of this tally could take."""
    competitors = 0
    for w in range(WAYS):
        kind = state[at, w]
        is_weaker = (tally >= LEAST_TALLY) & ((kind & MOST) < tally) & (kind & FRESH == 0)
        competitors += (kind == 0) | is_weaker
    return competitors


@njit(cache=True)
def admit(
    codes,
    tallies,
    row_counts,
    kind,
    table,
    state,
    occupied,
    cycle,
    strangers,
    out_candidates,
    out_rows,
    out_dropped,
):
    """Let candidates compete with the weakest of their sets; return candidates, entries, evictions.

    Stops when the output is full: go on with the keys that have not competed yet. A key of
    ``row_counts[i]`` rows takes as many ways, of competitors whose counts are less than its tally.
    If there are too few of these, its set ages instead, once a cycle. Writes (candidate, row) for
    each row that enters, and the rows that are evicted.
    """
    entered = dropped = done = 0
    for i in range(len(codes)):
        if entered + row_counts[i] > len(out_rows):
            break
        done += 1
        # 1. Skip what cannot enter: a lone match once the cache is full, or a key that is here.
        if tallies[i] < LEAST_TALLY and occupied[0] == len(table) * WAYS:
            continue
        at = set_of(codes[i], len(table))
        is_there = False
        for w in range(WAYS):
            is_there |= table[at, w] == codes[i]
        if is_there:
            continue
        # 2. Too few weaker competitors: the set ages, so that rows no longer used become weak.
        if count_competitors(at, tallies[i], state) < row_counts[i]:
            if tallies[i] >= LEAST_TALLY and state[at, AGED] != cycle:
                state[at, AGED] = cycle
                for w in range(WAYS):
                    count = state[at, w] & MOST
                    state[at, w] -= min(count, 1 + (count >> 3))
            continue
        # 3. Take a way for each row. FRESH keeps the rows of this call from evicting each other.
        for _ in range(row_counts[i]):
            way = weakest_of(at, state)
            dropped = vacate(at, way, table, state, occupied, strangers, out_dropped, dropped)
            occupied[0] += 1
            table[at, way] = codes[i]
            state[at, way] = kind | FRESH | min(tallies[i], MOST)
            out_candidates[entered] = i
            out_rows[entered] = at * WAYS + way
            entered += 1
    # 4. What entered may be evicted by the next call.
    for j in range(entered):
        state[out_rows[j] // WAYS, out_rows[j] % WAYS] &= ~FRESH
    return done, entered, dropped


@njit(cache=True)
def forget_counts(state):
    """Set all counts to zero: what was frequent is no longer."""
    for at in range(len(state)):
        for w in range(WAYS):
            state[at, w] &= ~MOST


@njit(cache=True)
def evict(rows, table, state, occupied, strangers):
    """Empty the ways of some rows, for which there was no room after all."""
    for row in rows:
        occupied[0] -= 1
        at = row // WAYS
        state[at, row % WAYS] = 0
        table[at, row % WAYS] = strangers[1] if at == strangers[0] else strangers[2]


@njit(cache=True)
def forget(codes, table, state, occupied, strangers):
    """Empty the ways of some codes; return the rows that are dropped."""
    most = min(len(codes) * WAYS, len(table) * WAYS)
    dropped = np.empty(most, np.int32)
    count = 0
    for code in codes:
        at = set_of(code, len(table))
        for w in range(WAYS):
            if table[at, w] == code and state[at, w] != 0:
                count = vacate(at, w, table, state, occupied, strangers, dropped, count)
    return dropped[:count]


@njit(cache=True)
def first_of_each_set(codes, set_count):
    """Return the first `WAYS` codes that belong to each set."""
    filled = np.zeros(set_count, np.uint8)
    chosen = np.empty(len(codes), np.int64)
    count = 0
    for code in codes:
        at = set_of(code, set_count)
        chosen[count] = code
        count += filled[at] < WAYS
        filled[at] += filled[at] < WAYS
    return chosen[:count]


@njit(cache=True)
def tally(rows, tallies, out_pairs, out_tallies):
    """Count how often each row occurs among some pairs; return how many different ones there are.

    `tallies` is scratch space, a byte for each row, zero before and after.
    """
    for row in rows:
        tallies[row] += tallies[row] < 255
    found = 0
    for i in range(len(rows)):
        out_pairs[found] = i
        out_tallies[found] = tallies[rows[i]]
        found += tallies[rows[i]] > 0
        tallies[rows[i]] = 0
    return found


@njit(cache=True)
def run_lengths(codes, rows, most, out_lengths):
    """Write how many rows each row's key has, if it is their first and all of them are here.

    Otherwise, or if there are more than `most`, write 0. A run of equal codes that touches the
    first or the last code may go on elsewhere.
    """
    for i in range(len(rows)):
        first = rows[i]
        last = first
        while last < len(codes) and last - first <= most and codes[last] == codes[first]:
            last += 1
        is_whole = first > 0 and codes[first - 1] != codes[first] and last < len(codes)
        out_lengths[i] = last - first if is_whole and last - first <= most else 0
