"""Calibration: the cost factors of this machine, this device and this schema, measured.

Real joins run on the real relation, each for a fraction of a second, with windows of several sizes
and disk buffers of two; a stopwatch says how long each step took and the telemetry how often it was
done. What a step costs is then a least-squares fit over the runs: so much for each time, so much
for each loop whatever is in it. Reading is timed by itself, request size by request size.

A disturbance only ever makes a run slower, so each is made in several rounds and the fastest one
counts. How sure the factors are: by how much rounds differ from each other, and how far the runs
are from their fit.

Memory: a brief calibration, which `auto` makes before its first join, stays within that join's
budget, or within `_LEAST_BRIEF_BYTES` where that is less: page table, sampled keys, the stream's
batches and the join that is measured share it.
"""

import hashlib
import json
import os
import socket
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.advice.choice import Advisor
from semistream.advice.situation import (
    largest_partition,
    layout_of,
    stream_widths,
)
from semistream.budget.rules import Settings
from semistream.budget.split import USUAL, Split
from semistream.columns import concatenate, take_rows
from semistream.cost.conditions import Conditions
from semistream.cost.demand import Demand
from semistream.cost.factors import CostFactors, FrontCosts, IoCurve, StepCosts
from semistream.cost.models import MODELS
from semistream.errors import BudgetError, OptionError
from semistream.joins.diskbuffer import DiskBuffer
from semistream.joins.frontstage import POLICY
from semistream.joins.opened import Opened
from semistream.joins.registry import make_operator
from semistream.joins.stopwatch import Stopwatch
from semistream.lab.service import ServiceRate, Spell, measure_service
from semistream.memory import MemoryLedger, return_free_memory
from semistream.relation.device import Reading
from semistream.relation.layout import part_names
from semistream.relation.pagetable import CODES
from semistream.relation.reader import PageReader
from semistream.relation.relation import Relation
from semistream.spec import Columns, JoinSpec, read_columns, resolve
from semistream.workload.zipf import zipf_ranks

Progress = Callable[[int, int], None]  # steps done, steps in all

FOLDER_VARIABLE = "SEMISTREAM_CACHE"
_FORMAT = 3
_SHARES = (0.01, 0.03, 0.1)  # of R, for the windows
_MOST_BYTES = 64_000_000
_LEAST_BYTES = 1_000_000
_KEYS = 2_000_000
_FEW_KEYS = 300_000
_SAMPLED_PAGES = 8_192
_BATCH_ROWS = 65_536
_READ_PAGES = (1, 4, 16, 64, 256, 1024)
_READS = 9
_SEED = 7
_LEAST_BRIEF_BYTES = 4_000_000
_KEYS_SHARE = 1 / 8  # of the memory, for the sampled keys
_STREAM_SHARE = 1 / 8  # for the batches of the stream
_KEY_COPIES = 4  # while they are put together and shuffled
_ROW_BYTES = 64  # what drawing a stream row takes besides its values
_LEAST_ROWS = 256
_NO_LIMIT = 1 << 62
_FAMILIES = {"scan": "meshjoin", "index": "hybridjoin"}


@dataclass(frozen=True, slots=True)
class Calibration:
    """Cost factors, and what they were measured on."""

    factors: CostFactors
    deviation: dict[str, float]  # typical relative deviation of each factor
    host: str
    device: str
    measured: str
    seconds: float
    is_brief: bool
    stream_bytes: float  # v_S: a stream tuple's values
    waiting_bytes: dict[str, float]  # what such a tuple takes while it waits, by kind of join

    def fudge(self, family: str) -> float:
        """Return f of `meshjoin.txt`: what H takes beyond the tuples, with 4 bytes of Q apart."""
        return (self.waiting_bytes[family] - 4) / self.stream_bytes

    @property
    def tuple_s(self) -> float:
        """What a tuple costs, all steps together, to compare calibrations by."""
        return sum(p.tuple_s + p.output_s + p.probe_s for p in self.factors.index)

    @property
    def typical_deviation(self) -> float:
        """By how much runs typically differ on this machine; 0 if there was one run each."""
        return 0.0 if self.is_brief else self.deviation["rounds"]


