"""The output buffer: how much one output batch may hold, in rows and in bytes.

A probe finds pairs of a row of R and a stream tuple, at most `rows` at a time. How many bytes they
take is known only when the widths of both sides are: a single row of R may be a thousand times
wider than the others, and half of the stream may request it. So before anything is copied the pairs
are cut into pieces that fit. No piece is larger than `size_bytes`, and no column of it can exceed
the 2 GiB that Arrow's 32-bit offsets reach.

Degenerate cases: where all columns have a fixed width, nothing is ever cut; a row that is wider
than the whole buffer is a `BudgetError`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semistream.budget.split import MOST_OUTPUT_ROWS
from semistream.columns import MOST_DATA_BYTES
from semistream.errors import BudgetError
from semistream.units import format_bytes


@dataclass(frozen=True, slots=True)
class OutputBuffer:
    """The limits of an output batch."""

    rows: int = MOST_OUTPUT_ROWS
    size_bytes: int = MOST_DATA_BYTES
    row_bytes: int = 0  # of each row, without its variable-width values

    def holds(self, count: int, *sizes: NDArray[np.int64] | None) -> bool:
        """Return whether all rows fit at once."""
        varying = sum(int(part.sum()) for part in sizes if part is not None)
        limit = min(self.size_bytes, MOST_DATA_BYTES)
        return count <= self.rows and (not varying or varying + count * self.row_bytes <= limit)

    def pieces(self, count: int, *sizes: NDArray[np.int64] | None) -> Iterator[slice]:
        """Cut `count` rows into pieces that fit, given the sizes of their variable-width values.

        >>> buffer = OutputBuffer(rows=3, size_bytes=100, row_bytes=10)
        >>> [(p.start, p.stop) for p in buffer.pieces(5, np.array([10, 60, 50, 5, 5]))]
        [(0, 2), (2, 5)]
        """
        varying = [part for part in sizes if part is not None]
        if not varying:
            for first in range(0, count, self.rows):
                yield slice(first, min(count, first + self.rows))
            return
        ends = np.cumsum(sum(varying[1:], varying[0]) + self.row_bytes)
        limit = min(self.size_bytes, MOST_DATA_BYTES)
        first = before = 0
        while first < count:
            last = int(np.searchsorted(ends, before + limit, "right"))
            if last == first:
                raise too_wide(int(ends[first]) - before, limit)
            last = min(last, first + self.rows)
            yield slice(first, last)
            first, before = last, int(ends[last - 1])


def too_wide(row_bytes: int, limit_bytes: int) -> BudgetError:
    """Return the error for a row that does not fit the output buffer."""
    return BudgetError(
        f"a joined row takes {format_bytes(row_bytes)}, but the output buffer of this budget has "
        f"{format_bytes(limit_bytes)}, about an eighth of it. Raise memory, or leave the widest "
        "columns out of the join and add them later"
    )
