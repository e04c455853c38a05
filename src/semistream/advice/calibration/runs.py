"""The runs of a calibration: joins of each kind on the real relation, each for a moment."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from semistream.advice.calibration.streams import KeyStream, sample_keys
from semistream.advice.measure import Harness, Measured, Period, ServiceRate
from semistream.advice.situation import layout_of
from semistream.budget.split import USUAL, Split
from semistream.errors import BudgetError
from semistream.joins.opened import Opened
from semistream.joins.registry import ALGORITHMS, Algorithm
from semistream.memory import MemoryLedger, return_free_memory
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec, read_columns

_SHARES = (0.01, 0.03, 0.1)  # of R, for the budgets
_MOST_BYTES = 64_000_000
_LEAST_BYTES = 1_000_000
_KEYS = 2_000_000
_BATCH_ROWS = 65_536
_FEW_BATCH_ROWS = 2_048  # of a stream for a small window
_FEW_PAGES = 1 / 32  # of R: requested by the window of sparse look-ups
_SMALLER_WINDOW = Split(most_tuples=2_048)  # of dense look-ups
_NO_LIMIT = 1 << 62
_MOST_S = 0.2  # of a run: for its warm-up, and again for what is measured
_ROUNDS = 3


def _preferred(has: Callable[[Algorithm], bool]) -> str:
    """Return the most preferred of some algorithms: it stands for all of them."""
    return min(filter(has, ALGORITHMS.values()), key=lambda a: a.preference).name


def _plain(family: str) -> str:
    return _preferred(
        lambda a: a.family == family and not (a.has_front or a.pins_pages or a.one_tuple_at_a_time)
    )


# What is measured: a join of each family alone, a front stage, pinned pages.
PLAIN = {family: _plain(family) for family in ("scan", "index", "lookup")}
_WITH_FRONT = _preferred(lambda a: a.has_front)
_WITH_PINNED = _preferred(lambda a: a.pins_pages)


def _tried_budgets(relation: Relation) -> list[int]:
    size = relation.size_bytes / relation.partition_count
    return sorted({int(min(_MOST_BYTES, max(_LEAST_BYTES, share * size))) for share in _SHARES})


@dataclass(frozen=True, slots=True)
class Run:
    """One join that was run for a moment."""

    algorithm: str
    rows: int  # in its window or cache
    budget_bytes: int
    measured: Measured

    @property
    def service(self) -> ServiceRate:
        """The counters and timers of what was measured."""
        return self.measured.service

    @property
    def tuple_s(self) -> float:
        """The time of a tuple, without the time outside of the join."""
        return 1 / self.measured.rate


class Runs:
    """Runs joins over one relation and keeps what was measured."""

    def __init__(self, relation: Relation, spec: JoinSpec, partition: int | None) -> None:
        """Sample keys for the streams; no join runs yet.

        Nothing is looked at in place, so that look-ups show what requests cost.
        """
        relation = relation.read_by(replace(relation.reading, in_place=False))
        self.opened = Opened.within(MemoryLedger(_NO_LIMIT), relation, spec, partition)
        reader = self.opened.reader
        self._harness = Harness(relation, spec, reader.page_count, partition, self.opened)
        self._budgets = _tried_budgets(relation)  # of the joins that are measured
        self._stream = KeyStream(spec, sample_keys(relation, partition, _KEYS))
        self.layout = layout_of(reader, read_columns(relation, spec))
        self.scan: list[Run] = []
        self.index: list[Run] = []
        self.look_up: list[Run] = []
        self.front: list[Run] = []  # with a front stage
        self.pinned: list[Run] = []  # with pinned pages
        look_ups = 1 + 2 * min(2, len(self._budgets))
        self.count = (6 * len(self._budgets) + look_ups) * _ROUNDS  # runs in all

    def all(self) -> Iterator[None]:
        """Run everything, yielding after each run.

        In rounds, so that a disturbance does not fall on all runs of a kind.
        """
        for _ in range(_ROUNDS):
            for budget in self._budgets:
                yield from self._all_with(budget)
            yield from self._look_ups()

    def _all_with(self, budget: int) -> Iterator[None]:
        for family, into in (("scan", self.scan), ("index", self.index)):
            pages = self._run(PLAIN[family], budget, 0.0, USUAL, into)
            yield
            split = Split(pages_per_read=max(1, pages // 4))
            self._run(PLAIN[family], budget, 0.0, split, into)
            yield
        self._run(_WITH_FRONT, budget, 1.0, USUAL, self.front)
        yield
        self._run(_WITH_PINNED, budget, 1.0, USUAL, self.pinned)
        yield

    def _look_ups(self) -> Iterator[None]:
        """Run dense look-ups with windows of several sizes, and one that requests few pages."""
        tried = sorted({self._budgets[0], self._budgets[-1]})
        splits = [(budget, split) for budget in tried for split in (USUAL, _SMALLER_WINDOW)]
        few = max(1, int(_FEW_PAGES * self.layout.page_count))
        for budget, split in [*splits, (tried[0], Split(most_tuples=few))]:
            self._run(PLAIN["lookup"], budget, 0.0, split, self.look_up)
            yield

    def _run(
        self, algorithm: str, budget_bytes: int, exponent: float, split: Split, into: list[Run]
    ) -> int:
        """Run a join for a moment, keep what was measured, and return its pages per read."""
        rows = _BATCH_ROWS if split.most_tuples is None else _FEW_BATCH_ROWS
        stream, period = self._stream.endless(exponent, rows), Period(2, 2, most_s=_MOST_S)
        try:
            measured = self._harness.measure(algorithm, budget_bytes, split, stream, period)
        except BudgetError:
            return 1  # too small for this algorithm: the other runs have to do
        size = self._rows_of(algorithm, measured)
        if size and measured.service.tuples:
            # Runs with one budget count as one size, whatever their disk buffers leave.
            same = [run.rows for run in into if run.budget_bytes == budget_bytes]
            into.append(Run(algorithm, same[0] if same else size, budget_bytes, measured))
        return_free_memory()  # the next run, or the reads that are timed, use it again
        return int(measured.settings.pages_per_read)

    def _rows_of(self, algorithm: str, measured: Measured) -> int:
        """Return the size of the structure that is measured, in rows."""
        record = ALGORITHMS[algorithm]
        if record.has_front:
            return measured.cached_rows
        if record.pins_pages:
            return int(measured.settings.pinned_pages * self.layout.rows_per_page)
        return measured.settings.places