def calibrate(
    relation: Relation,
    spec: JoinSpec | None = None,
    *,
    columns: Columns | None = None,
    budget_bytes: int | None = None,
    brief: bool = False,
    progress: Progress | None = None,
) -> Calibration:
    """Measure the cost factors for a relation and a join; without one, for a stream of 20 bytes.

    `brief` runs only what a choice needs, at one size: about a second. Then `budget_bytes` is all
    the memory that it takes, if it is more than a few megabytes.
    """
    if not relation.row_count:
        raise OptionError(
            f"{relation.location} has no rows to measure joins with; calibrate on one that has"
        )
    started = perf_counter()
    relation = relation.read_by(Reading(None, False, relation.reading.whole_pages))
    spec = spec or usual_spec(relation, columns)
    partition = largest_partition(relation)
    memory = _Memory.within(relation, spec, partition, budget_bytes if brief else None, brief)
    runs = _Runs(relation, spec, partition, memory, brief)
    for done, _ in enumerate(runs.all(), 1):
        if progress is not None:
            progress(done, runs.count)
    io, io_deviation = _io_curve(memory, runs.read_columns)
    factors, deviation = runs.fit(io)
    count = runs.count
    widths = stream_widths(relation, spec)
    advisor = Advisor(relation, spec, widths, partition, memory.opened.reader)
    memory.opened.reader.close()
    del runs
    return_free_memory()
    if progress is not None:
        progress(count, count)
    return Calibration(
        factors,
        {"io": io_deviation, **deviation},
        socket.gethostname(),
        device_of(relation),
        datetime.now(UTC).isoformat(timespec="seconds"),
        perf_counter() - started,
        brief,
        sum(widths.average),
        {family: float(advisor.sizes(name).tuple_bytes) for family, name in _FAMILIES.items()},
    )


def calibration_for(
    relation: Relation, spec: JoinSpec, budget_bytes: int | None = None
) -> Calibration:
    """Return what is stored for a relation's device and a join's schema; measure if nothing is.

    Only what was measured for this schema is kept as such, not what was borrowed from another.
    """
    calibration = load(relation, spec)
    if calibration is None:
        calibration = calibrate(relation, spec, budget_bytes=budget_bytes, brief=True)
        keep(calibration, relation, spec)
    return calibration


def factors_for(relation: Relation, spec: JoinSpec, budget_bytes: int | None = None) -> CostFactors:
    """Return the factors of `calibration_for`; an emulated device charges its own time on top."""
    factors = calibration_for(relation, spec, budget_bytes).factors
    device = relation.reading.device
    return factors if device is None else factors.with_device(*device.costs)


def keep(calibration: Calibration, relation: Relation, spec: JoinSpec) -> None:
    """Store a calibration if that is possible: without it a join has to measure again, no more."""
    try:
        store(calibration, relation, spec)
    except OSError as error:
        warnings.warn(
            f"the cost factors of this machine cannot be kept ({error}), so each process will "
            f"measure them again; set {FOLDER_VARIABLE} to a folder that can be written",
            stacklevel=2,
        )


def store(calibration: Calibration, relation: Relation, spec: JoinSpec) -> Path:
    """Keep a calibration for this host."""
    path = _path(relation, spec)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = json.dumps({"format": _FORMAT, **asdict(calibration)}, indent=1)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(content)
    Path(file.name).replace(path)
    return path


def load(relation: Relation, spec: JoinSpec) -> Calibration | None:
    """Return what is stored for this host, a relation's device and a join's schema, if anything.

    If nothing is for streams like this one, a thorough one for others is still better than none.
    """
    path = _path(relation, spec)
    if path.exists():
        return _read(path)
    others = sorted(path.parent.glob("*.json"), key=lambda p: p.stat().st_mtime, reverse=True)
    found = (_read(other) for other in others)
    return next((c for c in found if c is not None and not c.is_brief), None)


def _read(path: Path) -> Calibration | None:
    try:
        stored = json.loads(path.read_text())
        if stored.pop("format") != _FORMAT:
            return None
        return Calibration(**{**stored, "factors": _factors(stored["factors"])})
    except (ValueError, KeyError, TypeError):
        return None  # of another version, or cut off: as good as none


def device_of(relation: Relation) -> str:
    """Return what tells the device of a relation from others on this host."""
    if "://" in relation.location:
        return "/".join(relation.location.split("/")[:3])
    return f"device {Path(relation.location).stat().st_dev}"


