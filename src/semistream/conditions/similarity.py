"""How alike two texts are: by the three-character pieces they share, or by edit distance.

Both work on characters, not on bytes. A pair that cannot reach the least likeness because of the
texts' lengths alone is given likeness 0 without a closer look.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.columns import split_bytes
from semistream.jit import njit

PIECE = 3  # characters


def similarities(ours: pa.Array, theirs: pa.Array, by: str, least: float) -> NDArray[np.float64]:
    """Return the likeness of each pair of texts; 0 where it is below `least`, or with a null.

    >>> pairs = pa.array(["night", "same", None]), pa.array(["nacht", "same", None])
    >>> similarities(*pairs, "edit", 0.5).tolist()
    [0.6, 1.0, 0.0]
    """
    out = np.zeros(len(ours), np.float64)
    kernel = _jaccard if by == "jaccard" else _edit
    kernel(*_decoded(ours), *_decoded(theirs), least, out)
    for side in (ours, theirs):
        if side.null_count:
            out[np.asarray(side.is_null())] = 0.0
    return out


def extents(texts: pa.Array, by: str) -> NDArray[np.float64]:
    """Return of each text what two that are alike have about as much of; NaN for null.

    Two texts of likeness l have extents e and f with e ≥ l·f and f ≥ l·e: numbers of different
    pieces, or of characters.
    """
    characters, ends = _decoded(texts)
    out = np.diff(ends).astype(np.float64)
    if by == "jaccard":
        _count_pieces(characters, ends, out)
    if texts.null_count:
        out[np.asarray(texts.is_null())] = np.nan
    return out


def _decoded(texts: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the characters of all texts, and where each text begins and ends."""
    lengths, data, _ = split_bytes(texts)
    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    characters = np.empty(len(data), np.int32)
    _decode(data, ends, characters)
    return characters, ends


@njit(cache=True)
def _decode(data, ends, characters):  # type: ignore[no-untyped-def]
    """Decode UTF-8 in place of `ends`: these become the bounds of texts in characters."""
    out = 0
    for i in range(len(ends) - 1):
        at, stop = ends[i], ends[i + 1]
        ends[i] = out
        while at < stop:
            byte = np.int32(data[at])
            if byte < 0x80:
                value, more = byte, 0
            elif byte < 0xE0:
                value, more = byte & 0x1F, 1
            elif byte < 0xF0:
                value, more = byte & 0x0F, 2
            else:
                value, more = byte & 0x07, 3
            for j in range(1, more + 1):
                value = (value << 6) | (np.int32(data[at + j]) & 0x3F)
            characters[out] = value
            out += 1
            at += more + 1
    ends[len(ends) - 1] = out


@njit(cache=True)
def _pieces(characters, first, last, out):  # type: ignore[no-untyped-def]
    """Write the different pieces of a text to `out`, ascending; return how many there are.

    A character has 21 bits, so a piece of three is a number. A shorter text is one piece.
    """
    count = max(1, last - first - PIECE + 1)
    for i in range(count):
        piece = np.int64(0)
        for j in range(first + i, min(first + i + PIECE, last)):
            piece = (piece << 21) | (np.int64(characters[j]) + 1)
        out[i] = piece
    pieces = np.sort(out[:count])
    different = 0
    for i in range(count):
        if i == 0 or pieces[i] != pieces[i - 1]:
            out[different] = pieces[i]
            different += 1
    return different


@njit(cache=True)
def _count_pieces(characters, ends, out):  # type: ignore[no-untyped-def]
    """Count the different pieces of each text."""
    most = 1
    for i in range(len(ends) - 1):
        most = max(most, ends[i + 1] - ends[i])
    pieces = np.empty(most, np.int64)
    for i in range(len(out)):
        out[i] = _pieces(characters, ends[i], ends[i + 1], pieces)


@njit(cache=True)
def _jaccard(a, a_ends, b, b_ends, least, out):  # type: ignore[no-untyped-def]
    """Compute the share of pieces in common."""
    most = 1
    for i in range(len(a_ends) - 1):
        most = max(most, a_ends[i + 1] - a_ends[i], b_ends[i + 1] - b_ends[i])
    ours, theirs = np.empty(most, np.int64), np.empty(most, np.int64)
    for i in range(len(out)):
        n = _pieces(a, a_ends[i], a_ends[i + 1], ours)
        m = _pieces(b, b_ends[i], b_ends[i + 1], theirs)
        if min(n, m) < least * max(n, m):
            continue
        x, y, common = 0, 0, 0
        while x < n and y < m:
            if ours[x] == theirs[y]:
                common += 1
                x += 1
                y += 1
            elif ours[x] < theirs[y]:
                x += 1
            else:
                y += 1
        likeness = common / (n + m - common)
        out[i] = likeness if likeness >= least else 0.0


@njit(cache=True)
def _edit(a, a_ends, b, b_ends, least, out):  # type: ignore[no-untyped-def]
    """Compute 1 minus Levenshtein's distance, relative to the longer text."""
    most = 1
    for i in range(len(b_ends) - 1):
        most = max(most, b_ends[i + 1] - b_ends[i] + 1)
    row = np.empty(most, np.int64)
    for i in range(len(out)):
        n, m = a_ends[i + 1] - a_ends[i], b_ends[i + 1] - b_ends[i]
        longest = max(n, m)
        if longest == 0:
            out[i] = 1.0
            continue
        if 1.0 - abs(n - m) / longest < least:
            continue
        for y in range(m + 1):
            row[y] = y
        for x in range(1, n + 1):
            diagonal, row[0] = row[0], x
            for y in range(1, m + 1):
                changed = diagonal + (a[a_ends[i] + x - 1] != b[b_ends[i] + y - 1])
                diagonal = row[y]
                row[y] = min(changed, row[y] + 1, row[y - 1] + 1)
        likeness = 1.0 - row[m] / longest
        out[i] = likeness if likeness >= least else 0.0
