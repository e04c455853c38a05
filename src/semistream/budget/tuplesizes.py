"""What waiting stream tuples take: with a scan of R (the window), and with an index (the room)."""

from collections.abc import Sequence
from math import ceil

import numpy as np
import pyarrow as pa

from semistream.budget.rowsizes import base_bytes, row_bytes

BLOCK = 1024
CANDIDATE_FIELDS = 5  # of the scratch space of a probe
TABLE_FIELDS = {"code": np.int64, "next": np.int32}
_WINDOW_BYTES = 4 + 1
_ROOM_BYTES = 4 + 1 + 4
BYTES_PER_PAGE = 12 + 4


def bytes_per_tuple(schema: pa.Schema, value_bytes: Sequence[float], implied: int | None) -> int:
    """Return what a waiting tuple takes, its share of the hash table included."""
    return ceil(_WINDOW_BYTES + row_bytes(schema, value_bytes, implied, TABLE_FIELDS))


def window_base_bytes(schema: pa.Schema, widest: Sequence[int]) -> int:
    """Return the fixed overhead of a window."""
    return 8 * CANDIDATE_FIELDS * BLOCK + base_bytes(schema, widest)


def room_bytes_per_tuple(
    schema: pa.Schema, value_bytes: Sequence[float], implied: int | None
) -> int:
    """Return what a waiting tuple takes, a bucket included."""
    return ceil(_ROOM_BYTES + row_bytes(schema, value_bytes, implied, TABLE_FIELDS))
