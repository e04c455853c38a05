"""How good the cost models are: predictions against measurements, choices against the best.

On an emulated device only its clock counts, so everything here can be repeated and asserted. On the
real device the service rate is that of a join alone, the best of several rounds: a disturbance only
ever makes a run slower. The rounds of a run are far apart, with all others in between, and
calibration is done before and after them; the faster of the two counts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from semistream.advice.calibration import Calibration
from semistream.advice.choice import CHOICES, Advisor, Option
from semistream.advice.measure import Harness, Measured, Period
from semistream.advice.situation import layout_of, reader_for
from semistream.budget.rowsizes import Widths
from semistream.budget.split import USUAL, Split
from semistream.cost.conditions import Conditions, Layout
from semistream.cost.demand import Demand
from semistream.cost.factors import CostFactors
from semistream.cost.models import MODELS
from semistream.joins.frontstage import POLICY
from semistream.joins.registry import ALGORITHMS
from semistream.lab.equations import hybridjoin as printed_hybridjoin
from semistream.lab.equations import xhybridjoin as printed_xhybridjoin
from semistream.lab.equations.symbols import Symbols
from semistream.relation.build import build_relation
from semistream.relation.device import EmulatedDevice, Reading
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec, read_columns, resolve
from semistream.workload.synthetic import Synthetic

ADDED = ["c0", "c1"]
SHARES = (0.01, 0.02, 0.05, 0.1)
EXPONENTS = (0.0, 0.5, 1.0, 1.2)
BUFFERS = (0.25, 1.0, 2.0)  # disk buffers, as multiples of the usual one
_FRONT_SHARES = (0.0, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
_PINNED_SHARES = (0.0, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
_DISK_SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)


Key: TypeAlias = tuple[str, float, float, Split]  # algorithm, share, exponent, split


@dataclass(frozen=True, slots=True)
class Point:
    """One setting, what the model says of it and what was measured."""

    algorithm: str
    share: float  # the budget, of R
    exponent: float
    split: Split
    predicted: float
    measured: float
    predicted_hits: float
    measured_hits: float

    @property
    def error(self) -> float:
        """By how much the prediction is off, relative to the measurement."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True)
class Errors:
    """How good the predictions for one algorithm are."""

    algorithm: str
    points: int
    median: float
    within_25: float
    worst: float
    bias: float  # the median with its sign

    @classmethod
    def of(cls, points: Sequence[Point]) -> "Errors":
        """Sum up the points of one algorithm."""
        bias = float(np.median([point.error for point in points]))
        errors = np.abs([point.error for point in points])
        within = float(np.mean(errors <= 0.25))
        worst = float(errors.max())
        name, median = points[0].algorithm, float(np.median(errors))
        return cls(name, len(points), median, within, worst, bias)


@dataclass(frozen=True, slots=True)
class Tuning:
    """A tuned split against the best of a grid that was measured, and against the usual one."""

    algorithm: str
    share: float
    exponent: float
    tuned: float
    usual: float
    best: float


@dataclass(frozen=True, slots=True)
class Choice:
    """What `auto` would choose, against the best of all algorithms."""

    share: float
    exponent: float
    chosen: str
    chosen_rate: float
    best: str
    best_rate: float


@dataclass(frozen=True, slots=True)
class StreamInput:
    """w, the tuples that a loop serves: as printed, corrected, derived, and measured."""

    algorithm: str
    share: float
    exponent: float
    printed: float
    corrected: float
    derived: float
    measured: float


