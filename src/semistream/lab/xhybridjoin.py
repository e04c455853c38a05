"""The figures of `xhybridjoin.txt`: a pinned part of the disk buffer, and its best size.

R is stored sorted by how often the stream requests a row, as in the paper, on the disk with one
cost for every request.

Section 5 compares the algorithms without tuning: all read partitions of one size, and X-HYBRIDJOIN
pins one more. The paper does not state that size. By section 5.2.4 the pinned part has 100 matches
in a loop in 50 MB, and by equation 9 that takes a partition of 83 KB as printed, of 63 KB with
means for variances (`equations.xhybridjoin.partition_rows`). A page here has 82 KB.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from semistream.advice.measure import Measured
from semistream.budget.split import Split
from semistream.lab.canvas import Canvas
from semistream.lab.charts import STATED, Lines, Stated, Validation, finish, style_of
from semistream.lab.claims import Claim, Row, Table
from semistream.lab.common import MB, models_track
from semistream.lab.equations import xhybridjoin as printed
from semistream.lab.figures import ONE_COST_DISK, Figure, Lab, Point
from semistream.lab.findings import xhybridjoin as findings
from semistream.lab.hybridjoin import BY_MEMORY, BY_SIZE
from semistream.lab.hybridjoin_streams import MEMORY, skewed
from semistream.lab.rig import UNTUNED, Rig
from semistream.lab.xhybridjoin_model import (
    grid_of,
    surface_points,
    tuned_below_r,
    tuning_points,
    validation_points,
)

PAPER = "xhybridjoin"
PARTITION_BYTES = 82_000.0
# A join that reads partitions of 82 KB has many loops.
_FEW_BUDGETS_MB, _FEW_SIZES = (50.0, 150.0, 250.0), (0.5e6, 2e6, 8e6)
_LINES = (*findings.OTHERS, UNTUNED, findings.TUNED_MESHJOIN)
_LOOPS = 4_000


def _measure(rig: Rig, line: str, memory: float) -> Measured:
    """Measure a join that reads partitions, or MESHJOIN tuned."""
    if line == findings.TUNED_MESHJOIN:
        return rig.measure_tuned("meshjoin", memory)
    return rig.measure(line, memory, Split(rig.pages_in(PARTITION_BYTES)))


def _row(rig: Rig, line: str, memory: float, **labels: float) -> list[Row]:
    return [{**labels, "algorithm": line, "tuples_per_s": _measure(rig, line, memory).rate}]


def _window_share(rig: Rig) -> float:
    """Return how many tuples the paper's window has for each of ours, by the bytes of a tuple."""
    paper_bytes = 4.8 * 20 + printed.NODE_BYTES
    return rig.tuple_bytes("xhybridjoin") / paper_bytes


def _memory_points(lab: Lab) -> Sequence[Point]:
    def rows(memory: float, algorithm: str) -> list[Row]:
        return _row(skewed(lab), algorithm, memory * MB, memory_mb=memory)

    return [partial(rows, memory, name) for name in _LINES for memory in _FEW_BUDGETS_MB]


def _size_points(lab: Lab) -> Sequence[Point]:
    def rows(size: float, algorithm: str) -> list[Row]:
        return _row(skewed(lab, size), algorithm, MEMORY, rows_millions=size / 1e6)

    return [partial(rows, size, name) for name in _LINES for size in _FEW_SIZES]


def _skew_points(lab: Lab) -> Sequence[Point]:
    def rows(exponent: float, algorithm: str) -> list[Row]:
        rig = skewed(lab, exponent=exponent)
        return _row(rig, algorithm, MEMORY, exponent=exponent)

    return [partial(rows, exponent, name) for name in _LINES for exponent in findings.EXPONENTS]


