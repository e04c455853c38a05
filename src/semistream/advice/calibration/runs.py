"""The runs of a calibration: joins of each kind on the real relation, each for a moment."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from semistream.advice.calibration.record import shipped_factors
from semistream.advice.calibration.streams import KeyStream, sample_keys
from semistream.advice.measure import Harness, Measured, Period, ServiceRate
from semistream.advice.situation import layout_of, stream_widths
from semistream.budget.split import USUAL, Split
from semistream.errors import BudgetError
from semistream.joins.opened import Opened
from semistream.joins.registry import ALGORITHMS, Algorithm
from semistream.memory import MemoryLedger, return_free_memory
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec, read_columns

LEAST_BRIEF_BYTES = 4_000_000
_SHARES = (0.01, 0.03, 0.1)  # of R, for the budgets
_MOST_BYTES = 64_000_000
_LEAST_BYTES = 1_000_000
_KEYS = 2_000_000
_FEW_KEYS = 300_000
_BATCH_ROWS = 65_536
_KEYS_SHARE = 1 / 8  # of the memory, for the sampled keys
_STREAM_SHARE = 1 / 8  # for the batches of the stream
_KEY_COPIES = 4  # while they are put together and shuffled
_ROW_BYTES = 64  # memory to draw a stream row, besides its values
_LEAST_ROWS = 256
_NO_LIMIT = 1 << 62
_MOST_S = 0.25  # of a run: for its warm-up, and again for what is measured
_MOST_BRIEF_S = 0.15
_ROUNDS = 3


def _preferred(has: Callable[[Algorithm], bool]) -> str:
    """Return the most preferred of some algorithms: it stands for all of them."""
    return min(filter(has, ALGORITHMS.values()), key=lambda a: a.preference).name


def _plain(family: str) -> str:
    return _preferred(
        lambda a: a.family == family and not (a.has_front or a.pins_pages or a.one_tuple_at_a_time)
    )


# What is measured: a join of each family alone, a front stage, pinned pages.
PLAIN = {family: _plain(family) for family in ("scan", "index")}
_WITH_FRONT = _preferred(lambda a: a.has_front)
_WITH_PINNED = _preferred(lambda a: a.pins_pages)


@dataclass(frozen=True, slots=True)
class Allotment:
    """The memory of a calibration by its uses, and the page table that all its joins share."""

    opened: Opened
    stream_rows: int  # of a batch
    key_count: int  # keys that are sampled
    budgets: list[int]  # of the joins that are measured

    @classmethod
    def within(
        cls,
        relation: Relation,
        spec: JoinSpec,
        partition: int | None,
        limit_bytes: int | None,
        brief: bool,
    ) -> "Allotment":
        """Divide the memory; without a limit each use gets its usual amount."""
        if limit_bytes is None:
            opened = Opened.within(MemoryLedger(_NO_LIMIT), relation, spec, partition)
            budgets = _tried_budgets(relation)
            if brief:
                return cls(opened, _BATCH_ROWS, _FEW_KEYS, budgets[-1:])
            return cls(opened, _BATCH_ROWS, _KEYS, budgets)
        ledger = MemoryLedger(max(limit_bytes, LEAST_BRIEF_BYTES))
        opened = Opened.within(ledger, relation, spec, partition)
        left, widths = ledger.available_bytes, stream_widths(relation, spec)
        row_bytes = 2 * sum(widths.average) + _ROW_BYTES
        key_bytes = _KEY_COPIES * sum(widths.average[i] for i in spec.stream_key_indexes)
        rows = min(_BATCH_ROWS, max(_LEAST_ROWS, int(left * _STREAM_SHARE / row_bytes)))
        keys = min(_FEW_KEYS, max(_LEAST_ROWS, int(left * _KEYS_SHARE / key_bytes)))
        ledger.reserve("stream", min(left // 4, int(rows * row_bytes)))
        ledger.reserve("keys", min(left // 4, int(keys * key_bytes)))
        table_bytes = opened.reader.table_bytes
        return cls(opened, rows, keys, [min(_MOST_BYTES, ledger.available_bytes + table_bytes)])


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

    def __init__(
        self,
        relation: Relation,
        spec: JoinSpec,
        partition: int | None,
        memory: Allotment,
        brief: bool,
    ) -> None:
        """Sample keys for the streams; no join runs yet."""
        reader = memory.opened.reader
        self.shipped = shipped_factors(relation, spec)  # to compare with
        self._harness = Harness(relation, spec, reader.page_count, partition, memory.opened)
        self._budgets = memory.budgets  # of the joins that are measured
        self._brief = brief  # only what a choice needs
        self._rounds = 1 if brief else _ROUNDS  # of each run; the fastest counts
        keys = sample_keys(relation, partition, memory.key_count)
        self._stream = KeyStream(spec, keys, memory.stream_rows)
        self.layout = layout_of(reader, read_columns(relation, spec))
        self.scan: list[Run] = []
        self.index: list[Run] = []
        self.front: list[Run] = []  # with a front stage
        self.pinned: list[Run] = []  # with pinned pages
        self.count = len(self._budgets) * (3 if brief else 6) * self._rounds  # runs in all

    def all(self) -> Iterator[None]:
        """Run everything, yielding after each run.

        In rounds, so that a disturbance does not fall on all runs of a kind.
        """
        for budget in self._budgets * self._rounds:
            for family, into in (("scan", self.scan), ("index", self.index)):
                pages = self._run(PLAIN[family], budget, 0.0, USUAL, into)
                yield
                if not self._brief:
                    split = Split(pages_per_read=max(1, pages // 4))
                    self._run(PLAIN[family], budget, 0.0, split, into)
                    yield
            self._run(_WITH_FRONT, budget, 1.0, USUAL, self.front)
            yield
            if not self._brief:
                self._run(_WITH_PINNED, budget, 1.0, USUAL, self.pinned)
                yield

    def _run(
        self, algorithm: str, budget_bytes: int, exponent: float, split: Split, into: list[Run]
    ) -> int:
        """Run a join for a moment, keep what was measured, and return its pages per read."""
        period = Period(2, 2, most_s=_MOST_BRIEF_S if self._brief else _MOST_S)
        about = (algorithm, budget_bytes, split)
        try:
            measured = self._harness.measure(*about, self._stream.endless(exponent), period)
        except BudgetError:
            return 1  # too small for this algorithm: the other runs have to do
        rows = self._rows_of(algorithm, measured)
        if rows and measured.service.tuples:
            # Runs with one budget count as one size, whatever their disk buffers leave.
            same = [run.rows for run in into if run.budget_bytes == budget_bytes]
            into.append(Run(algorithm, same[0] if same else rows, budget_bytes, measured))
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
