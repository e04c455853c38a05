"""A local file that is looked at where it lies in the page cache, a bounded part at a time.

::

    file      │ unit │ unit │ unit │ unit │ unit │ unit │
    released    ░░░░░░░░░░░░░                                let go of by the kernel that looks
    mapped                    ████████████                   at most `most_bytes`
    rows          x      x      x     x  ►

A page fault maps what lies around it as well, at most one unit: the file's bytes are in the page
cache in pieces of 4 KiB to 2 MiB, depending on how they were written or read ahead. So kernels
count in units. Before one looks at bytes it calls `look_at`, which lets go of the units behind when
they become too many. They stay in the page cache, and may be mapped again.

What a unit costs depends on the size of these pieces: 1 to 2 µs if it is one large page, up to
200 µs if it is 512 small ones. Nothing tells which, so a few are tried, and for some seconds all
readers of this process rely on that.

Memory: what is mapped counts in the resident size of the process, so it belongs to the disk buffer.
"""

import ctypes
import mmap
import statistics
from collections import OrderedDict
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from semistream.relation.read_kernels import UNIT_BYTES, release

_KERNEL_PAGE = mmap.PAGESIZE
_POPULATE_READ = 22  # MADV_POPULATE_READ, Linux 5.14
_TRIED_UNITS = 4
_LARGE_PAGE_NS = 20_000  # what mapping a large page takes at the most, and small ones at the least

# For each file, the share of it that is cached in small pages, and when that was tried, in ns. What
# is cached, and how, changes slowly; trying costs as much as some hundred requests.
_tried: OrderedDict[str, tuple[float, int]] = OrderedDict()
_TRIED_AGAIN_NS = 30_000_000_000
_MOST_TRIED = 4096

# The window of a file that is not mapped.
NOT_MAPPED: NDArray[np.int64] = np.zeros(4, np.int64)


class MappedFile:
    """A whole file, mapped to be read only."""

    def __init__(self, mapped: mmap.mmap, path: str) -> None:
        """Nothing is resident yet."""
        address = np.frombuffer(mapped, np.uint8).ctypes.data
        # Not marked as read-only: kernels are compiled once, for buffers as well as for this.
        whole = (ctypes.c_uint8 * len(mapped)).from_address(address)
        self.data: NDArray[np.uint8] = np.ctypeslib.as_array(whole)
        self._mapped = mapped
        self._path = path

    def window(self, most_bytes: int) -> NDArray[np.int64]:
        """Return what kernels need to look at the file with `most_bytes` of it mapped at most."""
        pages = -(-len(self.data) // _KERNEL_PAGE)
        # What is looked at may end in the middle of a unit that is mapped as a whole.
        return np.array([0, 0, most_bytes - UNIT_BYTES, pages * _KERNEL_PAGE])

    def release(self, window: NDArray[np.int64]) -> None:
        """Let go of what a kernel has left mapped."""
        release(self.data, window)

    def small_share(self, offsets: NDArray[np.int64]) -> float:
        """Return the share of the file that is cached in small pages, by a few units at offsets."""
        share, tried_at = _tried.pop(self._path, (0.0, -_TRIED_AGAIN_NS))
        if perf_counter_ns() - tried_at >= _TRIED_AGAIN_NS:
            tried = offsets[:: -(-len(offsets) // _TRIED_UNITS)] // UNIT_BYTES * UNIT_BYTES
            share = statistics.fmean(map(self._is_small, tried.tolist()))
            tried_at = perf_counter_ns()
        _tried[self._path] = share, tried_at
        while len(_tried) > _MOST_TRIED:
            _tried.popitem(last=False)
        return share

    def _is_small(self, start: int) -> bool:
        size = min(UNIT_BYTES, len(self.data) - start)
        started = perf_counter_ns()
        try:
            self._mapped.madvise(_POPULATE_READ, start, size)
            self._mapped.madvise(mmap.MADV_DONTNEED, start, size)
        except OSError:  # an older system, where large pages of files are rare
            return True
        return perf_counter_ns() - started > _LARGE_PAGE_NS
