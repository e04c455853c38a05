"""A small R with the skew of a large one.

In a smaller domain a given share of the keys has less of a Zipf-distributed stream: the first 10 %
of 100 million keys have 88 % of it at exponent 1, those of 500,000 keys have 84 %. A cache of 10 %
of R would then perform worse than at full size. Here ranks are drawn from the domain at full size,
and `times` neighbours share one row:

```
 rank at full size    1 2 3 4 │ 5 6 7 8 │ 9 10 11 12 │ …       times = 4
 rank in miniature       1    │    2    │     3      │ …
```

So the first n rows have exactly the share of the stream that the first n · `times` rows have.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semistream.errors import OptionError
from semistream.workload.synthetic import Synthetic
from semistream.workload.zipf import zipf_ranks


@dataclass(frozen=True)
class Miniature(Synthetic):
    """The synthetic data with keys drawn from a domain that is `times` larger.

    >>> small = Miniature(relation_rows=1000, times=50)
    >>> int(small.draw_ranks(np.random.default_rng(1), 1000, 0.0).max()) <= 1000
    True
    """

    times: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a domain that would be smaller."""
        super().__post_init__()
        if self.times < 1:
            raise OptionError(f"times must be at least 1; got {self.times}")

    @property
    def full_rows(self) -> int:
        """The number of rows at full size."""
        return round(self.relation_rows * self.times)

    def draw_ranks(
        self, rng: np.random.Generator, count: int, exponent: float
    ) -> NDArray[np.int64]:
        """Draw ranks at full size and map them to the rows here."""
        ranks = zipf_ranks(rng, count, self.full_rows, exponent)
        return (ranks - 1) * self.relation_rows // self.full_rows + 1
