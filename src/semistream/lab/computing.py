"""Computing charged: what a join costs besides its reads, by measured cost factors.

On an emulated device's clock computing takes no time. Here the counted steps of a run, at full
size, are charged at the factors that the product ships (`cost/defaults.py`), which were measured on
one core of a server of 2026. They do not depend on the skew of the stream, but MESHJOIN's probes
do: many stream tuples of one key are a long chain. `SKEW_COST` is the cost of a tuple of MESHJOIN,
relative to a uniform stream, as `semistream lab computing` measured it on such a machine.

With `times` the same steps cost as many times more. The first paper's machine of 2007 needed about
12 µs for a tuple (`meshjoin.symbols_of_2007`), some 150 times as much.
"""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from semistream.advice.measure import Measured
from semistream.cost.defaults import default_factors
from semistream.cost.factors import at_size
from semistream.joins.registry import ALGORITHMS
from semistream.lab.rig import REAL, Rig
from semistream.workload.miniature import Miniature
from semistream.workload.synthetic import Synthetic

OF_2007 = 150.0
EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0)
SKEW_COST = (1.0, 1.0, 1.0, 1.0, 1.0)
_STREAM_COLUMNS, _ADDED_COLUMNS = 3, 1
_ROUNDS = 3


def computing_s(rig: Rig, algorithm: str, measured: Measured) -> float:
    """Return the computing time of a tuple, on average, at full size."""
    factors, record, run = (
        default_factors(_STREAM_COLUMNS, _ADDED_COLUMNS),
        ALGORITHMS[algorithm],
        measured.service,
    )
    is_scan = record.family == "scan"
    steps = factors.scan if is_scan else factors.index
    step = at_size(steps, measured.settings.places * rig.times)
    hits = run.counted("front_hits")
    waited = run.tuples - hits
    probes = waited
    if is_scan:
        probes = round(run.counted("pages_scanned") * rig.relation.row_count / rig.page_count)
    seconds = waited * (step.tuple_s + step.output_s) + probes * step.probe_s
    seconds += run.loops * (step.loop_s + step.entry_s) / rig.times
    if is_scan:
        seconds *= skew_cost(rig)
    if record.has_front:
        front = at_size(factors.front, measured.cached_rows * rig.times)
        seconds += run.tuples * front.look_up_s + hits * front.hit_s + waited * front.learn_s
    return seconds / run.tuples


def rate_with_computing(rig: Rig, algorithm: str, measured: Measured, times: float = 1.0) -> float:
    """Return a rate with computing charged, on a machine that is `times` slower."""
    return 1 / (1 / measured.rate + times * computing_s(rig, algorithm, measured))


def skew_cost(rig: Rig) -> float:
    """Return the cost of a tuple of MESHJOIN relative to a uniform stream."""
    exponent = rig.workload.exponent if isinstance(rig.workload, Synthetic) else 0.0
    return float(np.interp(exponent, EXPONENTS, SKEW_COST))


def measure_skew_cost(rows: int = 500_000, share: float = 0.1) -> list[float]:
    """Measure `SKEW_COST` on this machine: MESHJOIN's computing, the best of some rounds each."""
    with TemporaryDirectory(prefix="semistream-lab-") as folder:
        workload = Miniature(rows, times=200.0)
        built = Rig.build(Path(folder) / "r.rel", workload, REAL, 1.0, 120, 32_768)
        memory = share * rows * 120
        least = [float("inf")] * len(EXPONENTS)
        for _ in range(_ROUNDS):
            for i, exponent in enumerate(EXPONENTS):
                stream = replace(workload, exponent=exponent)
                rig = Rig(built.relation, stream, REAL, 1.0, 120)
                run = rig.measure("meshjoin", memory).service
                own_s = run.elapsed_s - run.seconds("outside", "io")
                least[i] = min(least[i], own_s / run.tuples)
        return [cost / least[0] for cost in least]
