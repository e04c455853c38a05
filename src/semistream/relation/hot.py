"""Which keys are hot: counted in a sample of the stream, chosen when a relation is built.

X-HYBRIDJOIN (`xhybridjoin.txt`, section 4) assumes R sorted by access frequency, so that its
first pages answer most of the stream. Only the head of that order matters, and only the head can
be known from a sample. So only the *hot keys* are laid out by frequency (see
`semistream.relation.layout`), and all other rows are clustered by code.

A key is hot if

1. its code occurs in the sample at least `LEAST_SEEN` times (once says nothing about frequency),
2. R has rows with that code, and all of them fit into one page,
3. it is among the most frequent such keys, equally frequent ones by code, that together have no
   more than `HOT_SHARE` of R's rows, rounded up. The first key that would exceed it ends the list.

Key codes are counted, not keys. Two keys whose hashes collide are one to the build, as they are to
the joins.

Whether rows fit into a page is known for certain only when they are written, so a key that looks
small enough here (`Candidates.choose`) may still prove too wide there. Its rows are then clustered
as without a sample, and no other key replaces it.

Memory: counting holds the distinct codes of the sample, 16 bytes each, and as many codes again, or
a million, that have not been counted yet.

Degenerate cases: an empty sample, one in which no key occurs twice, or one of keys that R does
not have gives no hot keys, and pages as they are in order of the key.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# A tenth of R: with Zipf 1 over a million keys it has the keys of five in six stream rows. The
# hot index needs 12 bytes per key in every join, so it must not grow with all of R.
HOT_SHARE = 0.1
LEAST_SEEN = 2
_FOLD_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class HotKeys:
    """The codes that are hot, ascending, and the rank of each: 0 is the most frequent."""

    codes: NDArray[np.int64]
    ranks: NDArray[np.int64]

    @classmethod
    def none(cls) -> "HotKeys":
        """Return no hot keys."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64))

    @classmethod
    def from_index(cls, codes: NDArray[np.int64], pages: NDArray[np.int32]) -> "HotKeys":
        """Return the keys of a hot index, ranked by their pages."""
        return cls(codes, pages.astype(np.int64))

    def holds(self, codes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of some codes are hot."""
        return find(self.codes, codes) >= 0

    def without(self, code: int) -> "HotKeys":
        """Return the same without one key."""
        others = self.codes != code
        return HotKeys(self.codes[others], self.ranks[others])

    def ranks_of(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ranks of codes that are hot."""
        return self.ranks[find(self.codes, codes)]


@dataclass(slots=True)
class Candidates:
    """Codes that may be hot, ascending, with their counts in the sample and in R."""

    codes: NDArray[np.int64]
    seen: NDArray[np.int64]  # occurrences in the sample
    rows: NDArray[np.int64]  # rows of R

    @classmethod
    def from_sample(cls, batches: Iterable[NDArray[np.int64]]) -> "Candidates":
        """Count the codes of a sample; R's rows are yet to be counted."""
        codes, seen = count_codes(batches)
        often = seen >= LEAST_SEEN
        return cls(codes[often], seen[often], np.zeros(int(often.sum()), np.int64))

    def count_rows(self, codes: NDArray[np.int64]) -> None:
        """Count some rows of R, given by their codes."""
        places = find(self.codes, codes)
        np.add.at(self.rows, places[places >= 0], 1)

    def choose(self, row_count: int, most_rows: int) -> HotKeys:
        """Return the hot keys of a relation of `row_count` rows, `most_rows` on a page at most.

        >>> seen = Candidates(np.array([10, 20, 30]), np.array([5, 2, 9]), np.array([1, 1, 1]))
        >>> seen.choose(row_count=20, most_rows=8)
        HotKeys(codes=array([10, 30]), ranks=array([1, 0]))
        """
        able = np.flatnonzero((self.rows > 0) & (self.rows <= most_rows))
        by_rank = able[np.lexsort((self.codes[able], -self.seen[able]))]
        by_rank = by_rank[np.cumsum(self.rows[by_rank]) <= most_hot_rows(row_count)]
        ranks = np.argsort(self.codes[by_rank])
        return HotKeys(self.codes[by_rank][ranks], ranks)


def most_hot_rows(row_count: int) -> int:
    """Return the most rows of R that may be hot."""
    return math.ceil(HOT_SHARE * row_count)


def count_codes(
    batches: Iterable[NDArray[np.int64]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct codes, ascending, and how often each occurs.

    >>> count_codes([np.array([7, 3]), np.array([7])])
    (array([3, 7]), array([1, 2]))
    """
    codes, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    waiting: list[NDArray[np.int64]] = []
    waiting_rows = 0
    for batch in batches:
        waiting.append(batch)
        waiting_rows += len(batch)
        if waiting_rows >= max(_FOLD_ROWS, len(codes)):  # so that folding is linear in the end
            codes, counts = _fold(codes, counts, waiting)
            waiting, waiting_rows = [], 0
    return _fold(codes, counts, waiting)


def _fold(
    codes: NDArray[np.int64], counts: NDArray[np.int64], more: list[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    everything = np.concatenate([codes, *more])
    distinct, places = np.unique(everything, return_inverse=True)
    totals = np.zeros(len(distinct), np.int64)
    np.add.at(totals, places[: len(codes)], counts)
    np.add.at(totals, places[len(codes) :], 1)
    return distinct, totals


def find(ascending: NDArray[np.int64], codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the position of each code among distinct ascending ones, -1 if it is not there.

    >>> find(np.array([3, 7]), np.array([7, 5, 9])).tolist()
    [1, -1, -1]
    """
    if not len(ascending):
        return np.full(len(codes), -1, np.int64)
    places = np.searchsorted(ascending, codes)
    places[places == len(ascending)] = 0
    return np.where(ascending[places] == codes, places, -1)
