"""Which values of a column are null, by slot."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class NullTracker:
    """One validity byte per slot, looked at only once a null has been seen."""

    def __init__(self, field: pa.Field, capacity: int) -> None:
        """Begin without a null."""
        self._validity = np.ones(capacity if field.nullable else 0, np.uint8)  # by slot
        self._seen = False  # whether any value was null so far

    def put(
        self, slots: NDArray[np.integer[Any]] | slice, validity: NDArray[np.uint8] | None
    ) -> None:
        """Note which of the values at these slots are null; None if none is."""
        if validity is not None:
            self._seen = True
        if self._seen:
            self._validity[slots] = 1 if validity is None else validity

    def gather(self, slots: NDArray[np.integer[Any]]) -> NDArray[np.uint8] | None:
        """Return the validity of the values at these slots; None if no null has been seen."""
        return self._validity[slots] if self._seen else None

    def saved(self) -> list[NDArray[Any]]:
        """Return all of it as an array, without a copy."""
        return [self._validity if self._seen else self._validity[:0]]

    def restore(self, arrays: Iterator[NDArray[Any]]) -> None:
        """Take what `saved` returned, and copy it."""
        validity = next(arrays)
        self._seen = len(validity) > 0
        self._validity[: len(validity)] = validity
