"""Which bucket of the hash table a key code belongs to.

Two functions of one shape, ``(code * factor - base) >> shift``:

*Ordered* (``factor = 1``): neighbouring codes share a bucket. R's pages are sorted by code, so a
scan of R visits the buckets from left to right and the table is read like a file. It needs codes
that are spread evenly over their range, as dense integers and hashes are. The build counted how
many rows share a bucket at every shift, so the choice needs no look at the data.

*Hashed* (``factor`` = 2⁶⁴/φ, Fibonacci hashing): for integer keys that lie in clumps, where the
ordered function would put many keys into few buckets.
"""

from dataclasses import dataclass

import numpy as np

from semistream.relation.reader import PageReader

_WORD = 1 << 64
_GOLDEN = 0x9E3779B97F4A7C15
_MOST_CROWDED = 4.0
_COARSER_BITS = 2


@dataclass(frozen=True, slots=True)
class Buckets:
    """A bucket function and how many buckets it has."""

    count: int
    factor: np.uint64
    base: np.uint64
    shift: np.uint64

    @property
    def function(self) -> tuple[np.uint64, np.uint64, np.uint64]:
        """The three numbers that the kernels need."""
        return (self.factor, self.base, self.shift)

    @property
    def is_ordered(self) -> bool:
        """Whether neighbouring codes share a bucket."""
        return bool(self.factor == 1)

    def coarser(self) -> "Buckets":
        """Return buckets that each hold four of these, for fewer codes."""
        shift = min(int(self.shift) + _COARSER_BITS, 63)
        count = ((self.count - 1) >> (shift - int(self.shift))) + 1
        return Buckets(count, self.factor, self.base, np.uint64(shift))

    @classmethod
    def ordered(cls, first_code: int, last_code: int, most: int) -> "Buckets":
        """Return at most `most` buckets (and more than half as many, or two) over some codes."""
        span = last_code - first_code
        most = max(2, most)
        shift = max(0, (span // most).bit_length())
        while shift > 0 and (span >> (shift - 1)) < most:
            shift -= 1
        base = np.uint64(first_code % _WORD)
        return cls((span >> shift) + 1, np.uint64(1), base, np.uint64(shift))

    @classmethod
    def hashed(cls, most: int) -> "Buckets":
        """Return the largest power of two of buckets that is at most `most`, and at least two."""
        bits = max(1, most.bit_length() - 1)
        return cls(1 << bits, np.uint64(_GOLDEN), np.uint64(0), np.uint64(64 - bits))

    @classmethod
    def choose(cls, reader: PageReader, most: int) -> "Buckets":
        """Return the ordered function where the relation's codes are even, else the hashed one."""
        first, last = reader.code_range
        hashed = cls.hashed(max(2, most))
        if last < first or most < 2:
            return hashed
        ordered = cls.ordered(first, last, most)
        fair = reader.row_count / ordered.count + reader.crowding(0)
        is_even = reader.crowding(int(ordered.shift)) <= _MOST_CROWDED * fair
        return ordered if is_even else hashed
