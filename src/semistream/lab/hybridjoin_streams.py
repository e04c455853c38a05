"""HYBRIDJOIN's experiments with arrivals: figures 10(a) to (d) on its bursty stream, and more.

Figures 10(c) and 10(d) show what the joins serve of bursts whose mean rate is half as high again as
the faster of MESHJOIN and HYBRIDJOIN can serve: in a burst both fall behind, in a long lull they
may run dry. At a lower rate the lulls would cost only the faster one. INLJ is far behind such a
stream, so its rate is the one at which it always finds tuples.
"""

from collections.abc import Sequence
from functools import partial
from math import ceil

from semistream.budget.split import Split
from semistream.lab.canvas import Canvas
from semistream.lab.charts import Lines
from semistream.lab.claims import Row, Table
from semistream.lab.common import MB, rate_row
from semistream.lab.computing import rate_with_computing
from semistream.lab.figures import ONE_COST_DISK, Lab, Point
from semistream.lab.findings import hybridjoin as findings
from semistream.lab.flows import Flow
from semistream.lab.latency import on_bursts, on_flow, scales
from semistream.lab.rig import Rig
from semistream.workload.miniature import Miniature

_TIMES = 20
_PAGE_BYTES = 4_096
ROWS = 2_000_000
SIZES = (0.5e6, 1e6, 2e6, 4e6, 8e6)
BUDGETS_MB = (50.0, 100.0, 150.0, 200.0, 250.0)
MEMORY = 50 * MB
SEEKS_MS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
SEEK_SIZES = (0.5e6, 2e6, 8e6)
PAUSES_S = (0.0, 10.0, 60.0, 300.0)
_SECONDS = 20.0  # of a run at a low rate
_OFFERED = 1.5  # arrivals, of what the faster join can serve
_STEPS = 2048  # of the generator in a run at the highest rate
_SHORT_S, _BURST_RATE = 10.0, 1000.0  # how long tuples arrive between pauses, and how many a second


def skewed(lab: Lab, rows: float = ROWS, exponent: float = 1.0, device: str = ONE_COST_DISK) -> Rig:
    """Return the rig of table 2: R sorted by how often the stream requests a row."""

    def make(times: float) -> Miniature:
        return Miniature(int(rows / times), exponent, by_frequency=True, seed=lab.seed, times=times)

    # At full size, pages that are as large as those of the miniature stand for.
    page_bytes = _PAGE_BYTES * (_TIMES if lab.scale.is_full else 1)
    return lab.rig(make, lab.times(_TIMES), page_bytes=page_bytes, device=device)


def processing_points(lab: Lab) -> Sequence[Point]:
    """Return figure 10(a): processing times by size of R."""

    def row(rows: float, line: str) -> Row:
        rig, rate = skewed(lab, rows), findings.AT_RATES.get(line, 125.0)
        algorithm = "meshjoin" if line == "meshjoin" else "hybridjoin"
        split = rig.tuned(algorithm, MEMORY).split
        split = Split(1) if line == findings.ONE_PAGE else split
        served = on_bursts(
            rig, algorithm, MEMORY, split, rate, _run_s(rig, algorithm, rate), lab.seed
        )
        return {"rows_millions": rows / 1e6, "algorithm": line, "seconds": served.processing_s}

    names = ("meshjoin", *findings.AT_RATES, findings.ONE_PAGE)
    return [partial(row, size, name) for name in names for size in SIZES]


def waiting_points(lab: Lab) -> Sequence[Point]:
    """Return figure 10(b): waiting times by arrival rate, with processing times beside them."""

    def row(rate: float, algorithm: str) -> Row:
        rig = skewed(lab)
        split = rig.tuned(algorithm, MEMORY).split
        seconds = _run_s(rig, algorithm, rate)
        served = on_bursts(rig, algorithm, MEMORY, split, rate, seconds, lab.seed)
        return {
            "arrivals_per_s": rate,
            "algorithm": algorithm,
            "seconds": served.waiting_s,
            "processing_s": served.processing_s,
        }

    names = ("meshjoin", "hybridjoin", "inlj")
    return [partial(row, rate, name) for name in names for rate in findings.RATES]


def _run_s(rig: Rig, algorithm: str, rate: float) -> float:
    """Return a run's length: MESHJOIN's window has to fill, and to be replaced once."""
    if not scales(algorithm):
        return _SECONDS
    return 2 * rig.tuned(algorithm, MEMORY).settings.places * rig.times / rate


