"""A stream whose popular keys change: every `every_rows` rows, `share` of the hot keys is replaced.

The ranks 1 … n are laid out in rows of H, the number of hot keys, so that the first row is the hot
keys and each column holds a hot key and those that may follow it:

```
           column 0   1    2   …  H-1
 hot           1      2    3       H       a change rotates a share of the columns up by one:
               H+1    H+2  H+3     2H      the hot key goes to the end of its column, and the one
               …                           below it is hot in its place
```

So a change replaces `share` of the hot keys, spread evenly over them, and leaves the others at
their ranks; every key always has exactly one rank. After 1/`share` changes each column has been
rotated once. The rank of a key follows from the row number alone.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semistream.errors import OptionError
from semistream.workload.synthetic import Synthetic

_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class Drifting(Synthetic):
    """The synthetic data with popularity that drifts.

    `hot_keys` is the number of hot keys; None means one key in a hundred.

    >>> Drifting(relation_rows=1000, every_rows=500, share=0.2).hot_count
    10
    """

    every_rows: int = 1_000_000
    share: float = 0.1
    hot_keys: int | None = None

    def __post_init__(self) -> None:
        """Refuse settings without a drift."""
        super().__post_init__()
        if self.every_rows < 1 or not 0 < self.share <= 1:
            raise OptionError(
                "a drifting stream needs every_rows of at least 1 and a share above 0, up to 1; "
                f"got {self.every_rows} and {self.share}"
            )
        if self.hot_keys is not None and not 1 <= self.hot_keys <= self.relation_rows:
            raise OptionError(
                f"hot_keys must be between 1 and the relation's {self.relation_rows} rows; "
                f"got {self.hot_keys}"
            )

    @property
    def hot_count(self) -> int:
        """The number of hot keys."""
        return self.hot_keys or max(1, self.relation_rows // 100)

    def keys_of(self, ranks: NDArray[np.int64], first: int) -> NDArray[np.int64]:
        """Return the keys that have these ranks in rows `first` and on."""
        changes = (first + np.arange(len(ranks))) // self.every_rows
        return super().keys_of(self._original_ranks(ranks, changes), first)

    def _original_ranks(
        self, ranks: NDArray[np.int64], changes: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the ranks that these keys had before the first change."""
        row, column = np.divmod(ranks - 1, self.hot_count)
        rotations = np.floor(changes * self.share + (column * _GOLDEN) % 1.0).astype(np.int64)
        height = (self.relation_rows - column - 1) // self.hot_count + 1
        original: NDArray[np.int64] = (row + rotations) % height * self.hot_count + column + 1
        return original