@dataclass
class Bench:
    """A relation, a device and the ways to measure joins on it."""

    relation: Relation
    workload: Synthetic
    device: str | None = None  # emulated; the real one otherwise
    calibration: Calibration | None = None
    warm_cycles: float = 4  # of R, before the clock counts
    cycles: float = 2  # of R, that are measured
    most_tuples: float = 15e6  # for the warm-up, and again for what is measured
    batch_rows: int = 8192  # of the stream
    rounds: int = 1  # of each setting; the best one counts
    times: float = 1.0  # how many times smaller than the real one an emulated device is
    shipped: CostFactors | None = None  # in the place of a calibration
    _known: dict[Key, Measured] = field(default_factory=dict, init=False)  # the best round so far

    @classmethod
    def build(
        cls, folder: Path, rows: int, device: str | None, seed: int = 7, **options: float
    ) -> "Bench":
        """Build the first paper's relation with this number of rows."""
        workload = Synthetic(rows, seed=seed, in_columns=True)
        page_size = "64KiB" if rows >= 300_000 else "8KiB"
        relation = build_relation(
            workload.relation(), folder / "r.rel", key="k", partitions=1, page_size=page_size
        )
        return cls(relation, workload, device, **options)  # type: ignore[arg-type]

    @cached_property
    def spec(self) -> JoinSpec:
        """The join that is measured: two columns are added."""
        schema = self.workload.stream_schema
        return resolve(self.relation, schema, how="inner", columns=ADDED)

    @cached_property
    def layout(self) -> Layout:
        """How R lies on disk."""
        reader = reader_for(self.relation, self.spec)
        return layout_of(reader, read_columns(self.relation, self.spec))

    @cached_property
    def advisor(self) -> Advisor:
        """Ranks the algorithms."""
        return Advisor(self.relation, self.spec, Widths.equal([8, 4, 8]))

    @cached_property
    def factors(self) -> CostFactors:
        """What each step costs: on an emulated device only what it charges."""
        if self.device is not None:
            return CostFactors.of_device(*self.new_device(self.device).costs)
        if self.shipped is not None:
            return self.shipped
        assert self.calibration is not None
        return self.calibration.factors

    def use_faster(self, calibration: Calibration) -> None:
        """Keep the faster of two calibrations."""
        assert self.calibration is not None
        if calibration.tuple_s < self.calibration.tuple_s:
            self.calibration = calibration
            self.__dict__.pop("factors", None)

    def new_device(self, name: str) -> EmulatedDevice:
        """Return an emulated device, as small as the relation."""
        return EmulatedDevice.named(name).shrunk(self.times)

    def conditions(self, exponent: float) -> Conditions:
        """Return what the model assumes."""
        return Conditions(
            self.layout, Demand.zipf(exponent, self.relation.row_count), self.factors, POLICY
        )

    def budget(self, share: float) -> int:
        """Return a budget that is a share of R."""
        return int(self.relation.size_bytes * share)

    def measure(
        self, algorithm: str, share: float, exponent: float, split: Split = USUAL
    ) -> Measured:
        """Return how the budget was split and what was measured."""
        key = (algorithm, share, exponent, split)
        if key not in self._known:
            self._keep_better(key)
        return self._known[key]

    def measure_in_rounds(self, keys: Sequence[Key]) -> Iterator[None]:
        """Measure many settings, round after round, yielding after each; the best will count."""
        for _ in range(self.rounds):
            for key in dict.fromkeys(keys):
                self._keep_better(key)
                yield

    def _keep_better(self, key: Key) -> None:
        measured = self._measure(*key)
        if key not in self._known or measured.rate > self._known[key].rate:
            self._known[key] = measured

    def _measure(self, algorithm: str, share: float, exponent: float, split: Split) -> Measured:
        device = None if self.device is None else self.new_device(self.device)
        if device is not None and ALGORITHMS[algorithm].one_tuple_at_a_time:
            device = EmulatedDevice.named(device.name)  # its rate does not shrink with R
        relation = self.relation.read_by(Reading(device))
        harness = Harness(relation, self.spec, self.layout.page_count, all_match=True)
        stream = self.workload.endless(exponent, self._batch_rows(algorithm))
        # On this machine's own device comparing the values would be a part of what is timed.
        check = None if device is None else self._check
        budget, period = self.budget(share), self._period(algorithm)
        return harness.measure(algorithm, budget, split, stream, period, check)

    @cached_property
    def _added_by_key(self) -> list[pa.Array]:
        """The values that each key must be joined with, by key, column by column."""
        table = self.workload.relation().select(["k", *ADDED]).sort_by("k")
        return [table.column(name).combine_chunks() for name in ADDED]

    def _check(self, batch: pa.RecordBatch) -> None:
        for name, by_key in zip(ADDED, self._added_by_key, strict=True):
            if not batch.column(name).equals(by_key.take(batch.column("k"))):
                raise AssertionError(f"a join gave a tuple another key's {name}")

    def _period(self, algorithm: str) -> Period:
        record = ALGORITHMS[algorithm]
        # A cache must be warm before it is measured.
        times = 3 if record.has_front else 1
        most_s = float("inf") if self.device is not None else 0.6
        most = self.most_tuples
        if record.one_tuple_at_a_time:
            # A cycle of R is a tuple for each page: hundreds of them, and cheap, unless they hit.
            times, most = (400, 10_000) if record.has_front else (1, 1_000)
            most_s = float("inf")
        return Period(times * self.warm_cycles, times * self.cycles, most, times * most_s)

    def _batch_rows(self, algorithm: str) -> int:
        return 256 if ALGORITHMS[algorithm].one_tuple_at_a_time else self.batch_rows

    def point(self, algorithm: str, share: float, exponent: float, split: Split = USUAL) -> Point:
        """Predict and measure."""
        measured = self.measure(algorithm, share, exponent, split)
        predicted = MODELS[algorithm].predict(
            self.conditions(exponent), measured.settings, measured.cached_rows
        )
        return Point(
            algorithm,
            share,
            exponent,
            split,
            predicted.rate,
            measured.rate,
            predicted.hit_ratio,
            measured.service.hit_ratio,
        )

    def tuned(self, algorithm: str, share: float, exponent: float) -> Option:
        """Return an algorithm with its best split by the model."""
        return self.advisor.rank(self.budget(share), self.conditions(exponent), [algorithm])[0]


