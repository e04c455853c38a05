"""The hot loops that copy rows out of parts of pages, wherever these lie in memory.

`data` holds the part of some pages, each from its place in `starts` on. A row is given by the index
of its page among these, counted from `first`, and its place on the page.
"""

import numpy as np

from semistream.jit import njit


@njit(cache=True)
def gather_validity(data, starts, sizes, first, indexes, in_page, out):
    """Copy validity bytes; a page without nulls has none, and its rows are left as they are."""
    for i in range(len(indexes)):
        page = indexes[i] - first
        if sizes[page]:
            out[i] = data[starts[page] + in_page[i]]


@njit(inline="always")
def _length(data, at):
    value = np.int64(0)
    for i in range(4):
        value |= np.int64(data[at + i]) << (8 * i)
    return value


@njit(cache=True)
def find_extents(data, starts, first, indexes, in_page, out_starts, out_lengths):
    """Find where on their page the texts of some rows begin, by the lengths of those before them.

    Rows of a page mostly come in their order there, so the sum goes on from the row before.
    """
    page = -1
    row = 0
    begin = np.int64(0)
    for i in range(len(indexes)):
        at = starts[indexes[i] - first]
        if indexes[i] != page or in_page[i] < row:
            page, row, begin = indexes[i], 0, np.int64(0)
        while row < in_page[i]:
            begin += _length(data, at + 4 * row)
            row += 1
        out_starts[i] = begin
        out_lengths[i] = _length(data, at + 4 * row)


@njit(cache=True)
def gather_texts(data, starts, first, indexes, begins, lengths, out, to):
    """Copy texts back to back from `to` on; return where the next one goes."""
    for i in range(len(indexes)):
        at = starts[indexes[i] - first] + begins[i]
        for j in range(lengths[i]):
            out[to + j] = data[at + j]
        to += lengths[i]
    return to
