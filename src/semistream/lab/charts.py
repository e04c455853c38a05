"""How the lab draws: one line per series, with the numbers that the paper states beside them.

One look for all figures: each algorithm has one colour and one marker everywhere (`style_of`), axes
carry their units, and a number that a paper states is drawn as a hollow diamond.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semistream.joins.registry import ALGORITHMS
from semistream.lab.canvas import Axes, Canvas
from semistream.lab.claims import Table
from semistream.lab.rig import POOLED, UNTUNED

if TYPE_CHECKING:
    from matplotlib.ticker import Formatter

# An algorithm's colour and marker follow from its position in the registry. There are 16 colours
# and 13 markers, so 208 algorithms differ in one of them.
_COLOURS = (
    *("#000000", "#d1495b", "#999999", "#1b6ca8", "#5fa8d3", "#e07a1f", "#b5179e", "#f28482"),
    *("#444444", "#2a9d5c", "#8a6d00", "#00a6a6", "#7b2cbf", "#a3b18a", "#6b2d5c", "#ffb703"),
)
_MARKERS = "dx<os^D+>PX*v"
# Other series of a figure, such as budgets, get these by their position in it.
_OTHER_COLOURS = ("#1b6ca8", "#e07a1f", "#2a9d5c", "#b5179e", "#8a6d00", "#d1495b", "#5fa8d3")
_OTHER_MARKERS = "os^DvPX"
_MOST_MARKED = 40
MAIN, SECOND = "#1b6ca8", "#e07a1f"  # of lines that stand for no algorithm
STATED = "#c1121f"  # colour of numbers that the paper states
_STATED_LABEL = "stated in the paper"


@dataclass(frozen=True, slots=True)
class Style:
    """The label and the look of a series."""

    label: str
    colour: str
    marker: str
    line: str = "-"


_SERIES: Mapping[str, Style] = {  # series of a figure that are no algorithm of the registry
    "meshjoin-tuned": Style("MESHJOIN, best disk buffer", "#999999", "<", ":"),
    POOLED: Style("INLJ, buffer pool of the whole memory", "#444444", "d"),
    UNTUNED: Style("X-HYBRIDJOIN, not tuned", "#7b2cbf", "v"),
    "measured": Style("measured", MAIN, "o"),
    "model": Style("our cost model", "#d1495b", "+", "--"),
    "computing": Style("MESHJOIN, computing charged", "#2a9d5c", "s"),
    "printed": Style("the paper's equations", "#2a9d5c", "x", ":"),
    "corrected": Style("the paper's equations, corrected", "#8a6d00", "1", "-."),
    "default": Style("default disk buffer, 0.93 MB", MAIN, "o"),
    "optimum": Style("optimum disk buffer", "#2a9d5c", "s"),
    "tuned": Style("tuned", "#b5179e", "D"),
    "untuned": Style("not tuned: both parts of one size", "#7b2cbf", "v"),
}


def style_of(series: object, position: int = 0, named: Callable[[object], str] = str) -> Style:
    """Return the style of an algorithm or of another series.

    `series` is the name of an algorithm, of a series that several figures have, or any other value,
    which gets the next colour and marker by its position in the figure. None: a figure of one line.

    >>> style_of("meshjoin").label, style_of("model").line
    ('MESHJOIN', '--')
    """
    if series is None:
        return _SERIES["measured"]
    if isinstance(series, str) and series in ALGORITHMS:
        algorithm = ALGORITHMS[series]
        place = list(ALGORITHMS).index(series)
        colour, marker = _COLOURS[place % len(_COLOURS)], _MARKERS[place % len(_MARKERS)]
        if series == "offline":  # no bound of all: it bounds CMESHJOIN alone
            return Style("best fixed cache before MESHJOIN", colour, marker, ":")
        if algorithm.family == "bound":
            return Style(f"bound: {algorithm.label}", colour, marker, ":")
        return Style(algorithm.label, colour, marker)
    if isinstance(series, str) and series in _SERIES:
        return _SERIES[series]
    if isinstance(series, str) and "+" in series:
        name, _, charged = series.partition("+")
        plain, line = style_of(name), ":" if charged == "computing" else "--"
        return Style(f"{plain.label}, {charged} charged", plain.colour, plain.marker, line)
    colour = _OTHER_COLOURS[position % len(_OTHER_COLOURS)]
    return Style(named(series), colour, _OTHER_MARKERS[position % len(_OTHER_MARKERS)])


@dataclass(frozen=True, slots=True)
class Stated:
    """A number that the paper states."""

    x: float
    y: float
    text: str = ""


@dataclass(frozen=True)
class Lines:
    """One line for each value of the column `series`, or a single line."""

    x: str
    y: str
    x_label: str
    y_label: str
    series: str | None = None
    log_x: bool = False
    log_y: bool = False
    from_zero: bool = True
    named: Callable[[object], str] = str  # the label of a value of the series
    stated: Sequence[Stated] = ()
    stated_of: Callable[[Table], Sequence[Stated]] | None = None  # from our own numbers
    ticks_at_points: bool = False

    def __call__(self, canvas: Canvas, table: Table) -> None:
        """Draw on the whole canvas."""
        self.draw(canvas.add_subplot(), table)

    def draw(self, axes: Axes, table: Table) -> None:
        """Draw on these axes."""
        names = [None] if self.series is None else table.distinct(self.series)
        for i, name in enumerate(names):
            rows = (
                table if self.series is None or name is None else table.where(**{self.series: name})
            )
            style = style_of(name, i, self.named)
            # Where lines coincide, the first shows beneath the others.
            width = 3.2 if i == 0 and len(names) > 1 else 1.6
            draw_intervals(axes, rows, self.x, self.y, style.colour)
            axes.plot(
                rows.values(self.x),
                rows.values(self.y),
                style.line,
                color=style.colour,
                marker=style.marker if len(rows) <= _MOST_MARKED else "",
                markersize=5,
                linewidth=width,
                label=style.label,
            )
        stated = [*self.stated, *(self.stated_of(table) if self.stated_of else ())]
        finish(axes, self.x_label, self.y_label, log_x=self.log_x, log_y=self.log_y)
        state(axes, stated)
        if self.ticks_at_points:
            at = sorted(set(table.values(self.x)))
            axes.set_xticks(at, [f"{x:g}" for x in at])
            axes.minorticks_off()
        if self.from_zero and not self.log_y:
            axes.set_ylim(bottom=0)
        if self.series is not None or stated:
            legend(axes, "the paper's ratio, times our rate" if self.stated_of else _STATED_LABEL)


@dataclass(frozen=True)
class Validation:
    """Cost models against measurements: a colour for each algorithm, predictions dashed."""

    x: str
    x_label: str
    y_label: str = "service rate (tuples/s)"
    log_x: bool = False
    log_y: bool = False

    def __call__(self, canvas: Canvas, table: Table) -> None:
        """Draw on the whole canvas."""
        axes = canvas.add_subplot()
        for i, name in enumerate(table.distinct("algorithm")):
            style = style_of(name, i)
            for what in table.where(algorithm=name).distinct("what"):
                part = style_of(what)
                rows = table.where(algorithm=name, what=what)
                draw_intervals(axes, rows, self.x, "tuples_per_s", style.colour)
                axes.plot(
                    rows.values(self.x),
                    rows.values("tuples_per_s"),
                    part.line,
                    color=style.colour,
                    marker=style.marker if what == "measured" else part.marker,
                    markersize=5 if what == "measured" else 9,
                    linewidth=1.6,
                    label=f"{style.label}, {part.label}",
                )
        finish(axes, self.x_label, self.y_label, log_x=self.log_x, log_y=self.log_y)
        if not self.log_y:
            axes.set_ylim(bottom=0)
        legend(axes)


def draw_intervals(axes: Axes, rows: Table, x: str, y: str, colour: str) -> None:
    """Draw confidence intervals, where the seeds of a figure differ."""
    halves = rows.intervals(y)
    if halves is not None:
        at = rows.values(x), rows.values(y)
        axes.errorbar(*at, yerr=halves, fmt="none", ecolor=colour, elinewidth=1.2, capsize=3)


def state(axes: Axes, stated: Sequence[Stated]) -> None:
    """Draw the numbers that the paper states; the axes have their scales already."""
    for place in stated:
        axes.plot(
            [place.x], [place.y], "D", color=STATED, markerfacecolor="none", markersize=9, zorder=5
        )
    axes.autoscale_view()  # or the limits would be those before the last plot
    for place in stated:
        on_canvas = axes.transData.transform((place.x, place.y))
        is_right = axes.transAxes.inverted().transform(on_canvas)[0] > 0.8
        axes.annotate(
            place.text,
            (place.x, place.y),
            textcoords="offset points",
            xytext=(-8 if is_right else 8, -11),
            ha="right" if is_right else "left",
            annotation_clip=False,
            fontsize=8,
            color=STATED,
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


def _short_log() -> "Formatter":
    """Return what labels minor ticks of a log axis that spans few decades: no powers of ten."""
    from matplotlib.ticker import LogFormatter

    class ShortLog(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return short(x) if super().__call__(x, pos) else ""

    return ShortLog()


def legend(axes: Axes, stated: str = _STATED_LABEL) -> None:
    """Add a legend, with the paper's diamonds if there are any."""
    from matplotlib.lines import Line2D

    handles, labels = axes.get_legend_handles_labels()
    if any(line.get_marker() == "D" and line.get_color() == STATED for line in axes.get_lines()):
        diamond = Line2D([], [], color=STATED, marker="D", markerfacecolor="none", linestyle="")
        handles, labels = [*handles, diamond], [*labels, stated]
    axes.legend(handles, labels, fontsize=8, frameon=False)


def finish(
    axes: Axes, x_label: str, y_label: str, *, log_x: bool = False, log_y: bool = False
) -> None:
    """Label the axes; draw a grid for y only, and no frame."""
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(_short_log())
    if log_y:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(_short_log())
    axes.yaxis.set_major_formatter(lambda value, place: short(value))
    axes.grid(True, axis="y", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
