"""The parts of pages: where each lies in its file, its checksum, and whether it was compared.

Which parts were compared with their checksums is remembered for the whole process, one byte for
each page and part, for the `_REMEMBERED_PARTS` parts used last: files of a snapshot never change.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from semistream.relation.pagetable import CODES, is_fixed

_REMEMBERED_PARTS = 4096
_checked: OrderedDict[tuple[str, ...], NDArray[np.bool_]] = OrderedDict()
_by_file: dict[str, NDArray[np.bool_]] = {}  # the newest flags of each file, views of the above


def remember_checked(key: tuple[str, ...], page_counts: Sequence[int]) -> NDArray[np.bool_]:
    """Return the flags of the pages of a part that this process has checked, shared by readers.

    `key` names the part in each file, `page_counts` the pages there. Readers of the same files
    share the flags; a reader of another snapshot begins with those of the files that it shares.
    """
    flags = _checked.pop(key, None)
    if flags is None:
        known = [_by_file.get(name) for name in key]
        flags = np.concatenate(
            [
                np.zeros(count, np.bool_) if found is None or len(found) != count else found
                for found, count in zip(known, page_counts, strict=True)
            ]
        )
        bounds = np.cumsum(page_counts)[:-1]
        _by_file.update(zip(key, np.split(flags, bounds), strict=True))
    _checked[key] = flags
    while len(_checked) > _REMEMBERED_PARTS:
        for name in _checked.popitem(last=False)[0]:
            _by_file.pop(name, None)
    return flags


@dataclass(slots=True)
class Part:
    """The places of one part of all pages in the files, and which were checked."""

    name: str
    offsets: NDArray[np.int64]  # of each page in its file
    ends: NDArray[np.int64]  # running total of the pages' sizes, in units of `unit_bytes`
    unit_bytes: int  # bytes per row if the width is fixed, else 1
    checksums: NDArray[np.uint32]  # CRC-32 of each page
    checked: NDArray[np.bool_]  # shared by all readers of this process

    @property
    def own_bytes(self) -> int:
        """Memory of this part of the page table; fixed widths share the running row count."""
        ends_bytes = 0 if is_fixed(self.name) or self.name == CODES else self.ends.nbytes
        return self.offsets.nbytes + ends_bytes + self.checksums.nbytes + self.checked.nbytes

    def size_bytes(self, first: int, last: int) -> int:
        """Return the size in bytes of pages ``first … last - 1``."""
        return int(self.ends[last] - self.ends[first]) * self.unit_bytes

    def sizes_of(self, pages: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the size in bytes of each of some pages."""
        sizes: NDArray[np.int64] = (self.ends[pages + 1] - self.ends[pages]) * self.unit_bytes
        return sizes

    def bytes_of(self, pages: NDArray[np.int64]) -> int:
        """Return the size in bytes of some pages."""
        return int(self.sizes_of(pages).sum())

    def first_damaged(
        self, pages: NDArray[np.int64], data: NDArray[np.uint8], starts: NDArray[np.int64]
    ) -> int | None:
        """Compare the bytes of some pages, which begin at `starts`, with their checksums, once.

        Return the first page that does not match, or None.
        """
        unchecked = np.flatnonzero(~self.checked[pages])
        if not len(unchecked):
            return None
        pages, starts = pages[unchecked], starts[unchecked]
        ends, view = starts + self.sizes_of(pages), data.data
        found = [crc32(view[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        damaged = np.flatnonzero(np.array(found, np.uint32) != self.checksums[pages])
        if len(damaged):
            return int(pages[damaged[0]])
        self.checked[pages] = True
        return None
