"""How the lab draws: lines by series, with what the paper prints beside them.

One look for all figures: each algorithm has one colour and one marker everywhere, axes carry their
units, and a number that a paper states is drawn as a hollow diamond.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl

mpl.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from semistream.lab.claims import Table

STYLES: Mapping[str, tuple[str, str, str]] = {  # label, colour, marker
    "meshjoin": ("MESHJOIN", "#1b6ca8", "o"),
    "rmeshjoin": ("R-MESHJOIN", "#5fa8d3", "s"),
    "hybridjoin": ("HYBRIDJOIN", "#e07a1f", "^"),
    "xhybridjoin": ("X-HYBRIDJOIN, tuned", "#b5179e", "D"),
    "xhybridjoin-equal": ("X-HYBRIDJOIN", "#7b2cbf", "v"),
    "cmeshjoin": ("CMESHJOIN", "#2a9d5c", "P"),
    "chybridjoin": ("CHYBRIDJOIN", "#8a6d00", "X"),
    "binlj": ("INLJ, batched", "#999999", "<"),
    "cbinlj": ("INLJ, batched, cached", "#444444", ">"),
    "inlj": ("INLJ", "#d1495b", "x"),
    "cinlj": ("INLJ, cached", "#f28482", "+"),
    "offline": ("clairvoyant cache", "#000000", "*"),
    "measured": ("measured", "#1b6ca8", "o"),
    "model": ("cost model", "#d1495b", "+"),
    "computing": ("MESHJOIN, computing charged", "#2a9d5c", "s"),
    "printed": ("the paper's equations", "#8d99ae", "."),
    "default": ("default disk buffer, 0.93 MB", "#1b6ca8", "o"),
    "optimum": ("optimum disk buffer", "#2a9d5c", "s"),
    "tuned": ("tuned", "#b5179e", "D"),
    "untuned": ("not tuned: both parts of one size", "#7b2cbf", "v"),
}
_OTHERS = ("#1b6ca8", "#e07a1f", "#2a9d5c", "#b5179e", "#8a6d00", "#d1495b", "#5fa8d3", "#444444")
_MARKERS = "os^DvPX<"
_MOST_MARKED = 40
PAPER = "#c1121f"
_STATED = "stated in the paper"


@dataclass(frozen=True, slots=True)
class Stated:
    """A number that the paper states."""

    x: float
    y: float
    text: str = ""


@dataclass(frozen=True)
class Lines:
    """One line for each value of a column, or one in all."""

    x: str
    y: str
    x_label: str
    y_label: str
    series: str | None = None
    log_x: bool = False
    log_y: bool = False
    from_zero: bool = True
    named: Callable[[object], str] = str  # how values of the series are called
    stated: Sequence[Stated] = ()
    stated_of: Callable[[Table], Sequence[Stated]] | None = None  # what depends on our own numbers
    ticks_at_points: bool = False

    def __call__(self, canvas: Canvas, table: Table) -> None:
        """Draw on the whole canvas."""
        self.draw(canvas.add_subplot(), table)

    def draw(self, axes: Axes, table: Table) -> None:
        """Draw on some axes."""
        names = [None] if self.series is None else table.distinct(self.series)
        for i, name in enumerate(names):
            rows = (
                table if self.series is None or name is None else table.where(**{self.series: name})
            )
            label, colour, marker = _style(name, i, self.named)
            dashed = "--" if name in ("model", "printed") else "-"
            # Where lines coincide, the first shows beneath the others.
            width = 3.2 if i == 0 and len(names) > 1 else 1.6
            axes.plot(
                rows.values(self.x),
                rows.values(self.y),
                dashed,
                color=colour,
                marker=marker if len(rows) <= _MOST_MARKED else "",
                markersize=5,
                linewidth=width,
                label=label,
            )
        stated = [*self.stated, *(self.stated_of(table) if self.stated_of else ())]
        state(axes, stated)
        finish(axes, self.x_label, self.y_label, log_x=self.log_x, log_y=self.log_y)
        if self.ticks_at_points:
            at = sorted(set(table.values(self.x)))
            axes.set_xticks(at, [f"{x:g}" for x in at])
            axes.minorticks_off()
        if self.from_zero and not self.log_y:
            axes.set_ylim(bottom=0)
        if self.series is not None or stated:
            legend(axes, "the paper's ratio, times our rate" if self.stated_of else _STATED)


@dataclass(frozen=True)
class Validation:
    """Cost models against measurements: a colour for each algorithm, what is predicted dashed."""

    x: str
    x_label: str
    y_label: str = "service rate (tuples/s)"
    log_x: bool = False
    log_y: bool = False

    def __call__(self, canvas: Canvas, table: Table) -> None:
        """Draw on the whole canvas."""
        axes = canvas.add_subplot()
        for i, name in enumerate(table.distinct("algorithm")):
            label, colour, marker = _style(name, i, str)
            for what, line in (("measured", "-"), ("model", "--")):
                rows = table.where(algorithm=name, what=what)
                axes.plot(
                    rows.values(self.x),
                    rows.values("tuples_per_s"),
                    line,
                    color=colour,
                    marker=marker if what == "measured" else "+",
                    markersize=5 if what == "measured" else 9,
                    linewidth=1.6,
                    label=f"{label}, {'measured' if what == 'measured' else 'cost model'}",
                )
        finish(axes, self.x_label, self.y_label, log_x=self.log_x, log_y=self.log_y)
        if not self.log_y:
            axes.set_ylim(bottom=0)
        legend(axes)


def _style(name: object, place: int, named: Callable[[object], str]) -> tuple[str, str, str]:
    if name is None:
        return STYLES["measured"]
    if isinstance(name, str) and name in STYLES:
        return STYLES[name]
    colour = _OTHERS[place % len(_OTHERS)]
    return named(name), colour, _MARKERS[place % len(_MARKERS)]


def state(axes: Axes, stated: Sequence[Stated]) -> None:
    """Draw what the paper states."""
    for place in stated:
        axes.plot(
            [place.x], [place.y], "D", color=PAPER, markerfacecolor="none", markersize=9, zorder=5
        )
        if place.text:
            axes.annotate(
                place.text,
                (place.x, place.y),
                textcoords="offset points",
                xytext=(8, -11),
                annotation_clip=False,
                fontsize=8,
                color=PAPER,
            )


def short(value: float) -> str:
    """Return a number in few characters.

    >>> short(0.25), short(17_500), short(2e6)
    ('0.25', '17.5k', '2M')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def legend(axes: Axes, stated: str = _STATED) -> None:
    """Add a legend, with the paper's diamonds if there are any."""
    handles, labels = axes.get_legend_handles_labels()
    if any(line.get_marker() == "D" and line.get_color() == PAPER for line in axes.get_lines()):
        diamond = Line2D([], [], color=PAPER, marker="D", markerfacecolor="none", linestyle="")
        handles, labels = [*handles, diamond], [*labels, stated]
    axes.legend(handles, labels, fontsize=8, frameon=False)


def finish(
    axes: Axes, x_label: str, y_label: str, *, log_x: bool = False, log_y: bool = False
) -> None:
    """Label the axes and take away what says nothing."""
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    if log_y:
        axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, place: short(value))
    axes.grid(True, axis="y", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
