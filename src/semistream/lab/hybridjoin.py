"""The figures of `hybridjoin.txt`: how R is used, the bursty generator, the experiments of 6.2.

All joins run on the disk with one cost for every request, as in the paper, which has one c_I/O; one
figure varies the seek time. The experiments with arrivals are in `hybridjoin_streams`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from semistream.budget.split import Split
from semistream.lab.canvas import Canvas
from semistream.lab.charts import (
    MAIN,
    SECOND,
    Lines,
    Stated,
    Validation,
    draw_intervals,
    finish,
    state,
)
from semistream.lab.claims import Claim, Row, Table
from semistream.lab.common import MB, ahead, models_track
from semistream.lab.figures import ONE_COST_DISK, Figure, Lab, Point
from semistream.lab.findings import hybridjoin as findings
from semistream.lab.hybridjoin_model import validation_points
from semistream.lab.hybridjoin_streams import (
    MEMORY,
    draw_intermittent,
    intermittent_points,
    memory_points,
    processing_points,
    seek_points,
    size_points,
    skewed,
    waiting_points,
)
from semistream.lab.runner import OURS
from semistream.workload.bursty import VirtualStreams

PAPER = "hybridjoin"
_PAGES_OF_R, _SEGMENT_PAGES = 16_000, 20
_STEPS = 65_536
_SALES_PER_PRODUCT = 20


def _use_points(lab: Lab) -> Sequence[Point]:
    def rows() -> list[Row]:
        workload = skewed(lab).workload
        sampled = 1_000_000
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
        measured = rig.measure("hybridjoin", MEMORY, Split(rig.pages_in(size_mb * MB)))
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
    draw_intervals(axes, table, "disk_buffer_mb", "tuples_per_s", SECOND)
    axes.plot(x, table.values("tuples_per_s"), "o-", color=SECOND, label="service rate")
    finish(axes, "disk buffer (MB), log", "service rate (tuples/s)", log_x=True)
    axes.set_ylim(bottom=0)
    other = axes.twinx()
    draw_intervals(other, table, "disk_buffer_mb", "io_ms_per_loop", MAIN)
    other.plot(x, table.values("io_ms_per_loop"), "s--", color=MAIN, label="I/O cost")
    other.set_ylabel("I/O cost (ms per loop)")
    other.set_ylim(bottom=0)
    other.spines["top"].set_visible(False)
    canvas.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)


def _sales_points(lab: Lab) -> Sequence[Point]:
    def rows() -> list[Row]:
        workload = skewed(lab).workload
        rows = workload.relation_rows
        # So many that the products sold most are not those with luck.
        sold, piece = _SALES_PER_PRODUCT * rows, _SALES_PER_PRODUCT * rows // 20
        counts = np.zeros(rows, np.int64)
        for first in range(0, sold, piece):
            keys = workload.stream_rows(first, piece).column("k").to_numpy()
            counts += np.bincount(keys, minlength=rows)
        counts = np.sort(counts)[::-1]
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
        # A flow for each of three seeds: their mean would have fewer bursts.
        flows = [
            VirtualStreams(np.random.default_rng(lab.seed + i)).advance(_STEPS).astype(float)
            for i in range(len(findings.FLOWS))
        ]
        return [
            {"step": float(step), **dict(zip(findings.FLOWS, tuples, strict=True))}
            for step, tuples in enumerate(zip(*(flow.tolist() for flow in flows), strict=True))
        ]

    return [rows]


def _draw_flow(canvas: Canvas, table: Table) -> None:
    flow = np.array(table.values(findings.FLOWS[0]))
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
    draw_intervals(left, table, "products_percent", "sales_per_product", MAIN)
    left.plot(x, table.values("sales_per_product"), "o-", color=MAIN, markersize=4)
    finish(left, "product, by rank (% of all products)", "sales of the product, log", log_y=True)
    draw_intervals(right, table, "products_percent", "sales_percent", MAIN)
    right.plot(x, table.values("sales_percent"), "o-", color=MAIN, markersize=4)
    state(right, [Stated(20, 80, "80/20 rule")])
    finish(right, "most sold products (% of all)", "share of the sales (%)")
    right.set_ylim(0, 101)


_NOT_SHRINKING = (
    "The lead is about the same at every size. With one cost for all, HYBRIDJOIN gains because its "
    "slots are free again once their tuples are resolved: with many loads a slot resolves nearly "
    "two tuples in a cycle. A larger R has more loads, but its best ones are smaller and cost more."
)
_ON_BURSTS = (
    "The paper's bursty stream, at a mean rate half above what the faster of MESHJOIN and "
    "HYBRIDJOIN can serve. Waiting and processing times are in the data. With computing "
    "charged: always finding tuples, at measured cost factors of a server of 2026."
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

_FIGURES = (
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
        note="The flow of the first of three seeds; the claims are judged on each of them.",
        medium="generated stream",
        is_random=False,
    ),
    Figure(
        PAPER,
        "10a",
        "Processing time of a tuple by size of R, 50 MB",
        processing_points,
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
                "first resembles a cycle over all of R: by Little's law the latency in a full "
                "window is slots/rate.",
            ),
        ),
        note="On the paper's bursty stream, without the time in which a join waits for tuples. "
        "HYBRIDJOIN: with the lowest and the highest mean arrival rate of the paper's table 2.",
        needs_clock=True,
    ),
    Figure(
        PAPER,
        "10b",
        "Waiting time by arrival rate, bursty; R of 2M rows, 50 MB",
        waiting_points,
        Lines(
            "arrivals_per_s",
            "seconds",
            "mean arrivals (tuples/s), log",
            "mean waiting time (s), log",
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
                why="INLJ's rate is about 115 tuples/s on this disk. Bursts exceed it though the "
                "mean does not, and then a backlog builds up.",
            ),
        ),
        note="On the paper's bursty stream. Waiting time is all but the processing time, which is "
        "in the data too: until the join takes a tuple, and in its window while it waits for "
        "others. INLJ's is that of a run of 20 s.",
        needs_clock=True,
    ),
    Figure(
        PAPER,
        "10c",
        "MESHJOIN, HYBRIDJOIN and INLJ on bursts by size of R, 50 MB, Zipf 1",
        size_points,
        BY_SIZE,
        (
            Claim(
                "HYBRIDJOIN's rate is higher than MESHJOIN's.",
                "section 6.2.1, figure 10(c)",
                partial(ahead, x="rows_millions", winner="hybridjoin", loser="meshjoin"),
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
                why=_NOT_SHRINKING,
            ),
        ),
        note=_ON_BURSTS,
    ),
    Figure(
        PAPER,
        "seek",
        "HYBRIDJOIN's lead over MESHJOIN by the time of a seek, 50 MB, Zipf 1",
        seek_points,
        Lines(
            "seek_ms",
            "lead",
            "seek of a load that does not follow the last one (ms)",
            "HYBRIDJOIN's rate over MESHJOIN's",
            "rows_millions",
            named=lambda rows: f"R of {rows:g}M rows",
        ),
        (
            Claim(
                "Without seeks HYBRIDJOIN's rate is higher than MESHJOIN's.",
                OURS,
                findings.turns_at,
            ),
        ),
        note="The paper's disk with other seek times. MESHJOIN reads on where it stopped and never "
        "seeks; HYBRIDJOIN seeks for every load. Both always find tuples.",
        medium="hdd-papers with other seek times, emulated, in miniature",
        is_random=False,
    ),
    Figure(
        PAPER,
        "10d",
        "MESHJOIN, HYBRIDJOIN and INLJ on bursts by memory, R of 2M rows, Zipf 1",
        memory_points,
        BY_MEMORY,
        (
            Claim(
                "HYBRIDJOIN's rate is higher than MESHJOIN's, at every budget.",
                "section 6.2.1, figure 10(d)",
                partial(ahead, x="memory_mb", winner="hybridjoin", loser="meshjoin"),
                why="The lead is small, and what is left of it in bursts differs with the seed.",
            ),
            Claim(
                "HYBRIDJOIN's rate is higher than INLJ's, at every budget.",
                "section 6.2.1, figure 10(d)",
                partial(ahead, x="memory_mb", winner="hybridjoin", loser="inlj"),
            ),
        ),
        note=_ON_BURSTS,
    ),
    Figure(
        PAPER,
        "intermittent",
        "HYBRIDJOIN and MESHJOIN on a stream that pauses; R of 2M rows, 50 MB",
        intermittent_points,
        draw_intermittent,
        (
            Claim(
                "HYBRIDJOIN goes on when no tuples arrive; MESHJOIN pauses and leaves tuples "
                "unresolved.",
                "section 5; no figure",
                findings.does_not_stop,
            ),
            Claim(
                "HYBRIDJOIN keeps a tuple's stay short on an intermittent stream.",
                "sections 1 and 4.1; no figure",
                findings.serves_at_once,
            ),
        ),
        note="1,000 tuples a second arrive for 10 s, then none for a while, again and again.",
        needs_clock=True,
        size=(10.8, 4.4),
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
                why="Equation 2 was fitted to the authors' machine, k = 1.36. It follows from the "
                "algorithm for loads of 2 MB; here they are larger. INLJ and MESHJOIN are close.",
            ),
        ),
        note="The paper's equations as printed, with this disk's c_I/O and for the tuples that "
        "wait here, and our own models.",
        needs_clock=True,
    ),
)

FIGURES = tuple(replace(figure, disk=ONE_COST_DISK) for figure in _FIGURES)
