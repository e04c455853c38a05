"""A join whose rows leave in the order of the stream: look-ups, or any join with a place to wait.

Look-ups resolve a whole window at once, and let its tuples leave as they came
(`semistream.joins.orderedlookup`). So ``auto`` takes these, or all of R in memory if it fits and
the stream is long.

Behind any other join rows wait (`semistream.joins.ordering`): the budget is divided by what a tuple
takes while it waits in the window, and what its joined row takes while it waits for its turn.
Behind a front stage most tuples are hits, whose rows have to wait for the few that are not.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from semistream.advice.choice import LOOK_UP, RESIDENT
from semistream.budget.split import USUAL, Split
from semistream.columns import Encoding, encoding_of, width_bytes
from semistream.errors import BudgetError, OptionError, did_you_mean
from semistream.joins.ordering import ORDER_COLUMN, WaitingRows, waiting_row_bytes
from semistream.joins.protocols import Operator
from semistream.joins.stopwatch import Stopwatch
from semistream.joins.telemetry import Telemetry
from semistream.memory import MemoryLedger
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec

ORDERS = ("stream", "key")
# Of a join's budget the window has about this share. What its rows take must fit, and as much again
# if other tuples are resolved meanwhile.
_WINDOW_SHARE = 0.6
_ROOM = {RESIDENT: 0.1}
_USUAL_ROOM = 2.6
_MOST_SHARE = 0.85  # of the budget, for rows that wait
_NUMBER_BYTES = 8
_SLOT_BYTES = 17  # of a tuple in the window, without its row
_TEXT_BYTES = 32  # of values whose width is not known yet
_LEAST_BYTES = 256 << 10
_VARIABLE_COPIES = 2.5  # of values whose width varies: two, and a quarter of them for wider ones
# Rows of the stream after which it is looked whether there is room: at most this many, or this part
# of those whose joined rows, by their average size, have room together.
_SLICE_ROWS, _SLICE_SHARE = 65_536, 1 / 8

# Makes the named join of a spec within a budget that is split like this.
MakeJoin = Callable[[str, JoinSpec, int, Split], Operator]


def check_order(ordered: str | None, algorithm: str) -> None:
    """Raise unless the order exists, and the algorithm can keep it."""
    if ordered is not None and ordered not in ORDERS:
        raise OptionError(
            f"ordered must be one of {', '.join(ORDERS)}; got {ordered!r}."
            f"{did_you_mean(str(ordered), ORDERS)}"
        )
    if ordered is not None and algorithm == "offline":
        raise OptionError(
            "offline reads the whole stream before it joins, so its output cannot be ordered; name "
            "another algorithm"
        )


def make_ordered(
    names: Sequence[str], relation: Relation, spec: JoinSpec, budget_bytes: int, make: MakeJoin
) -> Operator:
    """Return the first of the named joins that the budget is enough for, with ordered output."""
    for name in names[:-1]:
        try:
            return _make_ordered(name, relation, spec, budget_bytes, make)
        except BudgetError:
            continue
    return _make_ordered(names[-1], relation, spec, budget_bytes, make)


def _make_ordered(
    name: str, relation: Relation, spec: JoinSpec, budget_bytes: int, make: MakeJoin
) -> Operator:
    if name == LOOK_UP:
        return make(name, replace(spec, in_order=True), budget_bytes, USUAL)
    return OrderedJoin(name, relation, spec, budget_bytes, make)


class OrderedJoin:
    """Runs a join, and lets its rows wait until it is their turn."""

    def __init__(
        self, name: str, relation: Relation, spec: JoinSpec, budget_bytes: int, make: MakeJoin
    ) -> None:
        """Make the named join with its part of the budget."""
        self._spec = _numbered_spec(spec)
        self._waiting_bytes = waiting_bytes(name, relation, spec, budget_bytes)
        self._budget_bytes = budget_bytes
        self._rows = WaitingRows(self._waiting_bytes, spec.output_schema, len(spec.stream_schema))
        self._issued = 0  # stream rows that the join was given
        # Rows of the stream after which it is looked whether there is room.
        fitting = self._waiting_bytes / _joined_bytes(relation, spec)
        self._slice_rows = max(1, min(_SLICE_ROWS, int(_SLICE_SHARE * fitting)))
        self._spec = replace(self._spec, resolved=self._rows.resolved)
        try:
            join_bytes = max(1, budget_bytes - self._waiting_bytes)
            # HYBRIDJOIN reads for the oldest tuple, which all others wait for.
            self._join = make(name, self._spec, join_bytes, Split(oldest_picks=True))
        except BudgetError as error:
            raise self._explained(error) from None

    @property
    def ledger(self) -> MemoryLedger:
        """What the join and the waiting rows have reserved."""
        ledger = MemoryLedger(self._budget_bytes)
        ledger.peak_bytes = self._join.ledger.peak_bytes + self._waiting_bytes
        return ledger

    @property
    def telemetry(self) -> Telemetry:
        """What the join has counted; the peak of memory is with the rows that waited."""
        counted = self._join.telemetry
        peak_bytes = counted.memory_bytes_peak + self._waiting_bytes
        return replace(counted, memory_bytes_peak=peak_bytes)

    @property
    def stopwatch(self) -> Stopwatch:
        """Where the join's time went."""
        return self._join.stopwatch

    def join(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join the stream; rows leave in its order."""
        try:
            for batch in self._join.join(self._numbered(batches)):
                yield from self._rows.release(is_end=False)  # rows resolved since the last batch
                self._rows.add(batch)
                yield from self._rows.release(is_end=False)
        except BudgetError as error:
            raise self._explained(error) from None
        assert self._rows.resolved.upto == self._issued, "every row is resolved at the end"
        yield from self._rows.release(is_end=True)

    def _numbered(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the stream with its numbers; an empty batch where there is no room for more."""
        for batch in batches:
            for first in range(0, max(1, batch.num_rows), self._slice_rows):
                some = batch[first : first + self._slice_rows]
                while self._rows.is_short_of_room and self._rows.resolved.upto < self._issued:
                    yield self._with_numbers(batch[:0])
                yield self._with_numbers(some)

    def _with_numbers(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = np.arange(self._issued, self._issued + batch.num_rows)
        self._issued += batch.num_rows
        return batch.append_column(ORDER_COLUMN, pa.array(numbers))

    def _explained(self, error: BudgetError) -> BudgetError:
        """Return the error of the join with the least budget of the whole."""
        if error.least_bytes is None:
            return error
        share = self._waiting_bytes / max(1, self._budget_bytes)
        least = error.least_bytes + _LEAST_BYTES
        if share < 1:
            least = max(least, -int(-error.least_bytes // (1 - share)))
        return BudgetError(f"with ordered output, {error.problem}", least, error.otherwise)


def _numbered_spec(spec: JoinSpec) -> JoinSpec:
    """Return the spec of the join, whose stream has one more column."""
    added = list(spec.output_schema)[len(spec.stream_schema) :]
    stream = spec.stream_schema.append(pa.field(ORDER_COLUMN, pa.int64()))
    return replace(spec, stream_schema=stream, output_schema=pa.schema([*stream, *added]))


def _waiting_share(name: str, relation: Relation, spec: JoinSpec) -> float:
    """Return the share of the budget for rows that wait for their turn."""
    stream_bytes = sum(_value_bytes(field) for field in spec.stream_schema)
    tuple_bytes = _NUMBER_BYTES + _SLOT_BYTES + stream_bytes
    joined_bytes = _joined_bytes(relation, spec)
    ratio = _ROOM.get(name, _USUAL_ROOM) * _WINDOW_SHARE * joined_bytes / tuple_bytes
    return min(_MOST_SHARE, ratio / (1 + ratio))


def waiting_bytes(name: str, relation: Relation, spec: JoinSpec, budget_bytes: int) -> int:
    """Return the part of a budget for rows that wait for their turn."""
    return max(_LEAST_BYTES, int(budget_bytes * _waiting_share(name, relation, spec)))


def _joined_bytes(relation: Relation, spec: JoinSpec) -> float:
    """Return the size of a tuple's joined rows, as far as it is known before the stream begins."""
    stream, added = (
        [field for field in fields if encoding_of(field.type) is not Encoding.FIXED]
        for fields in (spec.stream_schema, [relation.schema.field(name) for name in spec.columns])
    )
    added_bytes = _TEXT_BYTES * len(added)
    if added:
        added_bytes = max(added_bytes, relation.size_bytes // max(1, relation.row_count))
    variable_bytes = _TEXT_BYTES * len(stream) + added_bytes
    row_bytes = waiting_row_bytes(spec.output_schema) + _VARIABLE_COPIES * variable_bytes
    return row_bytes * _rows_per_key(relation)


def _rows_per_key(relation: Relation) -> float:
    keys = sum(partition.distinct_codes for partition in relation.manifest.partitions)
    return max(1.0, relation.row_count / max(1, keys))


def _value_bytes(field: pa.Field) -> int:
    is_fixed = encoding_of(field.type) is Encoding.FIXED
    return width_bytes(field.type) if is_fixed else _TEXT_BYTES
