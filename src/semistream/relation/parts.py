"""The parts of pages: where each lies in its file, its checksum, and whether it was compared.

Which parts were compared with their checksums is remembered for the whole process, one byte for
each page and part, for the `_REMEMBERED_PARTS` parts used last: files of a snapshot never change.
"""

import zlib
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semistream.relation.pagetable import CODES, is_fixed

_REMEMBERED_PARTS = 4096
_checked: OrderedDict[tuple[str, ...], NDArray[np.bool_]] = OrderedDict()


def remember_checked(key: tuple[str, ...], page_count: int) -> NDArray[np.bool_]:
    """Return the flags of the pages of a part that this process has checked, shared by readers."""
    flags = _checked.pop(key, None)
    _checked[key] = np.zeros(page_count, np.bool_) if flags is None else flags
    while len(_checked) > _REMEMBERED_PARTS:
        _checked.popitem(last=False)
    return _checked[key]


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

    def bytes_of(self, pages: NDArray[np.int64]) -> int:
        """Return the size in bytes of some pages."""
        return int((self.ends[pages + 1] - self.ends[pages]).sum()) * self.unit_bytes

    def first_damaged(
        self, pages: NDArray[np.int64], data: NDArray[np.uint8], starts: NDArray[np.int64]
    ) -> int | None:
        """Compare the bytes of some pages, which begin at `starts`, with their checksums, once.

        Return the first page that does not match, or None.
        """
        checked = self.checked[pages]
        if checked.all():
            return None
        unchecked = np.flatnonzero(~checked)
        view = data.data
        for i in unchecked.tolist():
            page, start = int(pages[i]), int(starts[i])
            end = start + self.size_bytes(page, page + 1)
            if zlib.crc32(view[start:end]) != self.checksums[page]:
                return page
        self.checked[pages[unchecked]] = True
        return None