def _path(relation: Relation, spec: JoinSpec) -> Path:
    """Return where the calibration for a device and a schema lies: types matter, names do not."""
    added = [relation.schema.field(name).type for name in spec.columns]
    key = [relation.schema.field(name).type for name in relation.key]
    about = [
        device_of(relation),
        [str(t) for t in key],
        sorted(str(t) for t in added),
        relation.manifest.page_bytes,
        relation.reading.whole_pages,
        spec.adds_columns,
    ]
    stream = [str(t) for t in spec.stream_schema.types]
    cache = os.environ.get(FOLDER_VARIABLE) or str(
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "semistream"
    )
    folder = Path(cache) / "calibration" / socket.gethostname()
    return folder / _digest(about) / f"{_digest(stream)}.json"


def _digest(about: object) -> str:
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:12]


def _factors(stored: dict[str, Any]) -> CostFactors:
    def points(name: str, kind: type[Any]) -> tuple[Any, ...]:
        return tuple(kind(**point) for point in stored[name])

    io: dict[str, Any] = stored["io"]
    return CostFactors(
        IoCurve(tuple(io["sizes_bytes"]), tuple(io["seconds"]), io["seek_s"]),
        points("scan", StepCosts),
        points("index", StepCosts),
        points("front", FrontCosts),
        points("pinned", FrontCosts),
        stored["resident_s"],
    )


def usual_spec(relation: Relation, columns: Columns | None) -> JoinSpec:
    """Return the join of a stream of key, quantity and price, as in the first paper."""
    key = [relation.schema.field(name) for name in relation.key]
    fields = [*key, pa.field("quantity", pa.int32()), pa.field("price", pa.float64())]
    return resolve(relation, pa.schema(fields), how="left", columns=columns, suffix="_r")


@dataclass(frozen=True, slots=True)
class _Memory:
    """What a calibration may use, and the page table that all its joins share."""

    opened: Opened
    stream_rows: int  # of a batch
    key_count: int  # how many keys are sampled
    budgets: list[int]  # of the joins that are measured

    @classmethod
    def within(
        cls,
        relation: Relation,
        spec: JoinSpec,
        partition: int | None,
        limit_bytes: int | None,
        brief: bool,
    ) -> "_Memory":
        """Share the memory out; without a limit there is enough of it."""
        if limit_bytes is None:
            opened = Opened.within(MemoryLedger(_NO_LIMIT), relation, spec, partition)
            budgets = _tried_budgets(relation)
            if brief:
                return cls(opened, _BATCH_ROWS, _FEW_KEYS, budgets[-1:])
            return cls(opened, _BATCH_ROWS, _KEYS, budgets)
        ledger = MemoryLedger(max(limit_bytes, _LEAST_BRIEF_BYTES))
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


