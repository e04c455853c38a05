"""The hot loops of the read plan: which parts of pages to read together, and reading them.

If some of the requests are not in the page cache, all are made twice: at first without waiting. The
others are announced to the device, many at a time, before one of them is waited for: it then
works on all of them at once. A call that must not wait takes a tenth longer than one that may, so
where a sample of the requests is cached, all are made once.
"""

import ctypes
from typing import Any

import numpy as np
from numba import types

from semistream.jit import njit
from semistream.relation.moves import move_1, move_4, move_8

_SAMPLED = 32  # requests that tell whether all are in the page cache
_ANNOUNCED = 1024  # requests that a device is given at a time
_WILL_NEED = 3  # POSIX_FADV_WILLNEED
_NO_WAIT = 8  # RWF_NOWAIT
_DONT_NEED = 4  # MADV_DONTNEED
_BLOCK = 512  # values whose places are computed at a time
UNIT_BYTES = 2 << 20  # the most that one page fault maps of a file

# Functions of the C library:
# ssize_t pread(int fd, void *buf, size_t count, off_t offset)
# ssize_t preadv2(int fd, const struct iovec *iov, int iovcnt, off_t offset, int flags)
# int posix_fadvise(int fd, off_t offset, off_t len, int advice)
# int madvise(void *addr, size_t length, int advice)
_pread: Any = types.ExternalFunction(
    "pread", types.intp(types.int32, types.uintp, types.uintp, types.int64)
)
_preadv2: Any = types.ExternalFunction(
    "preadv2", types.intp(types.int32, types.uintp, types.int32, types.int64, types.int32)
)
_fadvise: Any = types.ExternalFunction(
    "posix_fadvise", types.int32(types.int32, types.int64, types.int64, types.int32)
)

_madvise: Any = types.ExternalFunction(
    "madvise", types.int32(types.uintp, types.uintp, types.int32)
)


@njit(inline="always")
def _read(descriptor, to, size, offset):
    return _pread(types.int32(descriptor), types.uintp(to), types.uintp(size), offset)


if hasattr(ctypes.CDLL(None), "preadv2"):

    @njit(inline="always")
    def _read_at_once(descriptor, to, size, offset, vector):
        """Read what is in the page cache, without waiting for a device."""
        vector[0] = to
        vector[1] = size
        where = types.uintp(vector.ctypes.data)
        return _preadv2(
            types.int32(descriptor), where, types.int32(1), offset, types.int32(_NO_WAIT)
        )

else:

    @njit(inline="always")
    def _read_at_once(descriptor, to, size, offset, vector):
        """Read; this system cannot tell what is in its page cache."""
        return _read(descriptor, to, size, offset)


@njit(cache=True)
def plan_requests(pages, first, offsets, ends, unit_bytes, most_gap, room_bytes, starts, requests):
    """Plan the requests for a part of some pages; return up to which page, and how many requests.

    Two pages share a request if at most `most_gap` bytes lie between them. All that is requested
    lies back to back in a buffer of `room_bytes`. Writes to `starts` where the part of each page is
    in the buffer, and to `requests` offset, size and place in the buffer of each.
    """
    count = 0
    used = 0
    at = first
    while at < len(pages):
        page = pages[at]
        offset = offsets[page]
        size = (ends[page + 1] - ends[page]) * unit_bytes
        gap = offset - requests[0, count - 1] - requests[1, count - 1] if count else -1
        if count == 0 or gap < 0 or gap > most_gap:
            if used + size > room_bytes:
                break
            requests[0, count] = offset
            requests[1, count] = size
            requests[2, count] = used
            starts[at - first] = used
            used += size
            count += 1
        else:
            if used + gap + size > room_bytes:
                break
            starts[at - first] = used + gap
            requests[1, count - 1] += gap + size
            used += gap + size
        at += 1
    return at, count


@njit(cache=True, nogil=True)
def read_requests(descriptor, requests, out):
    """Read all requests into a buffer; return the number of the first that failed, or -1.

    A request that the system answers in part only has failed, too: the caller finds out why.
    """
    base = out.ctypes.data
    vector = np.empty(2, np.uint64)
    missing = np.empty(requests.shape[1], np.int32)
    count = 0
    step = requests.shape[1] // _SAMPLED + 1
    for i in range(0, requests.shape[1], step):
        to, size = base + requests[2, i], requests[1, i]
        if _read_at_once(descriptor, to, size, requests[0, i], vector) != size:
            count += 1
    if count == 0:
        for i in range(requests.shape[1]):
            to, size = base + requests[2, i], requests[1, i]
            if _read(descriptor, to, size, requests[0, i]) != size:
                return i
        return -1
    count = 0
    for i in range(requests.shape[1]):
        to, size = base + requests[2, i], requests[1, i]
        if _read_at_once(descriptor, to, size, requests[0, i], vector) != size:
            missing[count] = i
            count += 1
    for first in range(0, count, _ANNOUNCED):
        some = missing[first : min(count, first + _ANNOUNCED)]
        for i in some:
            _announce(descriptor, requests[0, i], requests[1, i])
        for i in some:
            to, size = base + requests[2, i], requests[1, i]
            if _read(descriptor, to, size, requests[0, i]) != size:
                return i
    return -1


