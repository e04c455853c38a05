"""The condition of a join, for pairs whose keys are equal: what stays of a piece of matches.

Only the stream's columns that the condition looks at are gathered for it; those of R are there
already, because the join reads them (`spec.read_columns`).
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.columns import Encoding, encoding_of
from semistream.conditions.expressions import Columns
from semistream.joins.protocols import StreamSide
from semistream.joins.rows import Slots
from semistream.spec import JoinSpec


class Residual:
    """Says which pairs of a piece the join's condition holds for."""

    def __init__(self, spec: JoinSpec, read_columns: Sequence[str]) -> None:
        """Look up where the condition's columns are; `read_columns` are those of R."""
        assert spec.condition is not None, "only a join with a condition has one"
        self._condition = spec.condition
        self._ours = spec.condition.columns_of("stream")
        self._indexes = [spec.stream_schema.get_field_index(name) for name in self._ours]
        types = [spec.stream_schema.types[i] for i in self._indexes]
        self.copies_texts = any(encoding_of(dtype) is not Encoding.FIXED for dtype in types)
        names = spec.condition.columns_of("relation")
        self._theirs = {name: list(read_columns).index(name) for name in names}

    def gather(self, slots: Slots, tuples: StreamSide) -> dict[int, pa.Array]:
        """Return the stream's columns that the condition looks at, by index."""
        if not self._indexes:
            return {}
        return dict(zip(self._indexes, tuples.gather(slots, self._indexes), strict=True))

    def holds(
        self, columns: Sequence[pa.Array], gathered: Mapping[int, pa.Array], count: int
    ) -> NDArray[np.bool_]:
        """Return for each pair whether the condition is true, given both sides' columns."""
        sides: Columns = {
            **{("stream", n): gathered[i] for n, i in zip(self._ours, self._indexes, strict=True)},
            **{("relation", name): columns[i] for name, i in self._theirs.items()},
        }
        return self._condition.holds(sides, count)