def _pinned_points(lab: Lab) -> Sequence[Point]:
    def row(memory: float) -> Row:
        rig = skewed(lab)
        measured = _measure(rig, UNTUNED, memory * MB)
        loops = measured.service.counted("iterations")
        hits = measured.service.counted("front_hits")
        return {
            "memory_mb": memory,
            "tuples_millions": hits / loops * _LOOPS * rig.times / 1e6,
            "as_in_the_paper": hits / loops * _LOOPS * rig.times / 1e6 * _window_share(rig),
            "share": hits / measured.service.tuples,
        }

    return [partial(row, memory) for memory in _FEW_BUDGETS_MB]


def _tuned_row(rig: Rig, memory: float, what: str, **labels: float) -> Row:
    if what == "tuned":
        rate = rig.measure("xhybridjoin", memory, tuned_below_r(rig, memory).split).rate
    else:
        rate = _measure(rig, UNTUNED, memory).rate
    return {**labels, "what": what, "tuples_per_s": rate}


def _tuned_by_size(lab: Lab) -> Sequence[Point]:
    def row(size: float, what: str) -> Row:
        return _tuned_row(skewed(lab, size), MEMORY, what, rows_millions=size / 1e6)

    return [partial(row, size, what) for what in ("tuned", "untuned") for size in _FEW_SIZES]


def _tuned_by_memory(lab: Lab) -> Sequence[Point]:
    def row(memory: float, what: str) -> Row:
        return _tuned_row(skewed(lab), memory * MB, what, memory_mb=memory)

    return [partial(row, m, what) for what in ("tuned", "untuned") for m in _FEW_BUDGETS_MB]


def _draw_surface(canvas: Canvas, table: Table) -> None:
    axes, grid = canvas.add_subplot(), grid_of(table)
    swapped = [float(v) for v in grid.distinct("swapped_mb")]
    pinned = [float(v) for v in grid.distinct("pinned_mb")]
    rates = np.array(grid.values("tuples_per_s")).reshape(len(pinned), len(swapped))
    image = axes.imshow(rates / 1e3, origin="lower", aspect="auto", cmap="viridis")
    for i, j in np.ndindex(rates.shape):
        colour = "black" if rates[i, j] > 0.6 * rates.max() else "white"
        text = f"{rates[i, j] / 1e3:.0f}"
        axes.text(j, i, text, ha="center", va="center", fontsize=7, color=colour)
    for what in ("printed", "corrected", "model"):
        (row,) = table.where(what=what)
        x = np.interp(float(row["swapped_mb"]), swapped, range(len(swapped)))
        y = np.interp(float(row["pinned_mb"]), pinned, range(len(pinned)))
        style = style_of(what)
        mark = f"{style.marker}" if what != "corrected" else "^"
        axes.plot([x], [y], mark, color=STATED, markersize=10, mew=2, mfc="none", label=style.label)
    finish(axes, "swappable part d_S (MB)", "non-swappable part d_N (MB)")
    axes.grid(False)
    axes.set_xticks(range(len(swapped)), [f"{v:g}" for v in swapped])
    axes.set_yticks(range(len(pinned)), [f"{v:g}" for v in pinned])
    canvas.colorbar(image, ax=axes, label="service rate (thousand tuples/s)")
    title = "the best sizes by:"
    canvas.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False, title=title)


def _shares_stated(table: Table) -> list[Stated]:
    """Return the paper's shares of X-HYBRIDJOIN's rate, times our rate."""
    rates = table.lookup("rows_millions", "tuples_per_s", algorithm=UNTUNED)
    return [Stated(at, rates[at] * s, f"{s:.0%}") for at, s in ((0.5, 0.7), (8.0, 0.5))]


_RATE = "service rate (tuples/s)"
_SORTED = "R is stored sorted by frequency."
_PARTITIONS = (
    f"{_SORTED} All algorithms read partitions of 82 KB, the size that follows from section 5.2.4. "
    "MESHJOIN with its best disk buffer is shown beside them."
)
_VARIANCES = (
    "Equation 9 uses n·p·(1 − p), the variance, for the mean number of matches n·p, and takes all "
    "partitions to be loaded equally often. Corrected in both, it is far nearer."
)


