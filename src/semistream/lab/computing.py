"""Computing charged: what a join costs besides its reads, by measured cost factors.

On an emulated device's clock computing takes no time. Here the counted steps of a run, at full
size, are charged at the factors that the product ships (`cost/defaults.py`), which were measured on
one core of a server of 2026. They do not depend on the skew of the stream, but MESHJOIN's probes
do: many stream tuples of one key are a long chain. `SKEW_COST` is the cost of a tuple of MESHJOIN,
relative to a uniform stream, from the benchmark in docs/algorithms/figures.md: 4.50M tuples/s with
uniform keys and 4.33M with Zipf 1, in 5 % of R. `semistream lab computing` measures it anew; that
needs a quiet machine.

With `times` the same steps cost as many times more. The first paper's machine of 2007 needed about
12 µs for a tuple (`meshjoin_model.symbols_of_2007`), some 150 times as much.
"""

from dataclasses import replace
from itertools import cycle
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import cast

import numpy as np

from semistream.advice.measure import Measured, Period, measure_service
from semistream.cost.defaults import default_factors
from semistream.cost.factors import at_size
from semistream.joins.registry import ALGORITHMS, make_operator
from semistream.lab.rig import REAL, Rig
from semistream.relation.device import Reading
from semistream.workload.miniature import Miniature
from semistream.workload.synthetic import Synthetic

OF_2007 = 150.0
EXPONENTS = (0.0, 1.0)  # straight in between
SKEW_COST = (1.0, 1.04)
_STREAM_COLUMNS, _ADDED_COLUMNS = 3, 1
_ROUNDS = 3
_BATCH_ROWS, _BATCHES = 8_192, 64
_FULL_SIZE = 1e8  # rows of R in CMESHJOIN's paper


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


def measure_skew_cost(rows: int = 300_000, share: float = 0.1) -> list[float]:
    """Measure `SKEW_COST` on this machine: MESHJOIN's CPU time, the best of some rounds each.

    R is in the page cache and the stream is drawn beforehand, so both cost the same at any skew.
    """
    with TemporaryDirectory(prefix="semistream-lab-") as folder:
        workload = Miniature(rows, times=_FULL_SIZE / rows)
        rig = Rig.build(Path(folder) / "r.rel", workload, REAL, 1.0, 120, 32_768)
        least = [inf] * len(EXPONENTS)
        for _ in range(_ROUNDS):
            for i, exponent in enumerate(EXPONENTS):
                least[i] = min(least[i], _cpu_s(rig, exponent, share))
        return [cost / least[0] for cost in least]


def _cpu_s(rig: Rig, exponent: float, share: float) -> float:
    """Return the CPU time of a tuple of MESHJOIN."""
    stream = replace(cast("Miniature", rig.workload), exponent=exponent)
    batches = [stream.stream_rows(i * _BATCH_ROWS, _BATCH_ROWS) for i in range(_BATCHES)]
    relation = rig.relation.read_by(Reading())
    join = make_operator("meshjoin", relation, rig.spec, int(share * rig.size_bytes))
    run = measure_service(join, rig.page_count, cycle(batches), process_time, Period(1.5, 1.5))
    return run.elapsed_s / run.tuples
