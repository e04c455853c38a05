"""Key codes of a table in a database: the number of the page, then a hash.

A relation's own pages are ordered by a hash of the key. A database orders its rows by the key, so
here the order comes first::

    code = page << 40 | 40 bits of the key's hash           page = how many bounds are not greater

The pages' bounds are keys, taken when the table is opened. So pages ascend in code, as joins need
it, and all rows of a key are on one page. Within a page rows are sorted by code after they were
read. A code is never exact: joins compare the real keys, also of integers. The greatest hash is of
no key; it fills the places of a page that has fewer rows than it may have.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.arrowtypes import is_text
from semistream.columns import split_bytes
from semistream.databases import kernels
from semistream.errors import KeyTypeError
from semistream.keys import KeyCoder

HASH_BITS = 40
NO_HASH = (1 << HASH_BITS) - 1
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PageCoder(KeyCoder):
    """Turns keys into codes that begin with the number of the key's page."""

    bounds: pa.Table  # the first key of each page but the first, in canonical types

    @property
    def is_exact(self) -> bool:
        """Whether equal codes mean equal keys: never here."""
        return False

    def codes(self, columns: Sequence[pa.Array]) -> tuple[Ints, NDArray[np.bool_]]:
        """Return a code for each row, and whether the row has a key that R can have."""
        # Named, because a dataclass with slots has no zero-argument super().
        hashes, has_key = KeyCoder.codes(self, columns)
        low = (hashes.view(np.uint64) >> np.uint64(64 - HASH_BITS)).view(np.int64)
        np.minimum(low, NO_HASH - 1, out=low)
        pages = self.pages(self.canonical(columns))
        return (pages << HASH_BITS) | low, has_key

    def pages(self, canonical: Sequence[pa.Array]) -> Ints:
        """Return the page of each key; of a null, any page."""
        bounds = [column.combine_chunks() for column in self.bounds.columns]
        if len(self.types) == 1 and not is_text(self.types[0]):
            found = np.searchsorted(_integers(bounds[0]), _integers(canonical[0]), "right")
            return found.astype(np.int64, copy=False)
        counts = np.zeros(len(canonical[0]), np.int64)
        kernels.count_at_most(*ordered_bytes(bounds), *ordered_bytes(canonical), counts)
        return counts


def check_key_types(schema: pa.Schema, key: Sequence[str]) -> None:
    """Raise unless the order of the key's columns in a database is known."""
    for name in key:
        dtype = schema.field(name).type
        if not (
            is_text(dtype)
            or pa.types.is_integer(dtype)
            or pa.types.is_date32(dtype)
            or pa.types.is_timestamp(dtype)
        ):
            raise KeyTypeError(
                f"key column {name!r} has type {dtype}; a table in a database can be read in place "
                "by integers, texts, dates and timestamps. Make a copy with build_relation instead"
            )


def ordered_bytes(columns: Sequence[pa.Array]) -> tuple[NDArray[np.uint8], Ints]:
    """Return each row as bytes that sort as the row does, back to back, and where each begins."""
    sizes = np.zeros(len(columns[0]), np.int64)
    texts = {i: split_bytes(c)[:2] for i, c in enumerate(columns) if is_text(c.type)}
    for lengths, data in texts.values():
        kernels.encoded_sizes(lengths, data, sizes)
    sizes += 8 * (len(columns) - len(texts))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    out = np.empty(int(offsets[-1]), np.uint8)
    ends = offsets[:-1].copy()
    for i, column in enumerate(columns):
        if i in texts:
            kernels.encode_texts(*texts[i], out, ends)
        else:
            kernels.encode_integers(_integers(column), out, ends)
    return out, offsets


def _integers(column: pa.Array) -> Ints:
    """Return integers, days or microseconds."""
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    return np.asarray(column.cast(pa.int64()).fill_null(0).to_numpy(), np.int64)
