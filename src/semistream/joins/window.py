"""What the two windows share: stream tuples that wait, with their rows, by slot.

`scanwindow.py` hands slots out in the order of arrival, `indexwindow.py` as they become free. Here
is what does not depend on that: the records of the slots, and the rows in them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.rowsizes import Widths, record_dtype
from semistream.budget.tuplesizes import TABLE_FIELDS
from semistream.joins.rows import RowStore, Slots


class Window(ABC):
    """At most `capacity` waiting stream tuples, with their rows."""

    def __init__(
        self, schema: pa.Schema, capacity: int, widths: Widths, implied: int | None
    ) -> None:
        """Allocate the records and the stores of the columns."""
        records = np.zeros(capacity, record_dtype(schema, implied, TABLE_FIELDS))
        self.capacity = capacity  # tuples that can wait
        self.matched = np.zeros(capacity, np.uint8)  # by slot: what is known of its matches
        self._codes = records["code"]  # by slot
        self._following = records["next"]  # by slot: the next older one of its chain
        self._rows = RowStore(schema, records, widths, implied, self._codes)

    @property
    @abstractmethod
    def count(self) -> int:
        """How many tuples wait."""

    def room(self, batch: pa.RecordBatch) -> int:
        """Return how many of the batch's first rows can enter now."""
        free = self.capacity - self.count
        return min(free, self._rows.room(batch[:free].columns)) if free else 0

    def sizes(self, slots: Slots) -> NDArray[np.int64] | None:
        """Return the size in bytes of each row's variable-width values; None without any."""
        return self._rows.sizes(slots)

    def gather(self, slots: Slots, columns: Sequence[int] | None = None) -> list[pa.Array]:
        """Return columns of the rows at these slots."""
        return self._rows.gather(slots, columns)

    def average_bytes(self) -> list[float]:
        """Return the average size of what waits, by column, where values differ in size."""
        return self._rows.average_bytes(max(1, self.count))

    def codes_at(self, slots: Slots) -> NDArray[np.int64]:
        """Return the key codes at these slots."""
        return self._codes[slots]
