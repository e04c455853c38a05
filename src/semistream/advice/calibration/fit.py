"""The fit: what each step of a join costs, from the runs of a calibration."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from semistream.advice.calibration.runs import Run, Runs
from semistream.advice.measure import ServiceRate
from semistream.cost.conditions import Conditions, planned_io
from semistream.cost.defaults import REQUESTS
from semistream.cost.demand import Demand
from semistream.cost.factors import CostFactors, FrontCosts, IoCurve, RequestCosts, StepCosts
from semistream.cost.models import MODELS
from semistream.joins.frontstage import POLICY

_Count: TypeAlias = Callable[[ServiceRate], float]  # how often a step was done


def fit(runs: Runs, io: IoCurve) -> tuple[CostFactors, dict[str, float]]:
    """Return the factors that explain the runs best, and how far the runs are from them."""

    def rows_scanned(service: ServiceRate) -> float:
        return service.counted("pages_scanned") * runs.layout.rows_per_page

    scan, scan_deviation = _steps(_fastest(runs.scan), "scan", rows_scanned)
    index, index_deviation = _steps(_fastest(runs.index), "index", _tuples)
    look_up, look_up_deviation = _steps(_fastest(runs.look_up), "look-up", _tuples, _tuples)
    front, front_deviation = _front_costs(_fastest(runs.front), "front")
    pinned, pinned_deviation = _front_costs(_fastest(runs.pinned or runs.front), "pinned")
    resident_s = front[-1].look_up_s + front[-1].hit_s + index[-1].read_s
    io = io.times(_io_scale(runs, io))
    requests, requests_deviation = _requests(runs)
    factors = CostFactors(io, scan, index, front, pinned, resident_s, look_up, requests)
    spread = _spread([*runs.scan, *runs.index, *runs.look_up, *runs.front, *runs.pinned])
    deviation = {"rounds": spread, "requests": requests_deviation}
    by_step = (scan_deviation, index_deviation, look_up_deviation)
    for known in (*by_step, front_deviation, pinned_deviation):
        deviation |= known
    return factors, deviation


def _requests(runs: Runs) -> tuple[RequestCosts, float]:
    """Return the cost of a request and of a byte of the read plan, from its time in look-ups.

    Dense ones make few large requests and sparse ones many small ones.
    """
    gap_bytes = float(runs.opened.reader.most_gap_bytes)
    amounts, seconds = [], []
    for run in _fastest(runs.look_up):
        service, settings = run.service, run.measured.settings
        pages = service.counted("pages_scanned") / service.loops
        pieces = max(1.0, service.counted("matched_pairs") / service.loops / settings.output_rows)
        # If a request costs as much as a gap's bytes and a byte 1, the cost counts both.
        counted = RequestCosts(gap_bytes, 1.0)
        about = (pages, settings.pages_per_read, pieces)
        cost, read_bytes = planned_io(runs.layout, counted, *about)
        if service.seconds("io") > 0:
            amounts.append(((cost - read_bytes) / gap_bytes, read_bytes))
            seconds.append(service.seconds("io") / service.loops)
    if not seconds:
        return RequestCosts(), 0.0
    return _request_costs(np.array(amounts), np.array(seconds))


def _request_costs(
    amounts: NDArray[np.float64], seconds: NDArray[np.float64]
) -> tuple[RequestCosts, float]:
    """Fit seconds = c_request·requests + c_byte·bytes, by the least relative deviations."""
    scaled, ones = amounts / seconds[:, None], np.ones(len(seconds))
    costs = np.linalg.lstsq(scaled, ones, rcond=None)[0]
    if (costs <= 0).any() or len(seconds) < 2:
        # They cannot be told apart: half of the time is that of bytes.
        costs = 0.5 / np.maximum(scaled.mean(axis=0), 1e-300)
    deviation = float(np.sqrt(np.mean((scaled @ costs - 1) ** 2)))
    fitted = replace(REQUESTS, request_s=float(costs[0]), byte_s=float(costs[1]))
    return fitted, deviation


def _io_scale(runs: Runs, io: IoCurve) -> float:
    """Return the time of reading in the runs, as a multiple of what the requests alone cost."""
    demand = Demand.zipf(0.0, max(1, runs.layout.row_count))
    factors = CostFactors(io, requests=REQUESTS)
    conditions = Conditions(runs.layout, demand, factors, POLICY)
    scales = []
    for run in _fastest(runs.scan) + _fastest(runs.index):
        predicted = MODELS[run.algorithm].predict(conditions, run.measured.settings, 0)
        took = run.service.seconds("io") / run.service.loops
        if predicted.io_s > 0 and took > 0:
            scales.append(took / predicted.io_s)
    return float(np.median(scales)) if scales else 1.0


def _rounds_of(runs: list[Run]) -> list[list[Run]]:
    """Return the runs that were made in the same way, together."""
    alike: dict[object, list[Run]] = {}
    for run in runs:
        settings = run.measured.settings
        key = (run.algorithm, run.budget_bytes, settings.pages_per_read, settings.places)
        alike.setdefault(key, []).append(run)
    return list(alike.values())


def _fastest(runs: list[Run]) -> list[Run]:
    """Return the fastest round of each: a disturbance only ever makes a run slower."""
    return [min(rounds, key=lambda run: run.tuple_s) for rounds in _rounds_of(runs)]


def _spread(runs: list[Run]) -> float:
    """Return by how much rounds of a run typically differ from each other; 0 if there is one."""
    times = [[run.tuple_s for run in rounds] for rounds in _rounds_of(runs)]
    return float(np.median([np.std(t) / np.mean(t) for t in times])) if times else 0.0


def _steps(
    runs: list[Run],
    family: str,
    probes: _Count,
    rests: _Count | None = None,
) -> tuple[tuple[StepCosts, ...], dict[str, float]]:
    """Return the costs of the steps, by size of the window.

    What remains of a loop's time is the same for each, or grows with what `rests` counts: then that
    is part of the probe.
    """
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
    rest = _Fit.of_loops(runs) if rests is None else _fit(runs, "loop", rests)
    fits["probe"] = fits["probe"].plus(rest)
    points = tuple(
        StepCosts(
            size,
            **{f"{step}_s": fit.at[size] for step, fit in fits.items()},
            loop_s=loops + rest.each_loop_s,
            entry_s=entries,
        )
        for size in sorted({run.rows for run in runs})
    )
    return points, {f"{family} {step}": fit.deviation for step, fit in fits.items()}


@dataclass(frozen=True, slots=True)
class _Fit:
    """The cost of a step: each time, by size of the window or cache, and each loop on top."""

    at: dict[int, float]  # seconds each time, by rows
    each_loop_s: float
    deviation: float  # of the runs from the fit, relative

    @classmethod
    def of_loops(cls, runs: list[Run]) -> "_Fit":
        """Return the time that is no step's, as the same for each loop."""
        rest = [run.service.seconds("loop") / run.service.loops for run in runs]
        return cls({run.rows: 0.0 for run in runs}, float(np.median(rest)), 0.0)

    def plus(self, other: "_Fit") -> "_Fit":
        """Return this with another step's seconds each time on top."""
        at = {size: seconds + other.at[size] for size, seconds in self.at.items()}
        return _Fit(at, self.each_loop_s, self.deviation)


def _fit(runs: list[Run], step: str, count: _Count) -> _Fit:
    """Fit seconds = c(size)·count + c_0·loops over the runs, by the least relative deviations."""
    sizes = sorted({run.rows for run in runs})
    matrix = np.zeros((len(runs), len(sizes) + 1))
    seconds = np.zeros(len(runs))
    for i, run in enumerate(runs):
        matrix[i, sizes.index(run.rows)] = count(run.service)
        matrix[i, -1] = run.service.counted("iterations")
        seconds[i] = run.service.seconds(step)
    usable = (seconds > 0) & (matrix[:, :-1].sum(axis=1) > 0)
    if not usable.any():
        return _Fit(dict.fromkeys(sizes, 0.0), 0.0, 0.0)
    matrix, seconds = matrix[usable], seconds[usable]
    scaled = matrix / seconds[:, None]
    columns = np.arange(matrix.shape[1])
    if len(seconds) <= len(sizes):
        columns = columns[:-1]  # loops and tuples cannot be told apart: all counts as tuples
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


def _front_costs(runs: list[Run], family: str) -> tuple[tuple[FrontCosts, ...], dict[str, float]]:
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
