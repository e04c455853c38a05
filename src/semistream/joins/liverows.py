"""Drops the matches of dead rows: those that an upsert has replaced or deleted.

Dead rows stay on their pages until the relation is compacted. A tuple whose key was changed is led
to the delta pages by the index, or meets both in a scan; so it is here, where pairs are found, that
dead rows are dropped. Nothing is done where R has none.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from semistream.relation.deltas import keep_live

Pairs: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]  # rows of R, and what matches each


def live_pairs(
    pairs: Iterable[Pairs], dead: NDArray[np.uint8], first_row: int = 0
) -> Iterator[Pairs]:
    """Yield pairs without those whose row is dead; rows are counted from `first_row`.

    `dead` is `PageReader.dead`. The arrays are changed in place.
    """
    for rows, others in pairs:
        count = int(keep_live(dead, first_row, rows, others)) if len(dead) else len(rows)
        if count:
            yield rows[:count], others[:count]
