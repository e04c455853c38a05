"""The hot loops of the read plan: which parts of pages to read together, and reading them."""

from numba import types

from semistream.jit import njit

# ssize_t pread(int fd, void *buf, size_t count, off_t offset), of the C library.
_pread = types.ExternalFunction(
    "pread", types.intp(types.int32, types.uintp, types.uintp, types.int64)
)


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
    for i in range(requests.shape[1]):
        size = requests[1, i]
        got = _pread(
            types.int32(descriptor),
            types.uintp(base + requests[2, i]),
            types.uintp(size),
            requests[0, i],
        )
        if got != size:
            return i
    return -1


@njit(cache=True, nogil=True)
def read_values(descriptor, offsets, first, indexes, in_page, width, out):
    """Read single values of a fixed width; return the first that failed, or -1.

    `offsets` are those of the pages in the file, from index `first` on.
    """
    base = out.ctypes.data
    for i in range(len(indexes)):
        got = _pread(
            types.int32(descriptor),
            types.uintp(base + i * width),
            types.uintp(width),
            offsets[indexes[i] - first] + in_page[i] * width,
        )
        if got != width:
            return i
    return -1


@njit(cache=True)
def pages_of_rows(rows, row_bounds, pages, indexes, in_page):
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


@njit(inline="always")
def _copy(data, at, out, to, width):
    for j in range(width):
        out[to + j] = data[at + j]


@njit(cache=True)
def gather_fixed(data, starts, first, indexes, in_page, width, out):
    """Copy values of a fixed width out of pages that begin at `starts`, from index `first` on.

    The usual widths have a loop each, which is compiled to single moves.
    """
    if width == 8:
        for i in range(len(indexes)):
            _copy(data, starts[indexes[i] - first] + in_page[i] * 8, out, i * 8, 8)
    elif width == 4:
        for i in range(len(indexes)):
            _copy(data, starts[indexes[i] - first] + in_page[i] * 4, out, i * 4, 4)
    elif width == 1:
        for i in range(len(indexes)):
            out[i] = data[starts[indexes[i] - first] + in_page[i]]
    else:
        for i in range(len(indexes)):
            _copy(data, starts[indexes[i] - first] + in_page[i] * width, out, i * width, width)