class _Runs:
    """The joins that are run, and what is made of them."""

    def __init__(
        self,
        relation: Relation,
        spec: JoinSpec,
        partition: int | None,
        memory: _Memory,
        brief: bool,
    ) -> None:
        self._relation, self._spec, self._partition = relation, spec, partition
        self._memory = memory
        self._brief = brief
        reader = memory.opened.reader
        self._page_count = reader.page_count
        self._rows_per_page = reader.row_count / max(1, reader.page_count)
        self.read_columns = list(make_columns(relation, spec))
        keys = reader_of_keys(relation, partition)
        self._keys = _sample_keys(keys, relation.key, memory.key_count)
        self._layout = layout_of(reader, read_columns(relation, spec))
        self._scan: list[_Run] = []
        self._index: list[_Run] = []
        self._front: list[_Run] = []
        self._pinned: list[_Run] = []
        self._rounds = 1 if brief else 3
        self.count = len(memory.budgets) * (3 if brief else 6) * self._rounds

    def all(self) -> Iterator[None]:
        """Run everything, yielding after each run; in rounds, so that a disturbance is no one's."""
        for budget in self._memory.budgets * self._rounds:
            for algorithm, into in (("meshjoin", self._scan), ("hybridjoin", self._index)):
                pages = self._run(algorithm, budget, 0.0, USUAL, into)
                yield
                if not self._brief:
                    split = Split(pages_per_read=max(1, pages // 4))
                    self._run(algorithm, budget, 0.0, split, into)
                    yield
            self._run("chybridjoin", budget, 1.0, USUAL, self._front)
            yield
            if not self._brief:
                self._run("xhybridjoin", budget, 1.0, USUAL, self._pinned)
                yield

    def fit(self, io: IoCurve) -> tuple[CostFactors, dict[str, float]]:
        """Return the factors that explain the runs best, and how well they do."""
        scan, scan_deviation = _steps(_calm(self._scan), "scan", self._rows_scanned)
        index, index_deviation = _steps(_calm(self._index), "index", _tuples)
        front, front_deviation = _front_costs(_calm(self._front), "front")
        pinned, pinned_deviation = _front_costs(_calm(self._pinned or self._front), "pinned")
        resident_s = front[-1].look_up_s + front[-1].hit_s + index[-1].read_s
        io = io.times(self._io_scale(io))
        factors = CostFactors(io, scan, index, front, pinned, resident_s)
        deviation = {**scan_deviation, **index_deviation, **front_deviation, **pinned_deviation}
        runs = [*self._scan, *self._index, *self._front, *self._pinned]
        return factors, {"rounds": _spread(runs), **deviation}

    def _io_scale(self, io: IoCurve) -> float:
        """Return what reading took in the runs, as a multiple of what the requests alone cost."""
        demand = Demand.zipf(0.0, max(1, self._layout.row_count))
        conditions = Conditions(self._layout, demand, CostFactors(io), POLICY)
        scales = []
        for run in _calm(self._scan) + _calm(self._index):
            predicted = MODELS[run.algorithm].predict(conditions, run.settings, 0)
            took = run.measured.seconds("io") / max(1, _loops(run.measured))
            if predicted.io_s > 0 and took > 0:
                scales.append(took / predicted.io_s)
        return float(np.median(scales)) if scales else 1.0

    def _run(
        self,
        algorithm: str,
        budget_bytes: int,
        exponent: float,
        split: Split,
        into: "list[_Run]",
    ) -> int:
        """Run a join for a moment, keep what was measured, and return its b."""
        relation, spec = self._relation, self._spec
        shared = (self._partition, split, self._memory.opened)
        operator = make_operator(algorithm, relation, spec, budget_bytes, *shared)
        spell = Spell(2, 2, most_s=0.15 if self._brief else 0.25)
        try:
            measured = measure_service(
                operator, self._page_count, self._stream(exponent), perf_counter, spell
            )
        except BudgetError:
            return 1  # too small for this algorithm: the others will tell
        plan = operator.plan
        assert plan is not None, "a join that has served tuples has split its budget"
        rows = plan.settings.places
        if algorithm == "chybridjoin":
            rows = plan.cached_rows
        elif algorithm == "xhybridjoin":
            rows = int(plan.settings.pinned_pages * self._rows_per_page)
        if rows and measured.tuples:
            # Runs with one budget count as one size, whatever their disk buffers leave.
            same = [run.rows for run in into if run.budget_bytes == budget_bytes]
            rows = same[0] if same else rows
            into.append(_Run(algorithm, rows, budget_bytes, plan.settings, measured))
        del operator
        return_free_memory()  # the next run, or the reads that are timed, use it again
        return int(plan.settings.pages_per_read)

    def _stream(self, exponent: float) -> Iterator[pa.RecordBatch]:
        """Yield stream tuples without end: keys of R, and any values beside them."""
        rng = np.random.default_rng(_SEED)
        schema, keys, rows = self._spec.stream_schema, self._keys, self._memory.stream_rows
        others = {
            i: _any_values(field, rows)
            for i, field in enumerate(schema)
            if i not in self._spec.stream_key_indexes
        }
        key_at = {i: n for n, i in enumerate(self._spec.stream_key_indexes)}
        while True:
            picks = zipf_ranks(rng, rows, len(keys[0]), exponent) - 1
            columns = [
                take_rows(keys[key_at[i]], picks).cast(field.type) if i in key_at else others[i]
                for i, field in enumerate(schema)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _rows_scanned(self, run: ServiceRate) -> float:
        return run.counted("pages_scanned") * self._rows_per_page


@dataclass(frozen=True, slots=True)
class _Run:
    """One join that was run for a moment."""

    algorithm: str
    rows: int  # in its window or cache
    budget_bytes: int
    settings: Settings
    measured: ServiceRate

    @property
    def tuple_s(self) -> float:
        """What a tuple took, the time outside of the join left out."""
        return 1 / self.measured.own_rate


def _rounds_of(runs: list[_Run]) -> list[list[_Run]]:
    """Return the runs that were made in the same way, together."""
    alike: dict[object, list[_Run]] = {}
    for run in runs:
        key = (run.algorithm, run.budget_bytes, run.settings.pages_per_read)
        alike.setdefault(key, []).append(run)
    return list(alike.values())


def _calm(runs: list[_Run]) -> list[_Run]:
    """Return the fastest round of each: what disturbs a run only ever makes it slower."""
    return [min(rounds, key=lambda run: run.tuple_s) for rounds in _rounds_of(runs)]


def _spread(runs: list[_Run]) -> float:
    """Return by how much rounds of a run typically differ from each other; 0 if there is one."""
    times = [[run.tuple_s for run in rounds] for rounds in _rounds_of(runs)]
    return float(np.median([np.std(t) / np.mean(t) for t in times])) if times else 0.0


def _steps(
    runs: list[_Run], family: str, probes: Callable[[ServiceRate], float]
) -> tuple[tuple[StepCosts, ...], dict[str, float]]:
    if not runs:
        return (StepCosts(1),), {}
    often = {
        "read": _tuples,
        "append": _tuples,
        "expire": _tuples,
        "probe": probes,
        "output": lambda run: run.counted("matched_pairs"),
    }
    fits = {step: _fit(runs, step, count) for step, count in often.items()}
    loops = fits["probe"].each_loop_s + fits["output"].each_loop_s
    entries = sum(fits[step].each_loop_s for step in ("read", "append", "expire"))
    rest = [r.measured.seconds("loop") / max(1, _loops(r.measured)) for r in runs]
    points = tuple(
        StepCosts(
            size,
            **{f"{step}_s": fit.at[size] for step, fit in fits.items()},
            loop_s=loops + float(np.median(rest)),
            entry_s=entries,
        )
        for size in sorted({run.rows for run in runs})
    )
    return points, {f"{family} {step}": fit.deviation for step, fit in fits.items()}


@dataclass(frozen=True, slots=True)
class _Fit:
    """What a step costs each time, by size of the window, and each loop on top."""

    at: dict[int, float]
    each_loop_s: float
    deviation: float


def _fit(runs: list[_Run], step: str, count: Callable[[ServiceRate], float]) -> _Fit:
    """Fit seconds = c(size)·count + c_0·loops over the runs, by the least relative deviations."""
    sizes = sorted({run.rows for run in runs})
    matrix = np.zeros((len(runs), len(sizes) + 1))
    seconds = np.zeros(len(runs))
    for i, run in enumerate(runs):
        matrix[i, sizes.index(run.rows)] = count(run.measured)
        matrix[i, -1] = _loops(run.measured)
        seconds[i] = run.measured.seconds(step)
    usable = (seconds > 0) & (matrix[:, :-1].sum(axis=1) > 0)
    if not usable.any():
        return _Fit(dict.fromkeys(sizes, 0.0), 0.0, 0.0)
    matrix, seconds = matrix[usable], seconds[usable]
    scaled = matrix / seconds[:, None]
    columns = np.arange(matrix.shape[1])
    if len(seconds) <= len(sizes):
        columns = columns[:-1]  # nothing tells loops from tuples: all counts as tuples
    costs = np.zeros(matrix.shape[1])
    solved = np.linalg.lstsq(scaled[:, columns], np.ones(len(seconds)), rcond=None)[0]
    if (solved < 0).any():
        columns = columns[: len(sizes)]
        solved = np.linalg.lstsq(scaled[:, columns], np.ones(len(seconds)), rcond=None)[0]
    costs[columns] = np.maximum(0.0, solved)
    deviation = float(np.sqrt(np.mean((scaled @ costs - 1) ** 2)))
    known = [c for c in costs[:-1] if c > 0] or [0.0]
    at = {size: float(c or known[0]) for size, c in zip(sizes, costs[:-1], strict=True)}
    return _Fit(at, float(costs[-1]), deviation)


def _front_costs(runs: list[_Run], family: str) -> tuple[tuple[FrontCosts, ...], dict[str, float]]:
    if not runs:
        return (FrontCosts(1),), {}

    def hits(run: ServiceRate) -> float:
        return run.counted("front_hits")

    look_up = _fit(runs, "look_up", _tuples)
    hit = _fit(runs, "hit", hits)
    learn = _fit(runs, "learn", lambda run: run.tuples - hits(run))
    points = tuple(
        FrontCosts(size, look_up.at[size], hit.at[size], learn.at[size])
        for size in sorted({run.rows for run in runs})
    )
    fits = {"look-up": look_up, "hit": hit, "learn": learn}
    return points, {f"{family} {step}": fit.deviation for step, fit in fits.items()}


def _tuples(run: ServiceRate) -> float:
    return run.tuples


def _loops(run: ServiceRate) -> int:
    return run.counted("iterations")


def make_columns(relation: Relation, spec: JoinSpec) -> Sequence[str]:
    """Return the columns whose reading is timed."""
    return list(spec.columns) or list(relation.key)


def reader_of_keys(relation: Relation, partition: int | None) -> PageReader:
    """Return a reader of the key columns."""
    return relation.reader(list(relation.key), partition)


def _sample_keys(reader: PageReader, key: Sequence[str], wanted: int) -> list[pa.Array]:
    """Return the key columns of about so many rows, some from each page or from many of them."""
    rng = np.random.default_rng(_SEED)
    count = min(reader.page_count, _SAMPLED_PAGES)
    pages = np.sort(rng.choice(reader.page_count, count, replace=False))
    per_page = -(-wanted // max(1, count))
    disk = DiskBuffer(reader, key, 1, False, Stopwatch())
    found: list[list[pa.Array]] = []
    for page in pages.tolist():
        disk.load(page, page + 1)
        rows = rng.permutation(len(disk.codes))[:per_page]
        found.append(disk.locate(np.sort(rows)).gather())
    reader.close()
    columns = [concatenate(column) for column in zip(*found, strict=True)]
    order = rng.permutation(len(columns[0]))
    return [take_rows(column, order) for column in columns]


def _any_values(field: pa.Field, count: int) -> pa.Array:
    """Return values of a type; only their size matters."""
    numbers = np.arange(97)
    each = pa.array(np.arange(count) % len(numbers))
    for values in (pa.array(numbers), pa.array([f"value {n:010d}" for n in numbers.tolist()])):
        try:
            return values.cast(field.type).take(each)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    return pa.nulls(count, field.type)


def _io_curve(memory: _Memory, columns: Sequence[str]) -> tuple[IoCurve, float]:
    """Time requests of several sizes, anywhere in R, that fit the memory."""
    rng = np.random.default_rng(_SEED)
    reader = memory.opened.reader
    schema = reader.manifest.schema
    indexes = [schema.get_field_index(name) for name in columns]
    stored = [i for i in indexes if i in reader.manifest.stored_fields]
    parts = [n for i in stored for n in part_names(i, schema.field(i).type).values()]
    parts = [name for name in [CODES, *parts] if reader.part_bytes(name, 0, reader.page_count)]
    sizes: list[float] = []
    seconds: list[float] = []
    spreads: list[float] = []
    counts = sorted({min(pages, reader.page_count) for pages in _READ_PAGES})
    for pages in counts:
        size = max(reader.most_part_bytes(name, pages) for name in parts)
        if sizes and size > memory.opened.ledger.available_bytes:
            break
        buffer = np.empty(size, np.uint8)
        took, read = _timed_reads(reader, parts, pages, buffer, rng)
        sizes.append(float(np.mean(read)))
        seconds.append(float(np.median(took)))
        spreads.append(float(np.subtract(*np.percentile(took, [75, 25])) / np.median(took) / 2))
    reader.close()
    if len(sizes) == 1:
        sizes, seconds = [0.0, *sizes], [seconds[0] * 0.9, *seconds]
    rising = np.maximum.accumulate(seconds)
    return IoCurve(tuple(sizes), tuple(rising.tolist())), float(np.median(spreads))


def _timed_reads(
    reader: PageReader,
    parts: list[str],
    pages: int,
    buffer: NDArray[np.uint8],
    rng: np.random.Generator,
) -> tuple[list[float], list[int]]:
    took, read = [], []
    for i in range(_READS):
        name = parts[i % len(parts)]
        first = int(rng.integers(0, reader.page_count - pages + 1))
        for _ in range(2):  # the first time, checksums are compared as well: once per process
            started = perf_counter()
            size = reader.read_part(name, first, first + pages, buffer)
            seconds = perf_counter() - started
        took.append(seconds)
        read.append(size)
    return took, read
