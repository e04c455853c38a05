"""The hot loops of the page index: from a key code to its page.

*Parts.* Sorted codes lie in several stretches, one for each partition of R (the first codes of
its pages) and one for the index of the hot pages. A row of `parts` describes a stretch: where it
begins and ends, and its *directory*, which says for equal ranges of codes where they begin in the
stretch. With keys that are spread evenly a range holds a page or none, so a search takes a step
or two instead of ⌈log₂ N_R⌉ mispredicted ones; with keys in clumps the binary search remains.

*Listed codes.* Most codes are on clustered pages. So that not each of them is searched for among
the codes of hot and delta pages, a bitmap or a filter tells that they are not there
(`semistream.relation.codepages`).
"""

import numpy as np
from numba import uint64

from semistream.jit import njit
from semistream.relation.codepages_kernels import WORD_BITS, bit_at, filter_bit, rank_of

# Columns of `parts`.
FIRST = 0
LAST = 1  # exclusive
DIRECTORY = 2  # where its directory begins
RANGES = 3  # how many ranges the directory has; it has one entry more
BASE = 4  # the first code
SHIFT = 5  # a range is 2^shift codes
COLUMNS = 6


@njit(inline="always")
def lower_bound(values, parts, part, directory, code):
    """Return the first place in a stretch whose value is not less than the code, or its end.

    Free of branches that depend on the code, as far as the directory leads: those would cost more
    than all the rest.
    """
    base = parts[part, BASE]
    offset = uint64(code) - uint64(base) if code > base else uint64(0)
    nth = min(offset >> uint64(parts[part, SHIFT]), uint64(parts[part, RANGES] - 1))
    at = np.int64(nth) + parts[part, DIRECTORY]
    low = parts[part, FIRST] + directory[at]
    high = parts[part, FIRST] + directory[at + 1]
    while high - low > 1:
        middle = (low + high) // 2
        if np.int64(values[middle]) < code:
            low = middle + 1
        else:
            high = middle
    return low + ((low < high) & (np.int64(values[min(low, len(values) - 1)]) < code))


@njit(cache=True)
def fill_directory(values, parts, part, directory):
    """Write the directory of one stretch."""
    first = parts[part, FIRST]
    at = first
    for i in range(parts[part, RANGES]):
        bound = uint64(i) << uint64(parts[part, SHIFT])
        while at < parts[part, LAST] and uint64(values[at]) - uint64(parts[part, BASE]) < bound:
            at += 1
        directory[parts[part, DIRECTORY] + i] = at - first
    directory[parts[part, DIRECTORY] + parts[part, RANGES]] = parts[part, LAST] - first


@njit(inline="always")
def partition_of(code, parts):
    """Return which partition a code belongs to."""
    partitions = len(parts) - 1
    return code % partitions if partitions > 1 else 0


@njit(cache=True)
def find_pages(codes, pages, index):
    """Write the page of each code: the first page that may hold it.

    `index` is `PageIndex.arrays`. Their partitions must have pages. A loop for each index, or the
    compiler would not keep them free of branches.
    """
    first_codes, parts, directory, is_unique, listed, listed_pages, base, bits, shift, ranks = index
    # 1. The clustered pages: the last one whose first code is not greater, or, where duplicates
    # may run on from the page before, the last one whose first code is less.
    for i in range(len(codes)):
        code = codes[i]
        part = partition_of(code, parts)
        page = lower_bound(first_codes, parts, part, directory, code)
        first, last = parts[part, FIRST], parts[part, LAST]
        starts_with_it = first_codes[min(page, len(first_codes) - 1)] == code
        # A partition may have hot pages only; then any of them tells that the code is not there.
        least = first - (first == last)
        pages[i] = max(least, page - 1 + (is_unique & (page < last) & starts_with_it))
    # 2. Hot and delta pages, by the index of their codes: they override what was found. First those
    # codes are collected that the bitmap has, or that the filter does not rule out.
    if len(listed_pages) == 0:
        return
    likely = np.empty(len(codes), np.int32)
    count = np.int64(0)
    if len(ranks):
        last = uint64(len(bits) * WORD_BITS - 1)
        for i in range(len(codes)):
            number = uint64(codes[i] - base)
            likely[count] = i
            count += np.int64((number <= last) & (bit_at(bits, min(number, last)) == 1))
        for nth in range(count):
            number = uint64(codes[likely[nth]] - base)
            pages[likely[nth]] = listed_pages[rank_of(bits, ranks, number)]
        return
    for i in range(len(codes)):
        likely[count] = i
        count += np.int64(bit_at(bits, filter_bit(codes[i], shift)))
    for nth in range(count):
        code = codes[likely[nth]] - base
        at = lower_bound(listed, parts, len(parts) - 1, directory, code)
        if at < len(listed) and np.int64(listed[at]) == code:
            pages[likely[nth]] = listed_pages[at]
