"""The rig: R as the papers stored it, on a device, in miniature, to measure joins on.

*As in the papers* the oldest tuple picks HYBRIDJOIN's next pages, which ours does only if asked.

*As the papers stored it*: rows lie together and pages are read whole, so the engine's own advantage
of reading keys first is switched off; what is compared is the algorithms.

*In miniature*: R, the budget and what a request costs besides its bytes are all `times` smaller
than in the paper. A loop is then `times` shorter and serves `times` fewer tuples, so service rates
are those of the full size; durations are multiplied back. Budgets and sizes are given as they are
at full size. Keys are drawn at full size (`workload/miniature.py`), so any share of R has its share
of the stream. What does not shrink: a join that shares no read (`inlj`) has a rate that does not
depend on R's size, so it is measured on the full-size device. A page is a `times` larger part of R,
and of the budget. Where R has many rows of a key, it has `times` fewer, and its join values are
those of the smaller domain. What a join keeps for each page (page table, index, queue) has the same
bytes in miniature; the budget has that much more, so it takes no more of a window than at full
size.

Each output row is checked against its key; if keys are unique, no more tuples may be missing than
can wait.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.advice.choice import Advisor
from semistream.advice.measure import Harness, Measured, Period
from semistream.advice.situation import demand_in, reader_for
from semistream.budget.rowsizes import Widths
from semistream.budget.rules import EQUAL_PARTS
from semistream.budget.split import INPUT_SHARE, OUTPUT_SHARE, USUAL, Split
from semistream.columns import Encoding, encoding_of, width_bytes
from semistream.cost.conditions import Conditions, Layout
from semistream.cost.demand import MOST_HEAD_KEYS, Demand
from semistream.cost.factors import CostFactors, IoCurve
from semistream.cost.models import MODELS
from semistream.cost.prediction import Prediction
from semistream.cost.tuning import Tuned, evaluate, tune
from semistream.joins.frontstage import POLICY
from semistream.joins.indexjoin import IndexJoin
from semistream.joins.opened import Opened
from semistream.joins.registry import ALGORITHMS, Algorithm, make_operator
from semistream.joins.streamjoin import JoinTask, StreamJoin
from semistream.joins.xhybridjoin import XHybridJoin
from semistream.lab.stamps import PAYLOAD, Check, stamped
from semistream.relation.build import build_relation
from semistream.relation.device import BufferPool, EmulatedDevice, Reading
from semistream.relation.reader import PageReader
from semistream.relation.relation import Relation
from semistream.relation.writer import CODE_BYTES
from semistream.spec import JoinSpec, resolve
from semistream.workload.base import Workload
from semistream.workload.miniature import Miniature
from semistream.workload.synthetic import Synthetic

REAL = "real"
UNTUNED = "xhybridjoin-equal"  # X-HYBRIDJOIN with both parts of one size, as before its section 6
POOLED = "inlj-pool"  # INLJ with a buffer pool of the whole budget, as in the first paper
_RUN_AS = {UNTUNED: "xhybridjoin", POOLED: "inlj"}  # their models and their records
_BATCH_ROWS = 2048
_FEW_BATCH_ROWS = 64  # for joins that read a page for each tuple
_MOST_SAMPLED = 1_000_000
_MANY_LOADS = 1_000
_MOST_PER_ROW = 30  # tuples for each row of R, for the warm-up, and again to be measured
FULL_PAGE_BYTES = 65_536  # of R's pages at full size, at least


Setting: TypeAlias = tuple[str, float, Split]  # algorithm, memory, split


@dataclass
class Rig:
    """What is measured: a relation, the stream that refers to it, and a device."""

    relation: Relation
    workload: Workload
    device: str  # the name of an emulated one, or `REAL`
    times: float  # how many times smaller everything is
    row_bytes: int  # at full size and in miniature
    # Scans that were measured, of all rigs with this relation, device and size: which keys the
    # stream has is of no consequence to them (see `measure`).
    scans: dict[Setting, Measured] = field(default_factory=dict, repr=False)
    # What was measured and tuned before: figures share settings.
    _known: dict[Setting, Measured] = field(default_factory=dict, init=False, repr=False)
    _tuned: dict[tuple[str, float], Tuned] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def build(
        cls,
        folder: Path,
        workload: Workload,
        device: str,
        times: float,
        row_bytes: int,
        page_bytes: int,
    ) -> "Rig":
        """Return a rig on a relation that is built for it."""
        relation = cls.store(folder, workload, row_bytes, page_bytes)
        return cls(relation, workload, device, times, row_bytes)

    @staticmethod
    def store(folder: Path, workload: Workload, row_bytes: int, page_bytes: int) -> Relation:
        """Store a workload's relation as rows of this width: the key, and a payload that proves it.

        Other columns of the workload are not kept, only their width is.
        """
        schema = pa.schema([(workload.key, pa.int64()), (PAYLOAD, pa.binary(row_bytes - 8))])
        batches = (
            stamped(batch.column(workload.key), schema) for batch in workload.relation_batches()
        )
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        return build_relation(reader, folder, key=workload.key, partitions=1, page_size=page_bytes)

    @property
    def rows(self) -> float:
        """The rows of R at full size."""
        return self.relation.row_count * self.times

    @property
    def size_bytes(self) -> float:
        """The size of R at full size."""
        return self.rows * self.row_bytes

    @cached_property
    def page_count(self) -> int:
        """The pages of R in miniature."""
        return self._reader.page_count

    @cached_property
    def page_bytes(self) -> float:
        """The size of a page at full size, `times` that of the real pages."""
        return self.size_bytes / self.page_count

    @property
    def relation_page_bytes(self) -> float:
        """The size of a page as it is stored, in miniature."""
        return self.page_bytes / self.times

    def pages_in(self, size_bytes: float) -> int:
        """Return the pages of a disk buffer of a full-size length, at least one."""
        return max(1, round(size_bytes / self.page_bytes))

    def measure(self, algorithm: str, memory_bytes: float, split: Split = USUAL) -> Measured:
        """Return what a join does in a full-size budget, measured once for each setting.

        A scan of unique keys without a cache serves the same whatever the skew and the seed.
        """
        key = (algorithm, memory_bytes, split)
        known = self.scans if self._is_plain_scan(algorithm) else self._known
        if key not in known:
            known[key] = self._measure(*key)
        return known[key]

    def _is_plain_scan(self, algorithm: str) -> bool:
        record = _record(algorithm)
        is_scan = record.family == "scan" and not record.has_front
        return is_scan and isinstance(self.workload, Synthetic) and self._reader.has_unique_codes

    def measure_tuned(self, algorithm: str, memory_bytes: float) -> Measured:
        """Return the same at the best split by the cost model."""
        split = self.tuned(_record(algorithm).name, memory_bytes).split
        return self.measure(algorithm, memory_bytes, split)

    def tuple_bytes(self, algorithm: str) -> float:
        """Return the memory of a tuple that waits: the papers' f·v_S and its place in the queue."""
        return float(self._advisor.sizes(algorithm).tuple_bytes)

    def tuned(self, algorithm: str, memory_bytes: float) -> Tuned:
        """Return the best split of a full-size budget by the cost model."""
        key = (algorithm, memory_bytes)
        if key not in self._tuned:
            sizes = self._advisor.sizes(algorithm)
            budget = self._budget(algorithm, memory_bytes)
            self._tuned[key] = tune(MODELS[algorithm], sizes, budget, self.conditions)
        return self._tuned[key]

    def evaluate(self, algorithm: str, memory_bytes: float, split: Split) -> Tuned:
        """Return what the model predicts for a split."""
        sizes = self._advisor.sizes(algorithm)
        budget = self._budget(algorithm, memory_bytes)
        return evaluate(MODELS[algorithm], sizes, budget, self.conditions, split)

    def predict(self, algorithm: str, measured: Measured) -> Prediction:
        """Return what the model predicts for the settings that were measured."""
        model = MODELS[_record(algorithm).name]
        conditions = self.alone_conditions if _reads_alone(algorithm) else self.conditions
        return model.predict(conditions, measured.settings, measured.cached_rows)

    def new_join(
        self,
        algorithm: str,
        memory_bytes: float,
        split: Split,
        device: EmulatedDevice | None,
    ) -> StreamJoin:
        """Return a join that is ready to run, reading from one of the devices below."""
        relation = self.relation.read_by(_reading(device))
        budget = self._budget(algorithm, memory_bytes)
        return make_join(algorithm, relation, self.spec, budget, None, split)

    def device_for(self, algorithm: str, memory_bytes: float = 0.0) -> EmulatedDevice | None:
        """Return the device to measure a rate with: as small as R, or whole for one read each."""
        if self.device == REAL:
            return None
        device = self._device_of_rows()
        if algorithm == POOLED:
            device.pool = BufferPool(int(memory_bytes / self.times))
        return device if _reads_alone(algorithm) else device.shrunk(self.times)

    def slow_device(self, algorithm: str) -> EmulatedDevice:
        """Return the device to measure times with: it reads the small R as long as the full one."""
        device = self._device_of_rows()
        return device if _reads_alone(algorithm) else device.slowed(self.times)

    def _device_of_rows(self) -> EmulatedDevice:
        """Return a device that charges a row's key with its payload."""
        device = EmulatedDevice.named(self.device)
        device.bytes_per_s *= (self.row_bytes - CODE_BYTES) / self.row_bytes
        return device

    @cached_property
    def stream_fields(self) -> list[int]:
        """The stream's columns that are kept: those of a fixed width."""
        types = self.workload.stream_schema.types
        return [i for i, t in enumerate(types) if encoding_of(t) is Encoding.FIXED]

    def stream_rows(self, first: int, count: int) -> pa.RecordBatch:
        """Return rows of the stream, with the columns that are kept."""
        return self.workload.stream_rows(first, count).select(self.stream_fields)

    @cached_property
    def spec(self) -> JoinSpec:
        """The join that is measured: each tuple gets the whole row."""
        return resolve(
            self.relation,
            pa.schema([self.workload.stream_schema.field(i) for i in self.stream_fields]),
            on={self.workload.stream_key: self.workload.key},
            how="inner",
        )

    @cached_property
    def conditions(self) -> Conditions:
        """What the models assume of the miniature."""
        return self._conditions_on(EmulatedDevice.named(self._modelled).shrunk(self.times))

    @cached_property
    def alone_conditions(self) -> Conditions:
        """What the model assumes for a join that reads for each tuple alone."""
        return self._conditions_on(EmulatedDevice.named(self._modelled))

    @property
    def _modelled(self) -> str:
        """The device of the models: a join on this machine's own is split as for an SSD."""
        return "ssd" if self.device == REAL else self.device

    def _conditions_on(self, device: EmulatedDevice) -> Conditions:
        reader = self._reader
        layout = Layout(
            page_count=reader.page_count,
            row_count=reader.row_count,
            code_bytes=reader.row_count * self.row_bytes / reader.page_count,
            part_bytes=(),
            pages_per_stretch=reader.pages_per_stretch([PAYLOAD]),
            whole_pages=True,
            rows_per_key=reader.rows_per_key,
        )
        factors = CostFactors(IoCurve.of_device(*device.costs))
        workload = self.workload
        if not isinstance(workload, Synthetic) or workload.relation_exponent is not None:
            sample = workload.stream_rows(0, min(_MOST_SAMPLED, 4 * reader.row_count))
            demand = demand_in(sample, self.relation, [workload.stream_key], reader)
            return Conditions(layout, demand, factors, POLICY, oldest_picks=True)
        shares = shares_of(workload)
        about = (layout, _demand_of(workload, shares), factors, POLICY)
        conditions = Conditions(*about, oldest_picks=True)
        if not workload.by_frequency:
            return conditions
        by_page = np.add.reduceat(shares, reader.row_bounds[:-1])
        return conditions.with_page_shares(by_page / by_page.sum())

    def _measure(self, algorithm: str, memory_bytes: float, split: Split) -> Measured:
        harness = Harness(
            self.relation.read_by(_reading(self.device_for(algorithm, memory_bytes))),
            self.spec,
            self.page_count,
            make=make_join,
            all_match=self._reader.has_unique_codes,
        )
        measured = harness.measure(
            algorithm,
            self._budget(algorithm, memory_bytes),
            split,
            self._endless(_FEW_BATCH_ROWS if _reads_alone(algorithm) else _BATCH_ROWS),
            self._period(algorithm, memory_bytes, split),
            Check(self.workload.stream_key),
        )
        times = 1.0 if _reads_alone(algorithm) else self.times
        return replace(measured, loop_s=measured.loop_s * times)

    def _period(self, algorithm: str, memory_bytes: float, split: Split) -> Period:
        if algorithm == POOLED:  # until the pool is full
            pages = memory_bytes / self.times / self.relation.size_bytes * self.page_count
            return Period(inf, inf, most_tuples=256 + 3 * pages)
        most = _MOST_PER_ROW * self.relation.row_count
        if 2 * (split.pinned_pages or 0) > self.page_count:
            most *= 4  # few tuples miss, so it takes long until as many wait as will
        loads = self.page_count / (split.pages_per_read or self.page_count)
        if loads >= _MANY_LOADS and not _record(algorithm).has_front:
            # So many loads even out: within a part of a cycle for a scan. An index join swings: the
            # first window arrives at once, and the load that most tuples request is read again and
            # again in step. A swing takes about one and a half cycles; two of them are measured.
            is_scan = _record(algorithm).family == "scan"
            return Period(1.2, 0.4, most) if is_scan else Period(1.5, 3, most)
        return _period(algorithm, most)

    def _endless(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the stream in batches; one that ends begins again."""
        first = 0
        while True:
            batch = self.stream_rows(first, batch_rows)
            first = first + batch_rows if batch.num_rows == batch_rows else 0
            if first:
                yield batch

    @cached_property
    def _reader(self) -> PageReader:
        return reader_for(self.relation.read_by(_reading(None)), self.spec)

    @cached_property
    def _advisor(self) -> Advisor:
        relation = self.relation.read_by(_reading(None))
        sizes = [float(width_bytes(column.type)) for column in self.spec.stream_schema]
        return Advisor(relation, self.spec, Widths.equal(sizes))

    def _budget(self, algorithm: str, memory_bytes: float) -> int:
        return int(memory_bytes / self.times) + self._unshrunk_bytes(algorithm)

    def _unshrunk_bytes(self, algorithm: str) -> int:
        """Return how much more a join keeps for R's pages than `times` less than at full size.

        Pages of 64 KiB, as at full size, would be fewer here by the ratio of the sizes.
        """
        if self.times == 1.0:
            return 0
        record = _record(algorithm)
        sizes = self._advisor.sizes(record.name)
        kept = sizes.table_bytes + sizes.window_base_bytes
        if record.pins_pages:
            kept += 2 * sizes.pinned_bytes(1) - sizes.pinned_bytes(2)  # but for the pages' rows
        more = kept * max(0.0, 1 - self.relation_page_bytes / FULL_PAGE_BYTES)
        return int(more / (1 - OUTPUT_SHARE - INPUT_SHARE))  # the buffers get their shares of it


def shares_of(workload: Synthetic) -> NDArray[np.float64]:
    """Return the share of the stream that requests each row, the most requested first."""
    rows = workload.relation_rows
    times = workload.times if isinstance(workload, Miniature) else 1.0
    full = Demand.zipf(workload.exponent, round(rows * times))
    shares: NDArray[np.float64] = np.diff(full.hit_ratios(np.linspace(0.0, rows * times, rows + 1)))
    shares /= shares.sum()
    return shares


def _demand_of(workload: Synthetic, shares: NDArray[np.float64]) -> Demand:
    """Return the demand with these shares: single keys first, then classes of about equal ones."""
    head, rest = shares[:MOST_HEAD_KEYS], shares[MOST_HEAD_KEYS:]
    bounds = np.unique(np.geomspace(1, len(rest) + 1, 200).astype(int)) - 1
    counts = np.diff(bounds).astype(np.float64)
    tail = np.add.reduceat(rest, bounds[:-1]) / counts if len(rest) else np.zeros(0)
    return Demand(len(shares), head, tail, counts, workload.exponent)


def _reading(device: EmulatedDevice | None) -> Reading:
    return Reading(device, whole_pages=True, as_rows=True, uncached=device is None)


def _record(algorithm: str) -> Algorithm:
    return ALGORITHMS[_RUN_AS.get(algorithm, algorithm)]


def _reads_alone(algorithm: str) -> bool:
    return _record(algorithm).one_tuple_at_a_time


def make_join(
    algorithm: str,
    relation: Relation,
    spec: JoinSpec,
    budget_bytes: int,
    partition: int | None,
    split: Split,
    opened: Opened | None = None,
) -> StreamJoin:
    """Return a join of the registry, or X-HYBRIDJOIN with both parts of one size.

    As in the papers the oldest tuple picks the next pages.
    """
    split = replace(split, oldest_picks=True)
    if algorithm == UNTUNED:
        task = JoinTask(relation, spec, budget_bytes, partition, split, opened)
        return IndexJoin(task, EQUAL_PARTS, XHybridJoin)
    algorithm = _record(algorithm).name
    return make_operator(algorithm, relation, spec, budget_bytes, partition, split, opened)


def _period(algorithm: str, most_tuples: float) -> Period:
    if _reads_alone(algorithm):
        return Period(0.0, 1.0, most_tuples=768)
    # The first paper lets four cycles of R pass and measures one. A scan without a cache is the
    # same from the second on. Joins that read by index visit popular pages at irregular intervals,
    # and one such page may serve most of a cycle's tuples.
    is_scan = _record(algorithm).family == "scan"
    if is_scan and not _record(algorithm).has_front:
        return Period(2, 1)
    # Where nearly all of R is pinned, a cycle would not end.
    return Period(4, 1 if is_scan else 4, most_tuples)
