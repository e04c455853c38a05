"""The hot loops of tables in a database: keys as ordered bytes, their pages, rows into pages."""

from semistream.jit import njit


@njit(cache=True)
def encoded_sizes(lengths, data, sizes):
    """Add to `sizes` the bytes of each text as `encode_texts` writes it."""
    at = 0
    for i in range(len(lengths)):
        for j in range(at, at + lengths[i]):
            if data[j] == 0:
                sizes[i] += 1
        at += lengths[i]
        sizes[i] += lengths[i] + 2


@njit(cache=True)
def encode_texts(lengths, data, out, ends):
    """Append each text to its row: 0 becomes 0 255, and 0 0 ends it. So bytes order as texts do."""
    at = 0
    for i in range(len(lengths)):
        to = ends[i]
        for j in range(at, at + lengths[i]):
            out[to] = data[j]
            to += 1
            if data[j] == 0:
                out[to] = 255
                to += 1
        out[to] = 0
        out[to + 1] = 0
        ends[i] = to + 2
        at += lengths[i]


@njit(cache=True)
def encode_integers(values, out, ends):
    """Append each integer to its row, most significant byte first, negative ones before others."""
    for i in range(len(values)):
        for byte in range(8):
            value = (values[i] >> (56 - 8 * byte)) & 255
            out[ends[i] + byte] = value ^ 128 if byte == 0 else value
        ends[i] += 8


@njit(inline="always")
def _is_at_most(a, a_from, a_to, b, b_from, b_to):
    """Whether the bytes of `a` come before those of `b`, or are the same."""
    count = min(a_to - a_from, b_to - b_from)
    for i in range(count):
        if a[a_from + i] != b[b_from + i]:
            return a[a_from + i] < b[b_from + i]
    return a_to - a_from <= b_to - b_from


@njit(cache=True)
def count_at_most(bounds, bound_offsets, keys, key_offsets, counts):
    """Write for each key how many of the bounds, which ascend, are not greater."""
    for i in range(len(counts)):
        low = 0
        high = len(bound_offsets) - 1
        while low < high:
            middle = (low + high) // 2
            if _is_at_most(
                bounds,
                bound_offsets[middle],
                bound_offsets[middle + 1],
                keys,
                key_offsets[i],
                key_offsets[i + 1],
            ):
                low = middle + 1
            else:
                high = middle
        counts[i] = low


@njit(cache=True)
def place_texts(lengths, data, row_counts, starts, out):
    """Copy the texts of each page's rows back to back to where the page's texts begin."""
    at = 0
    row = 0
    for page in range(len(row_counts)):
        to = starts[page]
        for _ in range(row_counts[page]):
            for _ in range(lengths[row]):
                out[to] = data[at]
                to += 1
                at += 1
            row += 1
