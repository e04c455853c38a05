"""What a micro-batch takes: the predicted time of each algorithm, and what `auto` chooses for it.

A micro-batch is a stream that ends (`cost.models.Model.predict`). Its rows are divided between the
tasks, which run side by side: its time is that of one task, and all tasks read.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import ceil

from semistream.advice.choice import LOOK_UP, RESIDENT, Advisor, Option, are_few
from semistream.budget.sizes import Sizes
from semistream.cost import resident
from semistream.cost.conditions import Conditions
from semistream.cost.demand import Demand
from semistream.cost.models import MODELS
from semistream.cost.tuning import survey
from semistream.errors import BudgetError
from semistream.joins.registry import ALGORITHMS

_ROWS = tuple(int(10 ** (3 + i / 2)) for i in range(9))  # of micro-batches in a chart: 1k to 10M
_SIZES = (0.01, 0.0316, 0.1, 0.316, 1.0, 3.16, 10.0, 31.6, 100.0)  # of R in a chart, times its own
_MOST_PAGES = 200_000  # of a larger R in a chart: the model takes long beyond


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One algorithm and one micro-batch."""

    algorithm: str
    time_ms: float
    pages: float  # whose key codes are read, by all tasks
    bytes_read: float  # by all tasks


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The predictions for a micro-batch."""

    rows: int
    algorithm: str  # that `auto` chooses
    time_ms: float  # of that one
    ranking: tuple[BatchRow, ...]  # fastest first


@dataclass(frozen=True, slots=True)
class Curves:
    """Seconds of a micro-batch, by algorithm: for other micro-batches, and for other sizes of R."""

    by_rows: dict[str, dict[int, float]]  # of the micro-batch
    by_size: dict[str, dict[int, float]]  # in rows of R


class BatchModel:
    """Asks the model about micro-batches of a join in one budget."""

    def __init__(
        self, advisor: Advisor, conditions: Conditions, budget_bytes: int, tasks: int
    ) -> None:
        """Prepare for tasks that have this budget each, and these conditions."""
        self._advisor, self._conditions = advisor, conditions
        self._budget_bytes, self._tasks = budget_bytes, tasks

    def explain(self, rows: int) -> MicroBatch:
        """Return the predictions for a micro-batch of `rows` rows."""
        conditions, advisor = self._with_rows(rows), self._advisor
        fits = advisor.fits(self._budget_bytes)
        found = [self._row(option) for option in self._ranked(conditions, list(MODELS))]
        found += [self._resident_row(conditions)] if fits else []
        ranking = tuple(sorted(found, key=lambda row: row.time_ms))
        chosen = self._chosen(conditions, fits, {row.algorithm for row in ranking})
        time_ms = next(row.time_ms for row in ranking if row.algorithm == chosen)
        return MicroBatch(rows, chosen, time_ms, ranking)

    def curves(self, batch: MicroBatch) -> Curves:
        """Return the times of the fastest of each family, by rows and by the size of R."""
        names = _worth_showing(batch)
        layout, demand = self._conditions.layout, self._conditions.demand
        sizes = [size for size in _SIZES if size <= 1 or size * layout.page_count <= _MOST_PAGES]
        by_size: dict[str, dict[int, float]] = {name: {} for name in names}
        for times in sizes:
            rows = max(1, int(times * layout.row_count))
            pages = max(1, int(times * layout.page_count))
            other = replace(
                self._with_rows(batch.rows).with_demand(Demand.zipf(demand.exponent, rows)),
                layout=replace(layout, page_count=pages, row_count=rows),
            )

            def sizes_of(name: str, pages: int = pages) -> Sizes:
                return _resized(self._advisor.sizes(name), pages)

            for name, seconds in self._times(names, other, sizes_of):
                by_size[name][rows * self._tasks] = seconds
        by_rows: dict[str, dict[int, float]] = {name: {} for name in names}
        for rows in sorted({*_ROWS, batch.rows}):
            about = (names, self._with_rows(rows), self._advisor.sizes)
            for name, seconds in self._times(*about):
                by_rows[name][rows] = seconds
        return Curves(by_rows, by_size)

    def _chosen(self, conditions: Conditions, fits: bool, able: set[str]) -> str:
        """Return what `auto` chooses of what is able to run; `fits`: all of R fits the budget."""
        rows = conditions.stream_rows
        is_short = rows is not None and are_few(rows, conditions.layout.page_count)
        if is_short and LOOK_UP in able:
            return LOOK_UP
        if fits:
            return RESIDENT
        return self._advisor.choose(self._budget_bytes, conditions).name

    def _with_rows(self, rows: int) -> Conditions:
        return replace(self._conditions, stream_rows=ceil(rows / self._tasks))

    def _ranked(self, conditions: Conditions, names: list[str]) -> list[Option]:
        try:
            return self._advisor.rank(self._budget_bytes, conditions, names)
        except BudgetError:
            return []  # too small for these

    def _times(
        self, names: Iterable[str], conditions: Conditions, sizes_of: Callable[[str], Sizes]
    ) -> Iterable[tuple[str, float]]:
        """Yield the seconds of each algorithm that can run."""
        for name in names:
            if name == RESIDENT:
                if self._holds(conditions):
                    yield name, self._load_s(conditions)
                continue
            try:
                tuned = survey(MODELS[name], sizes_of(name), self._budget_bytes, conditions)
            except BudgetError:
                continue  # no point there: its page table does not fit
            yield name, tuned.prediction.stream_s

    def _holds(self, conditions: Conditions) -> bool:
        times = conditions.layout.row_count / self._conditions.layout.row_count
        return times * self._advisor.resident_bytes <= self._budget_bytes

    def _row(self, option: Option) -> BatchRow:
        predicted, tasks = option.tuned.prediction, self._tasks
        read = (tasks * float(predicted.stream_pages), tasks * float(predicted.stream_bytes))
        return BatchRow(option.name, 1e3 * float(predicted.stream_s), *read)

    def _resident_row(self, conditions: Conditions) -> BatchRow:
        layout, tasks = conditions.layout, self._tasks
        page_bytes = layout.code_bytes + sum(layout.part_bytes)
        read = (tasks * layout.page_count, tasks * layout.page_count * page_bytes)
        return BatchRow(RESIDENT, 1e3 * self._load_s(conditions), *read)

    def _load_s(self, conditions: Conditions) -> float:
        rows = conditions.stream_rows or 0
        load_s = resident.load_s(conditions.layout, conditions.factors)
        return load_s + rows / resident.predict(conditions.factors).rate


def _worth_showing(batch: MicroBatch) -> list[str]:
    """Return what `auto` chooses, and the fastest of each family, with a front stage or without."""
    best: dict[object, str] = {}
    for row in batch.ranking:
        algorithm = ALGORITHMS[row.algorithm]
        kind = (algorithm.family, algorithm.has_front or algorithm.pins_pages)
        if not algorithm.one_tuple_at_a_time:
            best.setdefault(kind, row.algorithm)
    return list(dict.fromkeys([batch.algorithm, *best.values()]))


def _resized(sizes: Sizes, pages: int) -> Sizes:
    """Return the sizes for an R of `pages` pages that are like those of this one."""
    known = sizes.page_count

    def scaled(size_of: Callable[[int], int]) -> Callable[[int], int]:
        return lambda count: ceil(size_of(min(count, known)) * max(1.0, count / known))

    return replace(
        sizes,
        page_count=pages,
        disk_bytes=scaled(sizes.disk_bytes),
        pinned_bytes=scaled(sizes.pinned_bytes),
        table_bytes=ceil(sizes.table_bytes * pages / known),
        least_pages=min(sizes.least_pages, pages),
    )
