"""The hot loops of look-ups in the order of R: requests by page, and their rows.

A *request* is a waiting tuple and a page on which it may have matches. With unique keys a tuple has
one request; with duplicates it has one more for each page after it that begins with its code.
"""

import numpy as np
from numba import uint64

from semistream.jit import njit
from semistream.relation.read_kernels import lets_go, look_at

_DIGIT_BITS = 12
_GUESSED = 256  # requests whose rows are guessed at a time


@njit(cache=True)
def expand_requests(codes, pages, first_codes, ends, position, out_slots, out_pages):
    """Write the requests of tuples with these codes and pages; return how many there are.

    `ends` are those of `PageIndex`. Stops when the output is full; `position` is ``[next tuple, its
    next page or -1]``, and is updated in place.
    """
    count = 0
    slot, page = position[0], position[1]
    while slot < len(codes) and count < len(out_slots):
        code = codes[slot]
        page = pages[slot] if page < 0 else page
        out_slots[count] = slot
        out_pages[count] = page
        count += 1
        page += 1
        last = ends[pages[slot]] if len(ends) else page
        if page >= last or first_codes[page] != code:
            slot += 1
            page = -1
    position[0], position[1] = slot, page
    return count


@njit(cache=True)
def sort_by_page(pages, page_count, order, other):
    """Return an order in which the pages ascend, stable: one of the two arrays lent for it."""
    for i in range(len(pages)):
        order[i] = i
    counts = np.empty((1 << _DIGIT_BITS) + 1, np.int32)
    shift = 0
    while page_count >> shift:
        counts[:] = 0
        mask = (1 << _DIGIT_BITS) - 1
        for i in range(len(pages)):
            counts[((pages[i] >> shift) & mask) + 1] += 1
        for digit in range(mask):
            counts[digit + 1] += counts[digit]
        for i in range(len(pages)):
            digit = (pages[order[i]] >> shift) & mask
            other[counts[digit]] = order[i]
            counts[digit] += 1
        order, other = other, order
        shift += _DIGIT_BITS
    return order


@njit(cache=True)
def pages_of_requests(pages, order, out_pages, out_indexes):
    """Write each requested page once, ascending, and of each request its index; return how many."""
    count = 0
    for i in range(len(order)):
        page = pages[order[i]]
        if count == 0 or out_pages[count - 1] != page:
            out_pages[count] = page
            count += 1
        out_indexes[i] = count - 1
    return count


@njit(cache=True)
def match_requests(
    page_codes,
    window,
    starts,
    pages,
    row_bounds,
    slots,
    codes,
    indexes,
    first_index,
    position,
    out_rows,
    out_slots,
    found,
):
    """Find the rows of some requests on pages whose codes are in view; return the pairs so far.

    `pages` are those in view, their codes begin at `starts`, and `first_index` is the first one's
    index; `window` is that of a mapped file (`relation/mapped.py`). Writes (row of R, slot) pairs
    from place `found` on and stops when the output is full; `position` is ``[next request, first
    match of it still to be written or -1]``.
    """
    request, row = position[0], position[1]
    guesses = np.empty(_GUESSED, np.int64)
    first_guessed = last_guessed = request
    while request < len(codes):
        if request == last_guessed:
            first_guessed = request
            about = (page_codes, window, starts, pages, row_bounds, codes, indexes, first_index)
            last_guessed = _guess_rows(*about, request, guesses)
        at = indexes[request] - first_index
        page = pages[at]
        begin = starts[at]
        last = begin + row_bounds[page + 1] - row_bounds[page] - 1
        code = codes[request]
        if row < 0:
            row = guesses[request - first_guessed]
        if row < 0:
            row = find_in_page(page_codes, begin, last, code)
        while row <= last and page_codes[row] == code:
            if found == len(out_rows):
                position[0], position[1] = request, row
                return found
            out_rows[found] = row - begin + row_bounds[page]
            out_slots[found] = slots[request]
            found += 1
            row += 1
        row = -1
        request += 1
    position[0], position[1] = request, -1
    return found