@njit(inline="always")
def look_at(data, window, begin, end):
    """Let go of what is mapped if it would be too much with the bytes from `begin` to `end`.

    To be called before a kernel looks at bytes of a file that may be mapped. `window` is: the first
    byte that may be mapped, the end of what was looked at, how many bytes may be mapped, and the
    size of the file in whole pages of the system; all 0 if the file is not mapped.
    """
    if window[2] > 0:
        if lets_go(window, begin, end):
            release(data, window)
            window[0] = begin // UNIT_BYTES * UNIT_BYTES
        window[1] = max(window[1], end)


@njit(inline="always")
def lets_go(window, begin, end):
    """Return whether looking at these bytes lets go of what is mapped."""
    return window[2] > 0 and (begin < window[0] or end - window[0] > window[2])


@njit(cache=True)
def release(data, window):
    """Let go of all that is mapped of a file."""
    end = min(-(-window[1] // UNIT_BYTES) * UNIT_BYTES, window[3])
    if end > window[0]:
        size = types.uintp(end - window[0])
        _madvise(types.uintp(data.ctypes.data + window[0]), size, types.int32(_DONT_NEED))
    window[0] = window[1]
    window[1] = 0


@njit(cache=True)
def count_cached(descriptor, offsets):
    """Return at how many offsets a byte can be read without waiting for a device."""
    byte = np.empty(1, np.uint8)
    vector = np.empty(2, np.uint64)
    count = 0
    for offset in offsets:
        count += _read_at_once(descriptor, byte.ctypes.data, 1, offset, vector) == 1
    return count


@njit(inline="always")
def _announce(descriptor, offset, size):
    # Advice that is refused costs nothing but speed.
    _fadvise(types.int32(descriptor), offset, types.int64(size), types.int32(_WILL_NEED))


@njit(cache=True)
def locate_rows(rows, row_bounds, pages, indexes, in_page):
    """Find the pages of some rows; return how many pages they lie on.

    Writes each page once to `pages`, and of each row which of these it is on and where on it. Rows
    must not go back to an earlier page.
    """
    count = 0
    page = -1
    for i in range(len(rows)):
        row = rows[i]
        if page < 0 or row >= row_bounds[page + 1]:
            # Step further and further ahead, then halve the range.
            low = page + 1
            step = 1
            while low + step < len(row_bounds) - 1 and row_bounds[low + step] <= row:
                low += step
                step *= 2
            high = min(low + step, len(row_bounds) - 1)
            while high - low > 1:
                middle = (low + high) // 2
                if row_bounds[middle] <= row:
                    low = middle
                else:
                    high = middle
            page = low
            pages[count] = page
            count += 1
        indexes[i] = count - 1
        in_page[i] = row - row_bounds[page]
    return count


@njit(cache=True)
def gather_fixed(data, window, starts, first, indexes, in_page, width, out):
    """Copy values of a fixed width out of pages that begin at `starts`, from index `first` on.

    `window` is that of a mapped file (`mapped.py`). The places of some rows are computed before
    their values are copied: then the copies do not wait for each other, and cache misses overlap.
    """
    places = np.empty(_BLOCK, np.int64)
    source, target = data.ctypes.data, out.ctypes.data
    for begin in range(0, len(indexes), _BLOCK):
        # 1. Where each value is.
        count = min(_BLOCK, len(indexes) - begin)
        for i in range(count):
            places[i] = starts[indexes[begin + i] - first] + in_page[begin + i] * width
        # 2. Copy as many as may be looked at together; the usual widths by single moves.
        done = 0
        while done < count:
            look_at(data, window, places[done], places[done] + width)
            end = _end_in_window(places, done, count, width, window)
            to = target + (begin + done) * width
            if width == 8:
                for i in range(done, end):
                    move_8(source + places[i], to + (i - done) * 8)
            elif width == 4:
                for i in range(done, end):
                    move_4(source + places[i], to + (i - done) * 4)
            else:
                for i in range(done, end):
                    for j in range(width):
                        move_1(source + places[i] + j, to + (i - done) * width + j)
            done = end


@njit(inline="always")
def _end_in_window(places, first, last, width, window):
    """Return up to which place all values may be looked at without letting go of others."""
    if window[2] <= 0:
        return last
    low, high, top = window[0], window[0] + window[2] - width, window[1] - width
    end = first
    while end < last and low <= places[end] <= high:
        top = max(top, places[end])
        end += 1
    window[1] = top + width
    return max(end, first + 1)
