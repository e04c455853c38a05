"""MESHJOIN's two trade-offs, figures 5(a) and 5(b): its equations, and what was measured.

Here are also the rig of the first paper's table 2, and the cost factors of its machine.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from semistream.advice.measure import Measured
from semistream.budget.split import Split
from semistream.lab.canvas import Canvas
from semistream.lab.charts import finish, legend, style_of
from semistream.lab.claims import Finding, Row, Table
from semistream.lab.common import MB
from semistream.lab.equations import meshjoin as printed
from semistream.lab.equations.symbols import Symbols
from semistream.lab.figures import Lab, Point
from semistream.lab.rig import Rig
from semistream.relation.device import EmulatedDevice
from semistream.workload.miniature import Miniature

ROWS = 3_500_000
# Up to 2 % of R: in a budget of 260 KB an output buffer and a page would be half of it.
TIMES, FINE_TIMES, FINE_SHARE = 8, 2, 2.0


def symbols_of_2007(rows: float = ROWS) -> Symbols:
    """Return cost factors of a machine of 2007: round figures, one of them fitted.

    The fitted one is the computing time per tuple, about 12 µs, so that the equations give the
    "more than 6,000" tuples per second in 1 % of R that section 4.2 prints. All other numbers
    follow from these factors.
    """
    disk = EmulatedDevice.named("hdd-papers")
    page_bytes = 8192.0
    return Symbols(
        page_count=rows * 120 / page_bytes,
        io_s=lambda b: disk.request_s + b * page_bytes / disk.bytes_per_s,
        page_bytes=page_bytes,
        selectivity=0.1,
        read_s=1e-6,
        append_s=4e-6,
        expire_s=4e-6,
        probe_s=2e-8,
        output_s=1e-6,
    )


def synthetic(
    lab: Lab,
    page_bytes: int,
    exponent: float = 0.5,
    relation_exponent: float | None = None,
    quick_times: float = TIMES,
) -> Rig:
    """Return the rig of table 2; a miniature at quick scale."""

    def make(times: float) -> Miniature:
        # Where R has many rows of a key, its join values and the stream's are of one domain.
        domain = times if relation_exponent is None else 1.0
        rows = int(ROWS / times)
        return Miniature(rows, exponent, relation_exponent, seed=lab.seed, times=domain)

    return lab.rig(make, lab.times(quick_times), page_bytes=page_bytes)


def rate_with_computing(rig: Rig, measured: Measured) -> float:
    """Return a rate with computing charged at the cost factors of 2007.

    Charged are the counted tuples, rows of R that were probed with, and results (equation 2).
    """
    symbols, service = symbols_of_2007(), measured.service
    rows = service.counted("pages_scanned") * rig.relation.row_count / rig.page_count
    per_tuple = symbols.read_s + symbols.append_s + symbols.expire_s
    computing_s = service.tuples * per_tuple + rows * symbols.probe_s
    computing_s += service.counted("output_rows") * symbols.output_s
    return 1 / (1 / measured.rate + computing_s / service.tuples)


def least_memory_points(lab: Lab) -> Sequence[Point]:
    """Return figure 5(a): the memory that a rate needs, by the equations."""
    symbols = symbols_of_2007()
    sizes = np.geomspace(0.02 * MB, 8 * MB, 60)

    def rows(rate: float) -> list[Row]:
        return [
            {
                "rate": rate,
                "disk_buffer_mb": size / MB,
                "memory_mb": printed.least_memory(symbols, rate, size / symbols.page_bytes) / MB,
            }
            for size in sizes
        ]

    return [partial(rows, rate) for rate in (6_000.0, 12_000.0, 18_000.0)]


_TUNED_MB = (5.0, 10.0, 21.0)  # budgets of figure 5(b)


def tuning_points(lab: Lab) -> Sequence[Point]:
    """Return figure 5(b): the equations, and some sizes measured and by our model."""
    symbols = symbols_of_2007()

    def equation(memory: float) -> list[Row]:
        return [
            _tuning_row(
                memory,
                size,
                "printed",
                printed.service_rate_for(symbols, memory, size / symbols.page_bytes),
            )
            for size in np.geomspace(0.02 * MB, 0.98 * memory, 60)
        ]

    def measured(memory: float, share: float) -> list[Row]:
        is_fine = memory <= FINE_SHARE / 100 * ROWS * 120
        rig = synthetic(lab, 16_384, quick_times=FINE_TIMES if is_fine else TIMES)
        run = rig.measure("meshjoin", memory, Split(rig.pages_in(share * memory)))
        size = run.settings.pages_per_read * rig.page_bytes
        rate = rate_with_computing(rig, run)
        # Computing is what was counted; the model predicts the disk's time.
        model = 1 / (1 / rig.predict("meshjoin", run).rate + 1 / rate - 1 / run.rate)
        rows = {"measured": rate, "model": model}
        return [_tuning_row(memory, size, what, rate) for what, rate in rows.items()]

    return [
        *(partial(equation, m * MB) for m in _TUNED_MB),
        *(partial(measured, m * MB, s) for m in _TUNED_MB for s in (0.03, 0.1, 0.25, 0.5, 0.75)),
    ]


def _tuning_row(memory: float, size: float, what: str, rate: float) -> Row:
    at: Row = {"memory_mb": memory / MB, "disk_buffer_mb": size / MB, "what": what}
    return {**at, "tuples_per_s": rate}


def draw_tuning(canvas: Canvas, table: Table) -> None:
    """Draw a colour for each budget: equations, measurements and our model."""
    axes = canvas.add_subplot()
    for i, memory in enumerate(table.distinct("memory_mb")):
        colour = style_of(memory, i).colour
        for what, look in (("printed", "-"), ("measured", "o"), ("model", "+--")):
            rows = table.where(memory_mb=memory, what=what)
            x, y = rows.values("disk_buffer_mb"), rows.values("tuples_per_s")
            label = f"M = {memory:g} MB, {style_of(what).label}"
            axes.plot(x, y, look, color=colour, markersize=6, linewidth=1.6, label=label)
    finish(axes, "disk buffer b (MB), log", "service rate (tuples/s), log", log_x=True, log_y=True)
    axes.set_ylim(bottom=500)
    legend(axes)


def on_equations(judge: Callable[[Table], Finding]) -> Callable[[Table], Finding]:
    """Return a judgement of what the paper's equations give alone."""
    return lambda table: judge(table.where(what="printed"))
