"""The loops of the pages of single codes: bits, ranks, a filter by hash, and merging.

A *number* is a code less the first of its range, or a hash; its bit is in word ``number / 64``.
"""

import numpy as np
from numba import uint64

from semistream.jit import njit

WORD_BITS = 64
WORDS_PER_RANK = 8  # a rank, the number of bits set before, is kept for every 8 words
_GOLDEN = uint64(0x9E3779B97F4A7C15)


@njit(inline="always")
def bit_at(bits, number):
    """Return a bit of an array of words."""
    return (bits[number >> uint64(6)] >> (number & uint64(63))) & uint64(1)


@njit(inline="always")
def filter_bit(code, shift):
    """Return the number of the bit of a code in the filter."""
    return (uint64(code) * _GOLDEN) >> shift


@njit(inline="always")
def _ones(word):
    """Return how many bits of a word are set."""
    word -= (word >> uint64(1)) & uint64(0x5555555555555555)
    word = (word & uint64(0x3333333333333333)) + ((word >> uint64(2)) & uint64(0x3333333333333333))
    word = (word + (word >> uint64(4))) & uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * uint64(0x0101010101010101)) >> uint64(56))


@njit(inline="always")
def rank_of(bits, ranks, number):
    """Return how many bits are set before this one."""
    word = np.int64(number >> uint64(6))
    group = word // WORDS_PER_RANK
    rank = np.int64(ranks[group])
    for at in range(group * WORDS_PER_RANK, word):
        rank += _ones(bits[at])
    before = (uint64(1) << (number & uint64(63))) - uint64(1)
    return rank + _ones(bits[word] & before)


@njit(cache=True)
def set_bits(codes, base, bits):
    """Set the bits of some codes."""
    for code in codes:
        number = uint64(code - base)
        bits[number >> uint64(6)] |= uint64(1) << (number & uint64(63))


@njit(cache=True)
def count_ranks(bits, ranks):
    """Write how many bits are set before each group of words; return how many are in all."""
    count = 0
    for at in range(len(bits)):
        if at % WORDS_PER_RANK == 0:
            ranks[at // WORDS_PER_RANK] = count
        count += _ones(bits[at])
    return count


@njit(cache=True)
def put_pages(codes, of, base, bits, ranks, pages):
    """Write the pages of some codes to their places."""
    for i in range(len(codes)):
        pages[rank_of(bits, ranks, uint64(codes[i] - base))] = of[i]


@njit(cache=True)
def fill_filter(codes, base, bits, shift):
    """Set the bits of some codes, given less a base, in a filter of 2^(64 - shift) bits."""
    for code in codes:
        bit = filter_bit(np.int64(code) + base, shift)
        bits[bit >> uint64(6)] |= uint64(1) << (bit & uint64(63))


@njit(cache=True)
def merge_into(codes, pages, count, base, more_codes, more_pages):
    """Merge a run into the first `count` entries; return how many there are then."""
    at = count - 1
    to = count + len(more_codes) - 1
    for i in range(len(more_codes) - 1, -1, -1):
        code = more_codes[i] - base
        while at >= 0 and np.int64(codes[at]) > code:
            codes[to] = codes[at]
            pages[to] = pages[at]
            at -= 1
            to -= 1
        codes[to] = code
        pages[to] = more_pages[i]
        to -= 1
    return count + len(more_codes)
