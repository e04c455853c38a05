"""A self-tuning join whose choices and their moments are given, not found by the model."""

import weakref
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any, TypeAlias

import pyarrow as pa

from semistream.advice.auto import SelfTuningJoin
from semistream.advice.choice import Advisor, Option
from semistream.advice.tuner import Chosen
from semistream.advice.watch import Retune
from semistream.budget.rowsizes import Widths
from semistream.budget.split import Split
from semistream.cost.models import MODELS
from semistream.cost.prediction import Prediction
from semistream.cost.tuning import Tuned
from semistream.errors import BudgetError
from semistream.joins.streamjoin import StreamJoin

Choice: TypeAlias = tuple[str, Split]


class RetunedJoin(SelfTuningJoin):
    """Makes the next choice of a list after every few batches."""

    choices: Iterator[Choice]  # without end
    every: int  # batches between two retunings
    alive: list[bool]  # by join: whether the one before still takes memory when it begins
    _before: weakref.ref[StreamJoin] | None = None  # the join before
    _buffer_bytes = 0  # of the join before
    handed_over: list[int]  # tuples that each join has taken over, of all joins of the class

    @classmethod
    def with_choices(cls, choices: Sequence[Choice], every: int) -> type["RetunedJoin"]:
        """Return the class of joins that make these choices, in turns, as far as they fit."""
        about = {"choices": cycle(choices), "every": every, "handed_over": [], "alive": []}
        return type("RetunedJoin", (cls,), about)

    def _watch(self, source: Any, run: Any) -> Any:
        return None if run.chosen is None else _Watch(self.every)

    def _can_choose(self, running: Any) -> bool:
        return True

    def _choose(self, source: Any, rate: float | None) -> Chosen | None:
        if not self._reader.row_count:
            return None
        if self._widths is None:
            self._widths = Widths.of(self._first_rows(source.peek()))
        about = (self._relation, self._spec, self._widths, self._partition, self._reader)
        errors = []
        for name, split in self.choices:
            try:
                sizes = Advisor(*about).sizes(name)
                settings, rows = MODELS[name].rules.settings(sizes, self._budget_bytes, split)
            except BudgetError as error:
                errors.append(error)
                if len(errors) > 50:
                    raise min(errors, key=lambda error: error.least_bytes or 0) from None
                continue
            tuned = Tuned(split, settings, rows, Prediction(1.0, 1.0, 1.0, 1.0))
            return Chosen(self._budget_bytes, Option(name, tuned), None)
        raise AssertionError("choices have no end")

    def _run_one(self, source: Any, run: Any) -> Iterator[pa.RecordBatch]:
        """Note how many tuples a join takes over, and check that the buffers of both have room."""
        self.alive.append(self._before is not None and self._before() is not None)
        self._before = weakref.ref(run.join)
        taken, size_bytes = self._handed_over, 0
        if taken is not None:
            size_bytes = taken.memory.size_bytes
            assert sum(batch.nbytes for batch in taken.batches) <= size_bytes <= self._buffer_bytes
        self.handed_over.append(0 if taken is None else sum(map(len, taken.batches)))
        yield from super()._run_one(source, run)
        self._buffer_bytes = getattr(run.join, "_buffer_bytes", 0)
        assert size_bytes <= self._buffer_bytes


class _Watch:
    """Returns a retune after every few batches."""

    def __init__(self, every: int) -> None:
        self._left = every + 1  # a look comes before each batch

    def look(self) -> Retune | None:
        self._left -= 1
        return None if self._left else Retune("forced", None)
