"""The index on R as the joins use it: from a key code to its page.

The *page of a code* is the first page that may hold it. Clustered pages of a partition are sorted,
so their first codes are a sparse index; rows on hot pages (``order="frequency"``) and delta pages
are found through the non-clustered index, which has an entry for each of their codes. Both are
searched through a directory (`index_kernels`), unless the latter is a bitmap
(`semistream.relation.codepages`). Duplicate keys may run on over several clustered
pages: `end` says, for each page, behind which page all codes that belong to it have been seen.

Memory: first codes are the reader's. The directories add 8 bytes a page, `ends` 4 bytes a page, and
only where R has duplicates. Each code on hot or delta pages takes 2 to 15 bytes.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from semistream.relation import index_kernels as kernels
from semistream.relation.reader import PageReader

_RANGES_PER_PAGE = 2
_LISTED_CODES_PER_RANGE = 4


class PageIndex:
    """Finds the pages of key codes."""

    def __init__(self, reader: PageReader) -> None:
        """Derive what is needed from the page table."""
        self.first_codes = reader.first_codes  # by page
        self._listed = reader.listed_codes()  # codes on hot and delta pages, and their pages
        self.is_unique = reader.has_unique_codes  # no code is on two pages
        bounds = reader.partition_page_bounds()
        # The sorted stretches, one a partition and one of hot codes; see `index_kernels`.
        self.parts = np.zeros((len(bounds) + 1, kernels.COLUMNS), np.int64)
        self._directory = np.zeros(_directory_entries(reader), np.int32)  # of all stretches
        used = 0
        for part, (first, last) in enumerate(bounds.tolist()):
            ranges = _RANGES_PER_PAGE * (last - first)
            used = self._describe(part, self.first_codes, (first, last), ranges, used)
        listed = self._listed.codes
        ranges = -(-len(listed) // _LISTED_CODES_PER_RANGE)
        self._describe(len(bounds), listed, (0, len(listed)), ranges, used)
        # By page: behind which one all its codes have been seen; None if that is the next.
        self._ends = None if self.is_unique else self._find_ends(reader.clustered_stretches())

    @staticmethod
    def size_bytes(reader: PageReader) -> int:
        """Return the size in bytes that an index over these pages adds to the page table."""
        parts = 8 * kernels.COLUMNS * (len(reader.manifest.partitions) + 1)
        ends = 0 if reader.has_unique_codes else 4 * reader.page_count
        listed = reader.listed_form.size_bytes
        return parts + 4 * _directory_entries(reader) + ends + listed

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The arguments of the kernels."""
        return (
            self.first_codes,
            self.parts,
            self._directory,
            self.is_unique,
            *self._listed.arrays,
        )

    @property
    def page_count(self) -> int:
        """How many pages R has, hot ones included."""
        return len(self.first_codes)

    def pages(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the page of each code; their partitions must have pages."""
        pages = np.empty(len(codes), np.int64)
        kernels.find_pages(codes, pages, self.arrays)
        return pages

    def first_code_after(self, pages: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first code of the page behind each of these, or of the last page."""
        return self.first_codes[np.minimum(pages + 1, self.page_count - 1)]

    def end(self, page: int) -> int:
        """Return the page (exclusive) up to which codes that belong to this page may lie."""
        return page + 1 if self._ends is None else int(self._ends[page])

    @property
    def ends(self) -> NDArray[np.int32]:
        """The same of every page, for the kernels; empty if it is always the next page."""
        return np.zeros(0, np.int32) if self._ends is None else self._ends

    def _describe(
        self,
        part: int,
        values: NDArray[Any],
        bounds: tuple[int, int],
        most_ranges: int,
        used: int,
    ) -> int:
        """Fill in one stretch and its directory; return how much of the directory is used."""
        first, last = bounds
        base = int(values[first]) if first < last else 0
        span = int(values[last - 1]) - base if first < last else 0
        shift = min(63, (span // max(1, most_ranges)).bit_length())
        ranges = (span >> shift) + 1
        self.parts[part] = first, last, used, ranges, base, shift
        kernels.fill_directory(values, self.parts, part, self._directory)
        return used + ranges + 1

    def _find_ends(self, stretches: list[tuple[int, int]]) -> NDArray[np.int32]:
        """A page's last code may be the next page's first, and run on for as long as that does."""
        ends = np.arange(1, self.page_count + 1, dtype=np.int32)
        for first, last in stretches:
            codes = self.first_codes[first:last]
            if len(codes) > 1:
                ends[first : last - 1] = first + np.searchsorted(codes, codes[1:], "right")
        return ends


def _directory_entries(reader: PageReader) -> int:
    """Return the most entries that all directories have: their ranges, and one more for each."""
    parts = len(reader.manifest.partitions) + 1
    form = reader.listed_form
    listed = 0 if form.is_bitmap else -(-form.most_codes // _LISTED_CODES_PER_RANGE)
    return _RANGES_PER_PAGE * reader.page_count + listed + 2 * parts
