"""The figures of `xhybridjoin.txt`: a pinned part of the disk buffer, and its best size.

R is stored sorted by how often the stream requests a row, as in the paper. X-HYBRIDJOIN without
tuning pins as many pages as HYBRIDJOIN's disk buffer has.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from semistream.budget.split import Split
from semistream.lab.canvas import Canvas
from semistream.lab.charts import Lines, Stated, Validation, finish
from semistream.lab.claims import Claim, Row, Table
from semistream.lab.common import MB, models_track, rate_row
from semistream.lab.figures import Figure, Lab, Point
from semistream.lab.findings import xhybridjoin as findings
from semistream.lab.hybridjoin import (
    BUDGETS_MB,
    BY_MEMORY,
    BY_SIZE,
    SIZES,
    skewed,
    validation_points,
)
from semistream.lab.rig import UNTUNED, Rig

PAPER = "xhybridjoin"
_MEMORY = 50 * MB
_LINES = (*findings.OTHERS, UNTUNED)
# Beyond half of R's size nearly all of R is pinned.
_TUNED_BUDGETS_MB = (25.0, 50.0, 75.0, 100.0, 125.0)
_LOOPS = 4_000
_SWAPPED_MB = (0.6, 1.2, 2.4, 4.0, 6.0, 10.0, 16.0)
_PINNED_MB = (0.0, 0.6, 1.2, 2.5, 5.0, 10.0, 16.0, 24.0)


def _memory_points(lab: Lab) -> Sequence[Point]:
    def rows(memory: float, algorithm: str) -> list[Row]:
        return rate_row(skewed(lab), algorithm, memory * MB, memory_mb=memory)

    return [partial(rows, memory, name) for name in _LINES for memory in BUDGETS_MB]


def _size_points(lab: Lab) -> Sequence[Point]:
    def rows(size: float, algorithm: str) -> list[Row]:
        return rate_row(skewed(lab, size), algorithm, _MEMORY, rows_millions=size / 1e6)

    return [partial(rows, size, name) for name in _LINES for size in SIZES]


def _skew_points(lab: Lab) -> Sequence[Point]:
    def rows(exponent: float, algorithm: str) -> list[Row]:
        rig = skewed(lab, exponent=exponent)
        return rate_row(rig, algorithm, _MEMORY, exponent=exponent)

    return [partial(rows, exponent, name) for name in _LINES for exponent in findings.EXPONENTS]


def _pinned_points(lab: Lab) -> Sequence[Point]:
    def row(memory: float) -> Row:
        rig = skewed(lab)
        measured = rig.measure_tuned(UNTUNED, memory * MB)
        loops = measured.service.counted("iterations")
        hits = measured.service.counted("front_hits")
        return {
            "memory_mb": memory,
            "tuples_millions": hits / loops * _LOOPS * rig.times / 1e6,
            "share": hits / measured.service.tuples,
        }

    return [partial(row, memory) for memory in BUDGETS_MB]


def _split(rig: Rig, swapped_mb: float, pinned_mb: float) -> Split:
    pinned = round(pinned_mb * MB / rig.page_bytes)
    return Split(rig.pages_in(swapped_mb * MB), pinned_pages=pinned)


def _surface_points(lab: Lab) -> Sequence[Point]:
    def row(swapped_mb: float, pinned_mb: float) -> Row:
        rig = skewed(lab)
        measured = rig.measure("xhybridjoin", _MEMORY, _split(rig, swapped_mb, pinned_mb))
        return {"swapped_mb": swapped_mb, "pinned_mb": pinned_mb, "tuples_per_s": measured.rate}

    return [partial(row, s, p) for p in _PINNED_MB for s in _SWAPPED_MB]


def _tuning_points(lab: Lab, x: str) -> Sequence[Point]:
    """Return one line through the grid, at the best size of the other part by the model."""

    def rows(size: float) -> list[Row]:
        rig = skewed(lab)
        best = rig.tuned("xhybridjoin", _MEMORY).settings
        if x == "swapped_mb":
            split = Split(rig.pages_in(size * MB), pinned_pages=best.pinned_pages)
        else:
            pinned = round(size * MB / rig.page_bytes)
            split = Split(best.pages_per_read, pinned_pages=pinned)
        rates = {
            "measured": rig.measure("xhybridjoin", _MEMORY, split).rate,
            "model": rig.evaluate("xhybridjoin", _MEMORY, split).prediction.rate,
        }
        return [{x: size, "what": what, "tuples_per_s": rate} for what, rate in rates.items()]

    return [partial(rows, size) for size in (_SWAPPED_MB if x == "swapped_mb" else _PINNED_MB)]


def _tuned_row(rig: Rig, memory: float, what: str, **labels: float) -> Row:
    name = "xhybridjoin" if what == "tuned" else UNTUNED
    return {**labels, "what": what, "tuples_per_s": rig.measure_tuned(name, memory).rate}


def _tuned_by_size(lab: Lab) -> Sequence[Point]:
    def row(size: float, what: str) -> Row:
        return _tuned_row(skewed(lab, size), _MEMORY, what, rows_millions=size / 1e6)

    return [partial(row, size, what) for what in ("tuned", "untuned") for size in SIZES]


def _tuned_by_memory(lab: Lab) -> Sequence[Point]:
    def row(memory: float, what: str) -> Row:
        return _tuned_row(skewed(lab), memory * MB, what, memory_mb=memory)

    return [partial(row, m, what) for what in ("tuned", "untuned") for m in _TUNED_BUDGETS_MB]


def _draw_surface(canvas: Canvas, table: Table) -> None:
    axes = canvas.add_subplot()
    swapped = [float(v) for v in table.distinct("swapped_mb")]
    pinned = [float(v) for v in table.distinct("pinned_mb")]
    rates = np.array(table.values("tuples_per_s")).reshape(len(pinned), len(swapped))
    image = axes.imshow(rates / 1e3, origin="lower", aspect="auto", cmap="viridis")
    for i, j in np.ndindex(rates.shape):
        bright = rates[i, j] > 0.6 * rates.max()
        axes.text(
            j,
            i,
            f"{rates[i, j] / 1e3:.0f}",
            ha="center",
            va="center",
            fontsize=7,
            color="black" if bright else "white",
        )
    finish(axes, "swappable part d_S (MB)", "non-swappable part d_N (MB)")
    axes.grid(False)
    axes.set_xticks(range(len(swapped)), [f"{v:g}" for v in swapped])
    axes.set_yticks(range(len(pinned)), [f"{v:g}" for v in pinned])
    canvas.colorbar(image, ax=axes, label="service rate (thousand tuples/s)")


def _shares_stated(table: Table) -> list[Stated]:
    """Return the paper's shares of X-HYBRIDJOIN's rate, times our rate."""
    rates = table.lookup("rows_millions", "tuples_per_s", algorithm=UNTUNED)
    return [Stated(at, rates[at] * s, f"{s:.0%}") for at, s in ((0.5, 0.7), (8.0, 0.5))]


_RATE = "service rate (tuples/s)"
_SORTED = "R is stored sorted by frequency."
_WHEN_READ = (
    "One load resolves a large part of the stream that is not pinned, and it is read at varying "
    "intervals; the model assumes even intervals."
)


def _tuning_figure(number: str, x: str, part: str, deviation: str, source: str) -> Figure:
    """Return figure 6(a) or 6(b): the model against measurements, along the size of one part."""
    claim = Claim(
        f"Model and measurement agree, with a deviation of {deviation}.",
        source,
        partial(findings.close, x),
        why=_WHEN_READ,
    )
    return Figure(
        PAPER,
        number,
        f"Tuning the {part.rpartition(' ')[0]}: cost model against measurement",
        partial(_tuning_points, x=x),
        Lines(x, "tuples_per_s", f"{part} (MB)", _RATE, "what"),
        (claim,),
        note="The model is ours; docs/model-validation.md compares with equation 9 as printed.",
        needs_clock=True,
    )


FIGURES = (
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
                why="It saves more because it is larger here: as large as HYBRIDJOIN's best disk "
                "buffer on this disk.",
            ),
            Claim(
                "HYBRIDJOIN is always slightly ahead of MESHJOIN and R-MESHJOIN.",
                "section 5.2.1, figure 3(a)",
                findings.slightly_ahead,
                why="An index join pays a seek for each load, and its slots resolve two tuples per "
                "cycle. With R sorted by frequency one load resolves most of the stream, and its "
                "slots are filled again by tuples that have just missed it, so hardly any gain is "
                "left.",
            ),
        ),
        note=_SORTED,
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
                why="The pinned part here is as large as HYBRIDJOIN's best disk buffer on this "
                "disk, about 4 MB. That is 7 % of R at 0.5 million rows, which resolves most "
                "of the stream, and less than 1 % at 8 million.",
            ),
        ),
        note=_SORTED,
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
                why="With little skew the pinned part resolves little more than its share of R, "
                "and the window loses more by the memory that it gives up. Tuned, X-HYBRIDJOIN "
                "pins nothing there and is HYBRIDJOIN.",
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
                "resolves two tuples per cycle where MESHJOIN's resolves one. With large disk "
                "buffers that gains more than a seek costs.",
            ),
        ),
        note=_SORTED,
    ),
    Figure(
        PAPER,
        "3d",
        "Tuples that the pinned part resolves in 4,000 loops, by memory",
        _pinned_points,
        Lines(
            "memory_mb",
            "tuples_millions",
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
                why="A loop here reads about 4 MB, which is best on this disk, for a window that "
                "fills the memory, and resolves tens of thousands of tuples; in the paper it is "
                "about a hundred.",
            ),
        ),
        note=_SORTED,
    ),
    Figure(
        PAPER,
        "4",
        "X-HYBRIDJOIN by the sizes of its two parts; R of 2M rows, 50 MB",
        _surface_points,
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
        ),
        note=_SORTED,
    ),
    _tuning_figure("6a", "swapped_mb", "swappable part d_S", "0.5 %", "section 6.4.1, figure 6(a)"),
    _tuning_figure(
        "6b", "pinned_mb", "non-swappable part d_N", "0.6 %", "section 6.4.2, figure 6(b)"
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
                why="The larger R is, the nearer the best pinned part is to the untuned one, which "
                "is as large as HYBRIDJOIN's disk buffer.",
            ),
        ),
    ),
    Figure(
        PAPER,
        "7b",
        "X-HYBRIDJOIN tuned and not tuned, by memory; R of 2M rows",
        _tuned_by_memory,
        Lines("memory_mb", "tuples_per_s", "memory (MB)", _RATE, "what"),
        (
            Claim(
                "Tuning makes it significantly faster at every budget.",
                "section 6.5.2, figure 7(b)",
                partial(findings.tuning_pays, "memory_mb"),
                why="In little memory the best pinned part is about as large as the untuned one, "
                "which is as large as HYBRIDJOIN's disk buffer.",
            ),
        ),
    ),
    Figure(
        PAPER,
        "8",
        "X-HYBRIDJOIN: cost model against measurement, by memory",
        lambda lab: validation_points(lab, ("xhybridjoin",), _TUNED_BUDGETS_MB),
        Validation("memory_mb", "memory (MB)"),
        (
            Claim(
                "Predicted and measured cost are close.",
                "section 6.6, figure 8",
                models_track,
            ),
        ),
        needs_clock=True,
    ),
)
