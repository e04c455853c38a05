"""The fit: what each step of a join costs, from the runs of a calibration."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np

from semistream.advice.calibration.runs import Run, Runs
from semistream.advice.measure import ServiceRate
from semistream.cost.conditions import Conditions
from semistream.cost.demand import Demand
from semistream.cost.factors import (
    CostFactors,
    FrontCosts,
    IoCurve,
    RequestCosts,
    StepCosts,
    at_size,
)
from semistream.cost.models import MODELS
from semistream.joins.frontstage import POLICY


def fit(runs: Runs, io: IoCurve) -> tuple[CostFactors, dict[str, float]]:
    """Return the factors that explain the runs best, and how far the runs are from them."""

    def rows_scanned(service: ServiceRate) -> float:
        return service.counted("pages_scanned") * runs.layout.rows_per_page

    scan, scan_deviation = _steps(_fastest(runs.scan), "scan", rows_scanned)
    index, index_deviation = _steps(_fastest(runs.index), "index", _tuples)
    front, front_deviation = _front_costs(_fastest(runs.front), "front")
    pinned, pinned_deviation = _front_costs(_fastest(runs.pinned or runs.front), "pinned")
    resident_s = front[-1].look_up_s + front[-1].hit_s + index[-1].read_s
    io = io.times(_io_scale(runs, io))
    factors = CostFactors(io, scan, index, front, pinned, resident_s)
    factors = _with_look_ups(factors, runs.shipped)
    deviation = {**scan_deviation, **index_deviation, **front_deviation, **pinned_deviation}
    spread = _spread([*runs.scan, *runs.index, *runs.front, *runs.pinned])
    return factors, {"rounds": spread, **deviation}


def _with_look_ups(factors: CostFactors, shipped: CostFactors) -> CostFactors:
    """Return factors with the shipped costs of look-ups, by how fast this machine is otherwise."""
    ours, theirs = (at_size(f.index, shipped.index[0].rows).tuple_s for f in (factors, shipped))
    scale = ours / theirs
    steps = tuple(
        replace(
            step,
            **{f.name: scale * getattr(step, f.name) for f in fields(step) if f.name != "rows"},
        )
        for step in shipped.look_up
    )
    requests = RequestCosts(scale * shipped.requests.request_s, scale * shipped.requests.byte_s)
    return replace(factors, look_up=steps, requests=requests)


def _io_scale(runs: Runs, io: IoCurve) -> float:
    """Return the time of reading in the runs, as a multiple of what the requests alone cost."""
    demand = Demand.zipf(0.0, max(1, runs.layout.row_count))
    factors = CostFactors(io, requests=runs.shipped.requests)
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
        key = (run.algorithm, run.budget_bytes, run.measured.settings.pages_per_read)
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
    runs: list[Run], family: str, probes: Callable[[ServiceRate], float]
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
    rest = [r.service.seconds("loop") / r.service.loops for r in runs]
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
    """The cost of a step: each time, by size of the window or cache, and each loop on top."""

    at: dict[int, float]  # seconds each time, by rows
    each_loop_s: float
    deviation: float  # of the runs from the fit, relative


def _fit(runs: list[Run], step: str, count: Callable[[ServiceRate], float]) -> _Fit:
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