@njit(cache=True)
def _guess_rows(
    page_codes, window, starts, pages, row_bounds, codes, indexes, first_index, request, out
):
    """Write where the codes of some requests are if a guess is right, else -1; return up to which.

    Guesses do not wait for each other, so cache misses overlap; searches would. The pages of these
    requests may all be looked at without letting go of any.
    """
    end = request
    at = -1
    begin = last = low = high = np.int64(0)
    while end < min(len(codes), request + len(out)):
        if indexes[end] - first_index != at:
            at = indexes[end] - first_index
            page = pages[at]
            begin = starts[at]
            last = begin + row_bounds[page + 1] - row_bounds[page] - 1
            if end > request and lets_go(window, 8 * begin, 8 * (last + 1)):
                break
            look_at(page_codes, window, 8 * begin, 8 * (last + 1))
            low, high = page_codes[begin], page_codes[last]
        code = codes[end]
        guess = -1
        if low < code <= high:
            guess = _guess(begin, last, low, high, code)
            if page_codes[guess] != code or page_codes[guess - 1] == code:
                guess = -1
        out[end - request] = guess
        end += 1
    return end


@njit(inline="always")
def _guess(first, last, low, high, code):
    """Return where a code should be between two others, if codes are spread evenly."""
    share = np.float64(uint64(code) - uint64(low)) / np.float64(uint64(high) - uint64(low))
    return first + np.int64(share * np.float64(last - first) + 0.5)


@njit(inline="always")
def find_in_page(codes, first, last, code):
    """Return the first place from `first` on whose code is not less, or `last` + 1.

    Codes are spread about evenly over a page, or lie side by side: the first guess is often right.
    """
    low, high = codes[first], codes[last]
    if code <= low:
        return first
    if code > high:
        return last + 1
    guess = _guess(first, last, low, high, code)
    if codes[guess] == code and codes[guess - 1] != code:
        return guess
    count = last - first
    base = first
    while count > 1:
        half = count // 2
        base += half * (codes[base + half] < code)
        count -= half
    return base + 1


@njit(cache=True)
def guess_offsets(codes, indexes, pages, known, row_bounds, first_codes, offsets, count, out, rows):
    """Write where in the file `count` codes around each of some codes should be.

    -1 for codes on pages that are not `known`, and where the code is not between the first codes of
    its page and of the next one; their `rows` are -2.
    """
    for i in range(len(codes)):
        page = pages[indexes[i]]
        low, high = first_codes[page], first_codes[page + 1] if known[indexes[i]] else 0
        out[i] = -1
        rows[i] = -2
        if known[indexes[i]] and low <= codes[i] < high:
            total = row_bounds[page + 1] - row_bounds[page]
            share = np.float64(uint64(codes[i]) - uint64(low)) / np.float64(
                uint64(high) - uint64(low)
            )
            begin = np.int64(share * np.float64(total)) - count // 2
            begin = max(0, min(begin, total - count))
            out[i] = offsets[page] + 8 * begin


@njit(cache=True)
def find_guessed(read, codes, indexes, pages, row_bounds, first_codes, offsets, count, at, rows):
    """Write the rows of codes of which `count` codes around their guessed places were `read`.

    `at` is what `guess_offsets` wrote. A row is -1 if R does not have the code, and stays -2 if it
    is not known, because the code lies before or behind what was read.
    """
    place = 0
    for i in range(len(codes)):
        if at[i] < 0:
            continue
        code, page = codes[i], pages[indexes[i]]
        begin = (at[i] - offsets[page]) // 8
        total = row_bounds[page + 1] - row_bounds[page]
        first, last = place, place + count - 1
        place += count
        if read[first] > code and begin > 0:
            continue
        if read[last] < code and begin + count < total:
            continue
        found = find_in_page(read, first, last, code)
        is_there = found <= last and read[min(found, last)] == code
        rows[i] = row_bounds[page] + begin + found - first if is_there else -1


@njit(cache=True)
def in_turn(slots, first, last, nulls):
    """Return slots and places of results, by slot; `nulls`, unless negative, where there is none.

    Results of one slot stay in the order in which they are.
    """
    ends = np.zeros(last - first + 1, np.int32)
    for slot in slots:
        ends[slot - first + 1] += 1
    missed = 0
    if nulls >= 0:
        for i in range(1, len(ends)):
            missed += ends[i] == 0
    of_slots = np.empty(len(slots) + missed, np.int32)
    results = np.empty(len(slots) + missed, np.int32)
    # 1. Each slot's places, and where they begin; a miss has one.
    begin = 0
    for i in range(1, len(ends)):
        count = ends[i]
        ends[i - 1] = begin
        if count == 0 and nulls >= 0:
            of_slots[begin] = first + i - 1
            results[begin] = nulls
            begin += 1
        for _ in range(count):
            of_slots[begin] = first + i - 1
            begin += 1
    # 2. The results, each at the next place of its slot.
    for i in range(len(slots)):
        place = ends[slots[i] - first]
        results[place] = i
        ends[slots[i] - first] = place + 1
    return of_slots, results