def _tuning_figure(number: str, x: str, part: str, deviation: float, source: str) -> Figure:
    """Return figure 6(a) or 6(b): the model against measurements, along the size of one part."""
    claim = Claim(
        f"Model and measurement agree, with a deviation of {deviation:.1%}.".replace("%", " %"),
        source,
        partial(findings.close, x, deviation),
        why=_VARIANCES,
    )
    return Figure(
        PAPER,
        number,
        f"Tuning the {part.rpartition(' ')[0]}: cost model against measurement",
        partial(tuning_points, x=x),
        Lines(x, "tuples_per_s", f"{part} (MB)", _RATE, "what"),
        (claim,),
        note="The paper's equations 4 to 6 and 9 as printed, with this disk's c_I/O and for the "
        "tuples that wait here; equation 9 corrected; and our model.",
        needs_clock=True,
    )


_FIGURES = (
    Figure(
        PAPER,
        "3a",
        "X-HYBRIDJOIN and others by memory; R of 2M rows, Zipf 1",
        _memory_points,
        BY_MEMORY,
        (
            Claim(
                "X-HYBRIDJOIN is far ahead of all others at every budget.",
                "section 5.2.1, figure 3(a)",
                partial(findings.ahead_of_all, "memory_mb"),
            ),
            Claim(
                "The non-swappable part saves about 33 % of the cost of reading.",
                "section 5.2.1, figure 3(a)",
                findings.saves_reading,
                why="By equation 1 of CMESHJOIN's paper the first 683 rows of 2 million have 47 % "
                "of the stream. Behind them a slot serves more tuples than in HYBRIDJOIN.",
            ),
            Claim(
                "HYBRIDJOIN is always slightly ahead of MESHJOIN and R-MESHJOIN.",
                "section 5.2.1, figure 3(a)",
                findings.slightly_ahead,
                why="It is ahead by more than slightly.",
            ),
        ),
        note=_PARTITIONS,
    ),
    Figure(
        PAPER,
        "3b",
        "X-HYBRIDJOIN and others by size of R; 50 MB, Zipf 1",
        _size_points,
        replace(BY_SIZE, stated_of=_shares_stated),
        (
            Claim(
                "X-HYBRIDJOIN is far ahead of all others at every size.",
                "section 5.2.2, figure 3(b)",
                partial(findings.ahead_of_all, "rows_millions"),
            ),
            Claim(
                "HYBRIDJOIN reaches 70 % of its rate at 0.5 million rows, 50 % at 8 million.",
                "section 5.2.2, figure 3(b)",
                findings.hybridjoin_share,
                why="The pinned 683 rows have 52 % of the stream at 0.5 million rows and 43 % at "
                "8 million, so HYBRIDJOIN's share of the rate changes little with R.",
            ),
        ),
        note=_PARTITIONS,
    ),
    Figure(
        PAPER,
        "3c",
        "X-HYBRIDJOIN and others by skew; R of 2M rows, 50 MB",
        _skew_points,
        Lines(
            "exponent",
            "tuples_per_s",
            "Zipf exponent of the stream",
            _RATE,
            "algorithm",
        ),
        (
            Claim(
                "X-HYBRIDJOIN is ahead at every exponent but 0.",
                "section 5.2.3, figure 3(c)",
                findings.ahead_but_at_zero,
                why="With little skew the pinned part resolves little more than its share of R.",
            ),
            Claim(
                "Its lead grows with the exponent.",
                "section 5.2.3, figure 3(c)",
                findings.more_with_skew,
            ),
            Claim(
                "Without skew it is behind MESHJOIN.",
                "section 5.2.3, figure 3(c)",
                findings.behind_at_zero,
                why="A slot of an index join is free again as soon as its tuple is resolved, so it "
                "resolves two tuples per cycle where MESHJOIN's resolves one.",
            ),
        ),
        note=_PARTITIONS,
    ),
    Figure(
        PAPER,
        "3d",
        "Tuples that the pinned part resolves in 4,000 loops, by memory",
        _pinned_points,
        Lines(
            "memory_mb",
            "as_in_the_paper",
            "memory (MB)",
            "tuples resolved by the pinned part (millions), log",
            log_y=True,
            stated=[Stated(50, 0.4, "0.4"), Stated(250, 2.0, "more than 2")],
        ),
        (
            Claim(
                "The pinned part serves 0.4 million tuples in 4,000 loops with 50 MB, more than 2 "
                "million with 250 MB.",
                "section 5.2.4, figure 3(d)",
                findings.pinned_serve,
                why="The size of a partition was derived from the first number by equation 9 as "
                "printed. The algorithm serves more in a loop: by the corrected equation the first "
                "number would follow from a partition of 36 KB.",
            ),
        ),
        note=f"{_PARTITIONS} The numbers are those of a window with the paper's bytes of a tuple.",
    ),
    Figure(
        PAPER,
        "4",
        "X-HYBRIDJOIN by the sizes of its two parts; R of 2M rows, 50 MB",
        surface_points,
        _draw_surface,
        (
            Claim(
                "The rate rises with the non-swappable part up to some size, and falls after it.",
                "section 6.2, figure 4",
                partial(findings.has_summit, "pinned_mb"),
            ),
            Claim(
                "It rises rapidly and falls gradually.",
                "section 6.2, figure 4",
                findings.rises_fast,
            ),
            Claim(
                "With the swappable part it rises and falls too.",
                "section 6.2, figure 4",
                partial(findings.has_summit, "swapped_mb"),
            ),
            Claim(
                "Tuning by the cost model gives the same as tuning by measurement.",
                "sections 6.3 and 6.4, figure 4",
                findings.tuning_agrees,
                why="By equation 9 as printed a loop serves fewer tuples if rows with more than "
                "half of the stream are pinned: p·(1 − p) is largest at p = 1/2. The first page "
                "has 47 % of the stream, so the equation pins hardly more.",
            ),
        ),
        note=f"{_SORTED} Marks: the sizes at which the models' rates are largest.",
    ),
    _tuning_figure("6a", "swapped_mb", "swappable part d_S", 0.005, "section 6.4.1, figure 6(a)"),
    _tuning_figure(
        "6b", "pinned_mb", "non-swappable part d_N", 0.006, "section 6.4.2, figure 6(b)"
    ),
    Figure(
        PAPER,
        "7a",
        "X-HYBRIDJOIN tuned and not tuned, by size of R; 50 MB",
        _tuned_by_size,
        Lines(
            "rows_millions",
            "tuples_per_s",
            "rows of R (millions), log",
            f"{_RATE}, log",
            "what",
            log_x=True,
            log_y=True,
            ticks_at_points=True,
        ),
        (
            Claim(
                "Tuning makes it significantly faster at every size.",
                "section 6.5.1, figure 7(a)",
                partial(findings.tuning_pays, "rows_millions"),
            ),
        ),
    ),
    Figure(
        PAPER,
        "7b",
        "X-HYBRIDJOIN tuned and not tuned, by memory; R of 2M rows",
        _tuned_by_memory,
        Lines("memory_mb", "tuples_per_s", "memory (MB)", f"{_RATE}, log", "what", log_y=True),
        (
            Claim(
                "Tuning makes it significantly faster at every budget.",
                "section 6.5.2, figure 7(b)",
                partial(findings.tuning_pays, "memory_mb"),
            ),
        ),
        note="At most 95 % of R is pinned: with more memory than R has, nothing would be read.",
    ),
    Figure(
        PAPER,
        "8",
        "X-HYBRIDJOIN: cost model against measurement, by memory",
        validation_points,
        Validation("memory_mb", "memory (MB)", f"{_RATE}, log", log_y=True),
        (
            Claim(
                "Predicted and measured cost are close.",
                "section 6.6, figure 8",
                models_track,
                why=_VARIANCES,
            ),
        ),
        needs_clock=True,
    ),
)

FIGURES = tuple(replace(figure, disk=ONE_COST_DISK) for figure in _FIGURES)