def settings_of_grid(
    bench: Bench,
    algorithm: str,
    shares: Sequence[float] = SHARES,
    exponents: Sequence[float] = EXPONENTS,
    buffers: Sequence[float] = BUFFERS,
) -> list[Key]:
    """Return a grid of budgets, skews and disk buffers.

    A front stage that observes one tuple at a time (`cinlj`) is warm in reasonable time only with
    the smallest budget.
    """
    keys: list[Key] = []
    record = ALGORITHMS[algorithm]
    warms_slowly = record.has_front and record.one_tuple_at_a_time
    for share in shares[:1] if warms_slowly else shares:
        sizes = bench.advisor.sizes(algorithm)
        usual, _ = MODELS[algorithm].rules.settings(sizes, bench.budget(share), USUAL)
        for times in (1.0,) if record.one_tuple_at_a_time else buffers:
            pages = max(1, round(times * usual.pages_per_read))
            keys += [(algorithm, share, e, Split(pages_per_read=pages)) for e in exponents]
    return keys


def points(bench: Bench, keys: Sequence[Key]) -> list[Point]:
    """Return predictions and measurements."""
    return [bench.point(*key) for key in keys]


def choices_of(bench: Bench, share: float, exponent: float) -> list[Key]:
    """Return each algorithm that `auto` chooses from, at its best split, its choice first."""
    ranked = bench.advisor.rank(bench.budget(share), bench.conditions(exponent), CHOICES)
    tuned = [bench.tuned(option.name, share, exponent) for option in ranked]
    return [(option.name, share, exponent, option.tuned.split) for option in tuned]


def choice(keys: Sequence[Key], bench: Bench) -> Choice:
    """Compare the choice of `auto`, the first, with every other algorithm."""
    rates = {key[0]: bench.measure(*key).rate for key in keys}
    best = max(rates, key=lambda name: rates[name])
    chosen, share, exponent, _ = keys[0]
    return Choice(share, exponent, chosen, rates[chosen], best, rates[best])


def tuning(bench: Bench, algorithm: str, share: float, exponent: float) -> Tuning:
    """Measure the tuned split, the usual one and a whole grid of others."""
    option = bench.tuned(algorithm, share, exponent)
    tuned = bench.measure(algorithm, share, exponent, option.tuned.split).rate
    usual = bench.measure(algorithm, share, exponent).rate
    grid = [
        bench.measure(algorithm, share, exponent, split).rate
        for split in _grid(bench, algorithm, share)
    ]
    return Tuning(algorithm, share, exponent, tuned, usual, max(tuned, usual, *grid))


def _grid(bench: Bench, algorithm: str, share: float) -> Iterator[Split]:
    """Yield splits of a budget, coarse but over all of it."""
    model, sizes, budget = MODELS[algorithm], bench.advisor.sizes(algorithm), bench.budget(share)
    page_bytes = sizes.disk_bytes(min(64, sizes.page_count)) / min(64, sizes.page_count)
    fronts: list[int | None] = [None]
    pinned: list[int | None] = [None]
    if model.rules.has_front:
        fronts = [int(budget * s) for s in _FRONT_SHARES]
    if model.rules.pins_pages:
        each = sizes.pinned_bytes(sizes.page_count) / sizes.page_count
        pinned = [int(budget * s / each) for s in _PINNED_SHARES]
    for disk_share in _DISK_SHARES:
        pages = max(1, min(sizes.page_count, int(budget * disk_share / page_bytes)))
        for front in fronts:
            for places in pinned:
                if (front or 0) + disk_share * budget < 0.8 * budget:
                    yield Split(pages, front, places)


def stream_input(bench: Bench, algorithm: str, share: float, exponent: float) -> StreamInput:
    """Compare what a loop serves with the papers' equations 2 (HYBRIDJOIN) and 9 (X-HYBRIDJOIN)."""
    measured = bench.measure(algorithm, share, exponent, Split(oldest_picks=True))
    conditions, layout = bench.conditions(exponent), bench.layout
    settings = measured.settings
    derived = MODELS[algorithm].predict(conditions, settings, 0).tuples_per_loop
    rows = layout.rows_per_page
    d_s = settings.pages_per_read * rows
    if algorithm == "hybridjoin":
        symbols = Symbols(layout.row_count, io_s=lambda b: 0.0, page_bytes=1.0, row_bytes=1.0)
        printed = printed_hybridjoin.stream_input(symbols, settings.places, d_s)
        corrected = printed_hybridjoin.stream_input(symbols, settings.places, d_s, k=-2.0)
    else:
        d_n = settings.pinned_pages * rows
        about = (conditions.demand, settings.places, d_n, d_s)
        printed = printed_xhybridjoin.stream_input_as_printed(*about)
        corrected = printed_xhybridjoin.stream_input_of_means(*about)
    about_run = (algorithm, share, exponent)
    return StreamInput(*about_run, printed, corrected, derived, measured.tuples_per_loop)