def size_points(lab: Lab) -> Sequence[Point]:
    """Return figure 10(c): rates on bursts by size of R."""

    def rows(size: float, algorithm: str) -> list[Row]:
        rig = skewed(lab, size)
        return _rate_on_bursts(lab, rig, algorithm, MEMORY, rows_millions=size / 1e6)

    return [partial(rows, size, name) for name in findings.LINES for size in SIZES]


def memory_points(lab: Lab) -> Sequence[Point]:
    """Return figure 10(d): rates on bursts by memory."""

    def rows(memory: float, algorithm: str) -> list[Row]:
        return _rate_on_bursts(lab, skewed(lab), algorithm, memory * MB, memory_mb=memory)

    return [partial(rows, memory, name) for name in findings.LINES for memory in BUDGETS_MB]


def _rate_on_bursts(lab: Lab, rig: Rig, line: str, memory: float, **labels: float) -> list[Row]:
    """Return what a join serves of bursts that are too many for both on average."""
    if line == "inlj":
        return rate_row(rig, line, memory, **labels)
    algorithm = line.removesuffix(findings.COMPUTING)
    rivals = [rig.tuned(name, memory).prediction.rate for name in ("meshjoin", "hybridjoin")]
    tuned = rig.tuned(algorithm, memory)
    device = rig.device_for(algorithm)
    if device is None or line != algorithm:  # the machine's own device, or computing charged
        measured = rig.measure(algorithm, memory, tuned.split)
        rate = measured.rate if device is None else rate_with_computing(rig, algorithm, measured)
        return [{**labels, "algorithm": line, "tuples_per_s": rate}]
    # Eight cycles of a scan. The longest bursts last half as long, whatever the size of R.
    seconds = 8 * rig.size_bytes / device.bytes_per_s / rig.times
    flow = Flow.bursty(_OFFERED * max(rivals), seconds, lab.seed, seconds / _STEPS)
    served = on_flow(rig, algorithm, memory, tuned.split, flow, device)
    times = {"waiting_s": served.waiting_s, "processing_s": served.processing_s}
    return [{**labels, "algorithm": line, "tuples_per_s": served.rate, **times}]


def seek_points(lab: Lab) -> Sequence[Point]:
    """Return HYBRIDJOIN's rate over MESHJOIN's, which never seeks, by the time of a seek."""

    def row(seek_ms: float, rows: float) -> Row:
        rig = skewed(lab, rows, device=f"hdd-papers:seek={seek_ms:g}ms")
        rates = {n: rig.measure_tuned(n, MEMORY).rate for n in ("hybridjoin", "meshjoin")}
        lead = rates["hybridjoin"] / rates["meshjoin"]
        return {"seek_ms": seek_ms, "rows_millions": rows / 1e6, "lead": lead}

    return [partial(row, seek, size) for size in SEEK_SIZES for seek in SEEKS_MS]


def intermittent_points(lab: Lab) -> Sequence[Point]:
    """Return rates and latencies of a stream that pauses."""

    def row(pause_s: float, algorithm: str) -> Row:
        rig = skewed(lab)
        tuned = rig.tuned(algorithm, MEMORY)
        period_s = _SHORT_S + pause_s
        # A third of the run to fill a scan's window, which an index join does not wait for. Whole
        # periods in each third, or the rate would depend on where a run is cut.
        window = tuned.settings.places * rig.times if scales(algorithm) else 0.0
        periods = 3 * max(1, ceil(window / (_BURST_RATE * _SHORT_S)))
        times = rig.times if scales(algorithm) else 1.0
        seconds = (periods - 0.5) * period_s  # rounded up to whole periods
        flow = Flow.intermittent(_BURST_RATE, _SHORT_S / times, pause_s / times, seconds / times)
        served = on_flow(rig, algorithm, MEMORY, tuned.split, flow)
        return {
            "pause_s": pause_s,
            "algorithm": algorithm,
            "latency_s": served.latency_s,
            "longest_s": served.longest_s,
            "arrivals_per_s": _BURST_RATE * _SHORT_S / period_s,
            "tuples_per_s": served.rate,
            "unresolved": served.unresolved,
        }

    return [partial(row, p, n) for n in ("meshjoin", "hybridjoin") for p in PAUSES_S]


def draw_intermittent(canvas: Canvas, table: Table) -> None:
    """Draw the mean latency, the longest latency and the rate side by side."""
    labels = {
        "latency_s": "mean latency (s), log",
        "longest_s": "longest latency (s), log",
        "tuples_per_s": "results (tuples/s), log",
    }
    for axes, (y, label) in zip(canvas.subplots(1, 3), labels.items(), strict=True):
        x_label = f"pause after {_SHORT_S:g} s of arrivals (s)"
        Lines("pause_s", y, x_label, label, "algorithm", log_y=True).draw(axes, table)
