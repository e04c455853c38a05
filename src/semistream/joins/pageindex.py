"""The sparse clustered index as the index joins use it: from a key code to its page.

A code's *home* is the first page that may hold it. Pages of a partition are sorted, so that is
found by a binary search among the pages' first codes. Duplicate keys may run on over several pages:
`ends` says, for each home, behind which page all its codes have been seen.

Memory: first codes and page bounds are the reader's; `ends` adds 4 bytes a page, and only where R
has duplicates.
"""

import numpy as np
from numpy.typing import NDArray

from semistream.joins import kernels
from semistream.relation.reader import PageReader


class PageIndex:
    """Finds the pages of key codes."""

    def __init__(self, reader: PageReader) -> None:
        """Derive what is needed from the page table."""
        self.first_codes = reader.first_codes
        self.page_bounds = reader.partition_page_bounds()
        self.is_unique = reader.has_unique_codes
        self._ends = None if self.is_unique else self._find_ends()

    @staticmethod
    def size_bytes(reader: PageReader) -> int:
        """Return what an index over these pages adds to the page table."""
        return 0 if reader.has_unique_codes else 4 * reader.page_count

    @property
    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64], bool]:
        """What the kernels take."""
        return self.first_codes, self.page_bounds, self.is_unique

    def homes(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the home page of each code."""
        homes: NDArray[np.int64] = kernels.home_pages(codes, *self.arrays)
        return homes

    def end(self, home: int) -> int:
        """Return the page (exclusive) up to which codes at home on this page may lie."""
        return home + 1 if self._ends is None else int(self._ends[home])

    def _find_ends(self) -> NDArray[np.int32]:
        """A home's last code may be the next page's first, and run on for as long as that does."""
        ends = np.arange(1, len(self.first_codes) + 1, dtype=np.int32)
        for first, last in self.page_bounds:
            codes = self.first_codes[first:last]
            if len(codes) > 1:
                ends[first : last - 1] = first + np.searchsorted(codes, codes[1:], "right")
        return ends
