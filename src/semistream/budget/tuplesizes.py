"""The size of waiting stream tuples: in the window of a scan join, and of an index join."""

from collections.abc import Sequence
from math import ceil

import numpy as np
import pyarrow as pa

from semistream.budget.rowsizes import NESTED_COPIES, base_bytes, row_bytes
from semistream.columns import Encoding, encoding_of, width_bytes

BLOCK = 1024  # tuples that a kernel works on at once
CANDIDATE_FIELDS = 5  # of the scratch space of a probe
TABLE_FIELDS = {"code": np.int64, "next": np.int32}
_SCAN_BYTES = 4 + 1  # head of a bucket, match flag
_LISTED_BYTES = 1  # a share of the buckets of listed codes, where they are kept apart
_INDEX_BYTES = 4 + 1 + 4  # bucket, match flag, free list
# Match flag, copy of the code, page; then of a request slot, page, order, scratch, index, a page in
# the list of those requested, its start, and its code.
_LOOK_UP_BYTES = 1 + 8 + 8 + 4 * 5 + 4 + 3 * 8 + 8 * 3
BYTES_PER_PAGE = 12 + 4  # links of Q and count of tuples; a bucket
BYTES_PER_LOAD = 4  # since when tuples wait for it, where the most urgent load is read


def scan_tuple_bytes(
    schema: pa.Schema, value_bytes: Sequence[float], implied: int | None, listed_apart: bool
) -> int:
    """Return the size of a waiting tuple with its share of the hash table, for a scan join."""
    table_bytes = _SCAN_BYTES + (_LISTED_BYTES if listed_apart else 0)
    return ceil(table_bytes + row_bytes(schema, value_bytes, implied, TABLE_FIELDS))


def window_base_bytes(schema: pa.Schema, widest: Sequence[int]) -> int:
    """Return the fixed overhead of a window."""
    return 8 * CANDIDATE_FIELDS * BLOCK + base_bytes(schema, widest)


def index_tuple_bytes(schema: pa.Schema, value_bytes: Sequence[float], implied: int | None) -> int:
    """Return the size of a waiting tuple with its bucket, for an index join."""
    return ceil(_INDEX_BYTES + row_bytes(schema, value_bytes, implied, TABLE_FIELDS))


def look_up_tuple_bytes(
    schema: pa.Schema, value_bytes: Sequence[float], implied: int | None
) -> int:
    """Return the size of a waiting tuple with its request, for look-ups."""
    return ceil(_LOOK_UP_BYTES + row_bytes(schema, value_bytes, implied, TABLE_FIELDS))


def copied_bytes(schema: pa.Schema, value_bytes: Sequence[float], tuples: int) -> int:
    """Return the size of copies of waiting tuples, with their slots, a block after the other."""
    size = 4 + len(schema) / 8
    for field, value in zip(schema, value_bytes, strict=True):
        encoding = encoding_of(field.type)
        copies = NESTED_COPIES if encoding is Encoding.NESTED else 1
        size += width_bytes(field.type) if encoding is Encoding.FIXED else 8 + copies * value
    block = min(tuples, BLOCK) * (8 + len(schema))  # codes and validity, while it is copied
    return ceil(tuples * size) + block
