"""The figures of `hybridjoin.txt`: how R is used, the bursty generator, the experiments of 6.2."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from semistream.budget.meshjoin import MeshJoinSettings
from semistream.budget.split import Split
from semistream.lab.canvas import Canvas
from semistream.lab.charts import MAIN, SECOND, Lines, Stated, Validation, finish, state
from semistream.lab.claims import Claim, Row, Table
from semistream.lab.common import MB, ahead, models_track, rate_row
from semistream.lab.figures import Figure, Lab, Point
from semistream.lab.findings import hybridjoin as findings
from semistream.lab.latency import latency_at_full_speed, latency_at_rate
from semistream.lab.rig import Rig
from semistream.workload.bursty import VirtualStreams
from semistream.workload.synthetic import Synthetic

PAPER = "hybridjoin"
_TIMES = 10
_PAGE_BYTES = 8_192
ROWS = 2_000_000
SIZES = (0.5e6, 1e6, 2e6, 4e6, 8e6)
BUDGETS_MB = (50.0, 100.0, 150.0, 200.0, 250.0)
_MEMORY = 50 * MB
_PAGES_OF_R, _SEGMENT_PAGES = 16_000, 20
_STEPS = 65_536


def skewed(lab: Lab, rows: float = ROWS, exponent: float = 1.0) -> Rig:
    """Return the rig of table 2: R sorted by how often the stream requests a row."""

    def make(times: float) -> Synthetic:
        return Synthetic(int(rows / times), exponent, by_frequency=True, seed=lab.seed)

    return lab.rig(make, lab.times(_TIMES), page_bytes=_PAGE_BYTES)


def _use_points(lab: Lab) -> Sequence[Point]:
    def rows() -> list[Row]:
        workload = skewed(lab).workload
        sampled = 2_000_000
        keys = workload.stream_rows(0, sampled).column("k").to_numpy()
        # R has 16,000 pages in the figure, all with the same number of rows.
        pages = keys * _PAGES_OF_R // workload.relation_rows
        counts = np.bincount(pages, minlength=_PAGES_OF_R)
        found: list[Row] = []
        for first in np.unique(np.geomspace(1, _PAGES_OF_R - _SEGMENT_PAGES, 24).astype(int)):
            used = counts[first : first + _SEGMENT_PAGES].sum()
            found.append({"page": float(first), "uses_per_million": used / sampled * 1e6})
        return found

    return [rows]


def _buffer_points(lab: Lab) -> Sequence[Point]:
    def row(size_mb: float) -> Row:
        rig = skewed(lab)
        measured = rig.measure("hybridjoin", _MEMORY, Split(rig.pages_in(size_mb * MB)))
        return {
            "disk_buffer_mb": measured.settings.pages_per_read * rig.page_bytes / MB,
            "tuples_per_s": measured.rate,
            "tuples_per_loop": measured.tuples_per_loop * rig.times,
            "io_ms_per_loop": measured.loop_s * 1e3,
        }

    return [partial(row, size) for size in (0.08, 0.16, 0.33, 0.65, 1.3, 2.6, 5.2, 8, 12, 18, 26)]


def _draw_buffer(canvas: Canvas, table: Table) -> None:
    axes = canvas.add_subplot()
    x = table.values("disk_buffer_mb")
    axes.plot(x, table.values("tuples_per_s"), "o-", color=SECOND, label="service rate")
    finish(axes, "disk buffer (MB), log", "service rate (tuples/s)", log_x=True)
    axes.set_ylim(bottom=0)
    other = axes.twinx()
    other.plot(x, table.values("io_ms_per_loop"), "s--", color=MAIN, label="I/O cost")
    other.set_ylabel("I/O cost (ms per loop)")
    other.set_ylim(bottom=0)
    other.spines["top"].set_visible(False)
    canvas.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)


def _sales_points(lab: Lab) -> Sequence[Point]:
    def rows() -> list[Row]:
        workload = skewed(lab).workload
        sold = 4_000_000
        keys = workload.stream_rows(0, sold).column("k").to_numpy()
        counts = np.sort(np.bincount(keys, minlength=workload.relation_rows))[::-1]
        cumulated = np.cumsum(counts) / sold
        shares = [*np.linspace(0.01, 0.1, 10), *np.linspace(0.15, 1.0, 18)]
        return [
            {
                "products_percent": share * 100,
                "sales_percent": cumulated[int(share * len(counts)) - 1] * 100,
                "sales_per_product": float(counts[int(share * len(counts)) - 1]),
            }
            for share in shares
        ]

    return [rows]


def _flow_points(lab: Lab) -> Sequence[Point]:
    def rows() -> list[Row]:
        flow = VirtualStreams(np.random.default_rng(lab.seed)).advance(_STEPS)
        return [{"step": float(i), "tuples": float(n)} for i, n in enumerate(flow.tolist())]

    return [rows]


def _draw_flow(canvas: Canvas, table: Table) -> None:
    flow = np.array(table.values("tuples"))
    panels = canvas.subplots(3, 1)
    for axes, group in zip(panels, (1, 16, 256), strict=True):
        shown = flow[: group * 256].reshape(-1, group).mean(axis=1)
        axes.fill_between(range(256), shown, step="mid", color=MAIN, linewidth=0)
        finish(axes, "", "tuples/step")
        axes.set_title(f"256 points of {group} step{'s' * (group > 1)} each", fontsize=8)
        axes.set_xlim(0, 255)
    panels[-1].set_xlabel("point in time")


def _draw_sales(canvas: Canvas, table: Table) -> None:
    left, right = canvas.subplots(1, 2)
    x = table.values("products_percent")
    left.plot(x, table.values("sales_per_product"), "o-", color=MAIN, markersize=4)
    finish(left, "product, by rank (% of all products)", "sales of the product, log", log_y=True)
    right.plot(x, table.values("sales_percent"), "o-", color=MAIN, markersize=4)
    state(right, [Stated(20, 80, "80/20 rule")])
    finish(right, "most sold products (% of all)", "share of the sales (%)")
    right.set_ylim(0, 101)


def _processing_points(lab: Lab) -> Sequence[Point]:
    def row(rows: float, algorithm: str) -> Row:
        rig = skewed(lab, rows)
        if algorithm == "meshjoin":
            split = rig.tuned(algorithm, _MEMORY).split
            latency = latency_at_full_speed(rig, algorithm, _MEMORY, split)
        else:
            one_page = algorithm == findings.ONE_PAGE
            split = Split(1) if one_page else rig.tuned("hybridjoin", _MEMORY).split
            rate = findings.AT_RATES.get(algorithm, 125.0)
            latency = latency_at_rate(rig, "hybridjoin", _MEMORY, split, rate, seconds=60.0)
        return {"rows_millions": rows / 1e6, "algorithm": algorithm, "seconds": latency.mean_s}

    names = ("meshjoin", *findings.AT_RATES, findings.ONE_PAGE)
    return [partial(row, size, name) for name in names for size in SIZES]


def _waiting_points(lab: Lab) -> Sequence[Point]:
    def row(rate: float, algorithm: str) -> Row:
        rig = skewed(lab)
        tuned = rig.tuned(algorithm, _MEMORY)
        seconds, entering = 60.0, 1
        if isinstance(tuned.settings, MeshJoinSettings):
            entering = tuned.settings.tuples_per_read
            seconds = 2 * tuned.settings.places / rate
        latency = latency_at_rate(rig, algorithm, _MEMORY, tuned.split, rate, seconds, entering)
        return {"arrivals_per_s": rate, "algorithm": algorithm, "seconds": latency.mean_s}

    names = ("meshjoin", "hybridjoin", "inlj")
    return [partial(row, rate, name) for name in names for rate in findings.RATES]


def _size_points(lab: Lab) -> Sequence[Point]:
    def rows(size: float, algorithm: str) -> list[Row]:
        return rate_row(skewed(lab, size), algorithm, _MEMORY, rows_millions=size / 1e6)

    names = ("meshjoin", "hybridjoin", "inlj")
    return [partial(rows, size, name) for name in names for size in SIZES]


def _memory_points(lab: Lab) -> Sequence[Point]:
    def rows(memory: float, algorithm: str) -> list[Row]:
        return rate_row(skewed(lab), algorithm, memory * MB, memory_mb=memory)

    names = ("meshjoin", "hybridjoin", "inlj")
    return [partial(rows, memory, name) for name in names for memory in BUDGETS_MB]


def validation_points(
    lab: Lab, algorithms: Sequence[str], budgets_mb: Sequence[float] = BUDGETS_MB
) -> list[Point]:
    """Return predicted and measured rates by budget."""

    def rows(memory: float, algorithm: str) -> list[Row]:
        rig = skewed(lab)
        measured = rig.measure_tuned(algorithm, memory * MB)
        predicted = rig.predict(algorithm, measured).rate
        rates = {"measured": measured.rate, "model": predicted}
        return [
            {"memory_mb": memory, "algorithm": algorithm, "what": w, "tuples_per_s": r}
            for w, r in rates.items()
        ]

    return [partial(rows, memory, name) for name in algorithms for memory in budgets_mb]


_ABOUT_EQUAL = (
    "HYBRIDJOIN's slots are free again once their tuples are resolved, but each load costs a seek. "
    "With R sorted by frequency one load resolves most of the stream, and its slots are filled "
    "again by tuples that have just missed it. On this disk the two are about equal; with popular "
    "rows anywhere in R HYBRIDJOIN is ahead (see the summary)."
)
_RATE = "service rate (tuples/s)"
BY_SIZE = Lines(
    "rows_millions",
    "tuples_per_s",
    "rows of R (millions), log",
    f"{_RATE}, log",
    "algorithm",
    log_x=True,
    log_y=True,
    ticks_at_points=True,
)
BY_MEMORY = Lines(
    "memory_mb", "tuples_per_s", "memory (MB)", f"{_RATE}, log", "algorithm", log_y=True
)

FIGURES = (
    Figure(
        PAPER,
        "3",
        "How often 20 pages of R are requested, by their position in R; Zipf 1",
        _use_points,
        Lines(
            "page",
            "uses_per_million",
            "first page of the segment, of 16,000, log",
            "uses per million tuples, log",
            log_x=True,
            log_y=True,
        ),
        (
            Claim(
                "Pages are used less and less towards the end of R, so a scan reads most of them "
                "for few tuples.",
                "section 3, figure 3",
                findings.use_falls,
            ),
        ),
        medium="generated stream",
    ),
    Figure(
        PAPER,
        "6",
        "HYBRIDJOIN by disk buffer: rate and I/O cost; R of 2M rows, 50 MB",
        _buffer_points,
        _draw_buffer,
        (
            Claim(
                "The rate grows with the disk buffer up to some size and falls after it.",
                "section 4.5, figure 6",
                findings.peak_by_buffer,
            ),
            Claim(
                "At first it grows because more of the queue matches what is read.",
                "section 4.5, figure 6",
                findings.more_match,
            ),
            Claim(
                "The I/O cost of a loop grows with the disk buffer.",
                "section 4.5, figure 6",
                findings.io_grows,
            ),
        ),
    ),
    Figure(
        PAPER,
        "8",
        "The generator: how often products are sold",
        _sales_points,
        _draw_sales,
        (
            Claim(
                "A power law with exponent 1 gives 20 % of the products 80 % of the sales.",
                "section 5, figure 8",
                findings.eighty_twenty,
                why="Over n products exponent 1 gives the first fifth a share of about "
                "1 − 1.6/ln n: 87 % for 200,000 products, 89 % for 2 million. It is 80 % for 1,750 "
                "products.",
            ),
        ),
        medium="generated stream",
    ),
    Figure(
        PAPER,
        "9",
        "The generator: sales come in bursts on many time scales",
        _flow_points,
        _draw_flow,
        (
            Claim(
                "The flow varies with time, in bursts.", "section 5, figure 9", findings.is_bursty
            ),
            Claim(
                "The flow is self-similar.",
                "section 5, figure 9",
                findings.is_self_similar,
                why="Every stream switches at least once in 1,024 steps; beyond that nothing makes "
                "bursts.",
            ),
        ),
        medium="generated stream",
    ),
    Figure(
        PAPER,
        "10a",
        "Processing time of a tuple by size of R, 50 MB",
        _processing_points,
        Lines(
            "rows_millions",
            "seconds",
            "rows of R (millions), log",
            "mean processing time (s), log",
            "algorithm",
            log_x=True,
            log_y=True,
            ticks_at_points=True,
        ),
        (
            Claim(
                "A tuple's processing time is far shorter with HYBRIDJOIN than with MESHJOIN.",
                "section 6.2.1, figure 10(a)",
                findings.latency_is_lower,
                why="With a disk buffer tuned for the highest rate a load takes long, and tuples "
                "wait for several loads. The more tuples arrive, the more a queue served oldest "
                "first resembles a cycle over all of R, with a seek for each load: by Little's law "
                "the latency in a full window is slots/rate.",
            ),
        ),
        note="MESHJOIN always finds tuples to read, so none waits for others. HYBRIDJOIN: with the "
        "lowest and the highest arrival rate of the paper's table 2.",
        needs_clock=True,
    ),
    Figure(
        PAPER,
        "10b",
        "Latency by arrival rate; R of 2M rows, 50 MB",
        _waiting_points,
        Lines(
            "arrivals_per_s",
            "seconds",
            "arrivals (tuples/s), log",
            "mean latency (s), log",
            "algorithm",
            log_x=True,
            log_y=True,
            ticks_at_points=True,
        ),
        (
            Claim(
                "Tuples wait longer with MESHJOIN than with HYBRIDJOIN.",
                "section 6.2.1, figure 10(b)",
                findings.meshjoin_waits,
            ),
            Claim(
                "INLJ falls behind, the more so the faster the stream.",
                "section 6.2.1, figure 10(b)",
                findings.inlj_falls_behind,
            ),
            Claim(
                "Below some 150 tuples per second HYBRIDJOIN is slower than INLJ.",
                "section 6.2.1, figure 10(b)",
                findings.inlj_first,
                why="INLJ's rate is 118 tuples/s on this disk; from there on it falls behind.",
            ),
        ),
        note="The paper shows waiting time alone; here it is the whole latency. MESHJOIN waits for "
        "its next w tuples, as in the paper; at quick scale its window, and so its waiting time, "
        "is a tenth of the paper's. INLJ's latency is that of a run of 60 s.",
        needs_clock=True,
    ),
    Figure(
        PAPER,
        "10c",
        "MESHJOIN, HYBRIDJOIN and INLJ by size of R, 50 MB, Zipf 1",
        _size_points,
        BY_SIZE,
        (
            Claim(
                "HYBRIDJOIN's rate is higher than MESHJOIN's.",
                "section 6.2.1, figure 10(c)",
                partial(ahead, x="rows_millions", winner="hybridjoin", loser="meshjoin"),
                why=_ABOUT_EQUAL,
            ),
            Claim(
                "HYBRIDJOIN's rate is higher than INLJ's.",
                "section 6.2.1, figure 10(c)",
                partial(ahead, x="rows_millions", winner="hybridjoin", loser="inlj"),
            ),
            Claim(
                "Its lead is largest for a small R and shrinks as R grows.",
                "section 6.2.1, figure 10(c)",
                findings.gain_shrinks,
                why="In this miniature there is hardly a lead to shrink; see the claim above.",
            ),
        ),
    ),
    Figure(
        PAPER,
        "10d",
        "MESHJOIN, HYBRIDJOIN and INLJ by memory, R of 2M rows, Zipf 1",
        _memory_points,
        BY_MEMORY,
        (
            Claim(
                "HYBRIDJOIN's rate is higher than MESHJOIN's, at every budget.",
                "section 6.2.1, figure 10(d)",
                partial(ahead, x="memory_mb", winner="hybridjoin", loser="meshjoin"),
                why=_ABOUT_EQUAL,
            ),
            Claim(
                "HYBRIDJOIN's rate is higher than INLJ's, at every budget.",
                "section 6.2.1, figure 10(d)",
                partial(ahead, x="memory_mb", winner="hybridjoin", loser="inlj"),
            ),
        ),
    ),
    Figure(
        PAPER,
        "11",
        "Cost models against measurement: MESHJOIN, HYBRIDJOIN, INLJ",
        lambda lab: validation_points(lab, ("meshjoin", "hybridjoin", "inlj")),
        Validation("memory_mb", "memory (MB)", f"{_RATE}, log", log_y=True),
        (
            Claim(
                "Predicted and measured cost are close, for all three.",
                "section 6.2.2, figure 11",
                models_track,
                why="HYBRIDJOIN's most popular load resolves most of the stream and is read at "
                "varying intervals; the model assumes even intervals.",
            ),
        ),
        note="The models are ours: they derive the number that the paper's equation 2 fits to "
        "measurements. docs/model-validation.md compares with the equations as printed.",
        needs_clock=True,
    ),
)
