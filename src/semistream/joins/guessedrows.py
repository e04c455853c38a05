"""Rows found by a guess: a few key codes of a page are read, where a code should be.

The codes of a page ascend, and the page index knows its first one and that of the page behind it.
So it is known about where on the page a code is: exactly for keys without gaps, and for hashed keys
to a dozen rows::

    codes of a page   │ first ······················ ▓▓▓▓▓▓▓ ············ │ first of the next
    read                                             512 bytes

If the code, or the place where it would be, is not among those that were read, the whole page has
to be (`LookUpJoin`). That is also so for pages that this process has not compared with their
checksums yet, and for the last page of a sorted stretch.

Only for files in which a request costs little, where rows lie far apart and no code is on two rows;
and not where the file is looked at in place (`relation/readplan.py`).

Memory: the buffer of the read plan, and for the requests of one block 0.5 MB of arrays.
"""

import numpy as np
from numpy.typing import NDArray

from semistream.joins import lookup_kernels as kernels
from semistream.joins.lookupwindow import Requests
from semistream.relation.pagetable import CODES
from semistream.relation.reader import PageReader
from semistream.relation.readplan import PlannedReads
from semistream.relation.writer import CODE_BYTES

# Codes that are read. The place of a hashed key is off by a dozen of a page's 500 rows, typically.
_CODES_READ = 64
_LEAST_KNOWN = 0.5  # of the pages: with fewer, most requests would be made twice


class GuessedRows:
    """Finds rows by reading a few codes around the place where each should be."""

    def __init__(self, reader: PageReader, reads: PlannedReads) -> None:
        """Note where the sorted stretches of pages end."""
        self._reader = reader
        self._reads = reads
        self._last_pages = np.array([last - 1 for _, last in reader.clustered_stretches()])

    def may_help(self, requests: Requests) -> bool:
        """Return whether no code is on two rows, and the rows lie far apart."""
        if not self._reader.has_unique_codes:
            return False
        return self._reads.are_apart(CODES, requests.pages, len(requests.codes))

    def apply_to(self, requests: Requests) -> bool:
        """Return whether guessing rows that lie far apart costs less than whole pages, or a map."""
        pages, rows = requests.pages, len(requests.codes)
        are_known = self._known(pages).mean() >= _LEAST_KNOWN
        return are_known and not self._reads.maps(CODES, pages, rows)

    def find(self, requests: Requests, rows: NDArray[np.int64]) -> None:
        """Write the row of each request, -1 if R has none, or -2 if the guess was not enough."""
        known = self._known(requests.pages)
        part = self._reader.part(CODES)
        assert part is not None, "every page has codes"
        starts = self._reader.row_bounds, self._reader.first_codes, part.offsets
        width = _CODES_READ * CODE_BYTES
        for first, last in self._reads.runs(requests.pages):
            begin, end = np.searchsorted(requests.indexes, (first, last)).tolist()
            step = self._reads.buffer_bytes // width
            for at in range(begin, end, step):
                some = slice(at, min(end, at + step))
                about = (requests.codes[some], requests.indexes[some], requests.pages, known)
                offsets = np.empty(some.stop - at, np.int64)
                kernels.guess_offsets(*about, *starts, _CODES_READ, offsets, rows[some])
                page = int(requests.pages[first])
                codes = self._reads.read_each(CODES, page, offsets[offsets >= 0], width)
                kernels.find_guessed(
                    codes.view(np.int64), *about[:3], *starts, _CODES_READ, offsets, rows[some]
                )

    def _known(self, pages: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return of which pages some codes may be read, and both bounds are known."""
        part, bounds = self._reader.part(CODES), self._reader.row_bounds
        assert part is not None, "every page has codes"
        are_long = bounds[pages + 1] - bounds[pages] > _CODES_READ
        known: NDArray[np.bool_] = part.checked[pages] & are_long
        return known & ~np.isin(pages, self._last_pages)
