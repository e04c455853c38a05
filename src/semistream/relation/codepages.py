"""The pages of single codes: the non-clustered index of hot and delta pages, in memory.

It has one of two forms, whichever is smaller:

*sorted*   the codes, ascending, and the page of each. A directory leads to the place of a code
           (`index_kernels`), and a filter by hash spares most codes the search.
*bitmap*   a bit for each code of the range, and the pages of those that are set, in order. The
           place of a code is the number of bits before its own. For integer keys that lie close
           together: it tells at once, without a filter, which codes are there.

Memory: 6 to 12 bytes a code and 1 to 2 for the filter, or 2 to 4 bytes a code and a bit for each
code of the range.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semistream.relation import codepages_kernels as kernels
from semistream.relation.codepages_kernels import WORD_BITS, WORDS_PER_RANK

Codes = NDArray[np.int64]
Run = tuple[Codes, NDArray[np.int32]]  # codes, ascending, and the page of each
_FILTER_BITS = 8  # for each code, at least


@dataclass(frozen=True, slots=True)
class Form:
    """How codes of a range are kept, and in how many bytes."""

    code_range: tuple[int, int]  # first and last
    page_count: int
    most_codes: int

    @property
    def is_bitmap(self) -> bool:
        """Whether a bitmap is smaller than the sorted codes and their filter."""
        return 0 < self._bitmap_bytes < self._sorted_bytes

    @property
    def size_bytes(self) -> int:
        """The most bytes of a `CodePages` of this form."""
        if not self.most_codes:
            return 0
        keys = self._bitmap_bytes if self.is_bitmap else self._sorted_bytes
        return keys + self.most_codes * self.page_type.itemsize

    @property
    def bits_bytes(self) -> int:
        """The bytes of a `CodeBits` of this form; 0 if it has no bitmap."""
        return 8 * self.words if self.is_bitmap else 0

    @property
    def code_type(self) -> np.dtype[Any]:
        """In what the codes are kept: 4 bytes, less the first, if they lie close enough."""
        first, last = self.code_range
        return np.dtype(np.uint32 if last - first < 1 << 32 else np.int64)

    @property
    def page_type(self) -> np.dtype[Any]:
        """In what pages are kept: 2 bytes if there are few enough."""
        return np.dtype(np.uint16 if self.page_count <= 1 << 16 else np.int32)

    @property
    def words(self) -> int:
        """How many words the bitmap of the range has, a multiple of `WORDS_PER_RANK`."""
        first, last = self.code_range
        return -(-(last - first + 1) // (WORD_BITS * WORDS_PER_RANK)) * WORDS_PER_RANK

    @property
    def filter_bits(self) -> int:
        """Of how many bits the hash is by which codes are filtered."""
        return max(WORD_BITS.bit_length() - 1, (_FILTER_BITS * self.most_codes - 1).bit_length())

    @property
    def _bitmap_bytes(self) -> int:
        return 8 * self.words + 4 * (self.words // WORDS_PER_RANK) if self.most_codes else 0

    @property
    def _sorted_bytes(self) -> int:
        filtering = (1 << self.filter_bits) // 8 if self.most_codes else 0
        return self.most_codes * self.code_type.itemsize + filtering


@dataclass(frozen=True, slots=True)
class CodeBits:
    """Which codes of a range are on hot and delta pages: the bitmap alone."""

    bits: NDArray[np.uint64]
    base: np.int64  # the code of the first bit

    @classmethod
    def of(cls, codes: Iterable[Codes], form: Form) -> "CodeBits":
        """Set the bits of codes that are in the range of the form."""
        base = np.int64(form.code_range[0])
        bits = np.zeros(form.words, np.uint64)
        for some in codes:
            kernels.set_bits(np.array(some), base, bits)
        return cls(bits, base)


@dataclass(frozen=True, slots=True)
class CodePages:
    """Codes, each once, and the page of each."""

    codes: NDArray[Any]  # less `base`, ascending; none with a bitmap
    pages: NDArray[Any]  # of each code, in the order of the codes
    base: np.int64
    bits: NDArray[np.uint64]  # the filter or the bitmap
    shift: np.uint64  # of the filter: how far a hash is shifted
    ranks: NDArray[np.int32]  # of the bitmap: bits set before every `WORDS_PER_RANK` words

    @classmethod
    def merged(cls, runs: Sequence[Run], form: Form) -> "CodePages":
        """Merge runs whose codes differ, and are in the range of the form."""
        return cls._bitmap(runs, form) if form.is_bitmap else cls._sorted(runs, form)

    @classmethod
    def _bitmap(cls, runs: Sequence[Run], form: Form) -> "CodePages":
        found = CodeBits.of((codes for codes, _ in runs), form)
        bits, base = found.bits, found.base
        ranks = np.zeros(form.words // WORDS_PER_RANK, np.int32)
        count = kernels.count_ranks(bits, ranks)
        pages = np.empty(count, form.page_type)
        for codes, of in runs:
            kernels.put_pages(np.array(codes), np.array(of), base, bits, ranks, pages)
        return cls(np.empty(0, form.code_type), pages, base, bits, np.uint64(0), ranks)

    @classmethod
    def _sorted(cls, runs: Sequence[Run], form: Form) -> "CodePages":
        count = sum(len(codes) for codes, _ in runs)
        codes = np.empty(count, form.code_type)
        pages = np.empty(count, form.page_type)
        base = np.int64(form.code_range[0] if form.code_type == np.uint32 else 0)
        at = 0
        for run in runs:  # merged from behind, in place, so that only one run is held twice
            at = int(kernels.merge_into(codes, pages, at, base, *map(np.array, run)))
        bits = np.zeros((1 << form.filter_bits) // WORD_BITS if count else 0, np.uint64)
        shift = np.uint64(64 - form.filter_bits)
        kernels.fill_filter(codes, base, bits, shift)
        return cls(codes, pages, base, bits, shift, np.zeros(0, np.int32))

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The arguments of the kernels."""
        return self.codes, self.pages, self.base, self.bits, self.shift, self.ranks
