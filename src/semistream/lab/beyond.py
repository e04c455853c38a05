"""Beyond the papers: which algorithm wins where, over skews, budgets and devices.

Here R is read as the product reads it: keys first, other columns only for keys that matched. Every
algorithm has the split that the cost model rates best. A device's clock counts no computing, and
some algorithms hardly read; so `COMPUTING_S` is charged for each tuple, about the time that a join
with all of R in memory needs on one core. No algorithm is faster than that.

Two lines are no algorithm: all of R in memory, which is that charge alone and a bound of all; and
the *best fixed cache before MESHJOIN*, for a stream that it knows in advance. That one bounds only
CMESHJOIN: a join that reads by index may be faster.
"""

from collections.abc import Sequence
from functools import partial
from itertools import islice

from semistream.joins.registry import ALGORITHMS, BOUNDS, make_operator
from semistream.lab.canvas import Axes, Canvas
from semistream.lab.charts import finish, style_of
from semistream.lab.claims import Claim, Finding, Row, Table
from semistream.lab.figures import Figure, Lab, Point
from semistream.lab.validation import Bench, Key
from semistream.relation.device import Reading

PAPER = "beyond"
COMPUTING_S = 0.25e-6
_DEVICES = ("hdd-2007", "ssd", "object-store")
_EXPONENTS = (0.0, 0.5, 0.8, 1.0, 1.2)
_SHARES = (0.01, 0.05, 0.2)
_RESIDENT = "resident"
_OFFLINE = next(name for name in BOUNDS if name != _RESIDENT)
# Every algorithm but those that read a page for each tuple behind a cache: INLJ alone shows that.
_COMPARED = tuple(
    a.name
    for a in ALGORITHMS.values()
    if a.family != "bound" and not (a.one_tuple_at_a_time and a.has_front)
)
_ROWS = 3_500_000
_TIMES = 10
# For the warm-up, and again to be measured: where nearly all tuples hit, a cycle would not end.
_MOST_TUPLES_PER_ROW = 12
_WINDOWS = 12  # length of the fixed cache's stream, in windows


def _bench(lab: Lab, device: str) -> Bench:
    times = lab.times(_TIMES)
    built = lab.keep(PAPER, lambda: Bench.build(lab.folder, int(_ROWS / times), None, lab.seed))

    def make() -> Bench:
        return Bench(
            built.relation,
            built.workload,
            device,
            warm_cycles=2.0,
            cycles=1.0,
            most_tuples=_MOST_TUPLES_PER_ROW * int(_ROWS / times),
            batch_rows=4096,
            times=times,
        )

    return lab.keep((PAPER, device), make)


def _points(lab: Lab) -> Sequence[Point]:
    def row(device: str, exponent: float, share: float, algorithm: str) -> Row:
        return {
            "device": device,
            "exponent": exponent,
            "memory_percent": share * 100,
            "algorithm": algorithm,
            "tuples_per_s": _rate(_bench(lab, device), algorithm, share, exponent),
        }

    return [
        partial(row, device, exponent, share, name)
        for device in _DEVICES
        for share in _SHARES
        for name in (*_COMPARED, *BOUNDS)
        for exponent in _EXPONENTS
    ]


def _rate(bench: Bench, algorithm: str, share: float, exponent: float) -> float:
    if algorithm == _RESIDENT:
        return 1 / COMPUTING_S
    if algorithm == "inlj":  # a read for each tuple, whatever its key and the memory
        share, exponent = _SHARES[0], _EXPONENTS[0]
    if algorithm == _OFFLINE:
        rate = _offline_rate(bench, share, exponent)
    else:
        rate = bench.measure(*_tuned(bench, algorithm, share, exponent)).rate
    return 1 / (1 / rate + COMPUTING_S)


def _tuned(bench: Bench, algorithm: str, share: float, exponent: float) -> Key:
    split = bench.tuned(algorithm, share, exponent).tuned.split
    return algorithm, share, exponent, split


def _offline_rate(bench: Bench, share: float, exponent: float) -> float:
    """Return the fixed cache's rate over the middle of a stream that is known as a whole."""
    tuned = bench.tuned("cmeshjoin", share, exponent).tuned
    if not tuned.cached_rows:  # not even the best cache pays
        return bench.measure(*_tuned(bench, "meshjoin", share, exponent)).rate
    assert bench.device is not None
    device = bench.new_device(bench.device)
    relation = bench.relation.read_by(Reading(device))
    budget = bench.budget(share)
    operator = make_operator(_OFFLINE, relation, bench.spec, budget, None, tuned.split)
    passing = max(0.02, 1 - tuned.prediction.hit_ratio)
    count = int(_WINDOWS * tuned.settings.places / passing / bench.batch_rows) + 1
    marks = [(0, 0.0)]
    for batch in operator.join(islice(bench.workload.endless(exponent, bench.batch_rows), count)):
        marks.append((marks[-1][0] + batch.num_rows, device.now_s))
    if marks[-1][0] != count * bench.batch_rows:
        raise AssertionError(f"of {count * bench.batch_rows} rows {marks[-1][0]} were joined")
    (first, began), (last, ended) = marks[len(marks) // 3], marks[len(marks) * 3 // 4]
    return (last - first) / max(1e-9, ended - began)


def _winners(table: Table) -> dict[tuple[str, float, float], tuple[str, float]]:
    """Return, for each device, budget and skew, the fastest algorithm and its rate."""
    winners: dict[tuple[str, float, float], tuple[str, float]] = {}
    for row in table:
        if row["algorithm"] in BOUNDS:
            continue
        place = (str(row["device"]), float(row["memory_percent"]), float(row["exponent"]))
        rate = float(row["tuples_per_s"])
        if rate > winners.get(place, ("", 0.0))[1]:
            winners[place] = (str(row["algorithm"]), rate)
    return winners


def _caches_win(table: Table) -> Finding:
    winners = {p: name for p, (name, _) in _winners(table).items() if p[2] >= 1}
    wins = [ALGORITHMS[name] for name in winners.values()]
    cached = sum(algorithm.has_front or algorithm.pins_pages for algorithm in wins)
    return Finding.of(
        f"in {cached} of {len(winners)} settings",
        holds=cached == len(winners),
        in_shape=cached >= 0.8 * len(winners),
    )


def _none_wins_everywhere(table: Table) -> Finding:
    names = [name for name, _ in _winners(table).values()]
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    told = ", ".join(f"{name} {n}" for name, n in sorted(counts.items(), key=lambda c: -c[1]))
    return Finding.of(f"of {len(names)} settings: {told}", holds=len(counts) > 1)


def _near_the_offline_bound(table: Table) -> Finding:
    shares = []
    for device in table.distinct("device"):
        for memory in table.distinct("memory_percent"):
            here = table.where(device=device, memory_percent=memory)
            bound = here.lookup("exponent", "tuples_per_s", algorithm=_OFFLINE)
            scan = here.lookup("exponent", "tuples_per_s", algorithm="meshjoin")
            ours = here.lookup("exponent", "tuples_per_s", algorithm="cmeshjoin")
            # Only where a cache pays at all.
            shares += [ours[e] / bound[e] for e in ours if bound[e] > 1.1 * scan[e]]
    shares.sort()
    middle = shares[len(shares) // 2]
    return Finding.of(
        f"{shares[0]:.0%} at the least, {middle:.0%} in the middle",
        holds=shares[0] >= 0.8,
        in_shape=middle >= 0.8,
    )


def _draw(canvas: Canvas, table: Table) -> None:
    devices, budgets = table.distinct("device"), table.distinct("memory_percent")
    panels = canvas.subplots(len(devices), len(budgets), sharex=True, sharey=True, squeeze=False)
    for i, device in enumerate(devices):
        for j, budget in enumerate(budgets):
            axes = panels[i, j]
            _draw_panel(axes, table.where(device=device, memory_percent=budget))
            last = i == len(devices) - 1
            finish(
                axes,
                "Zipf exponent" if last else "",
                f"{device}\ntuples/s, log" if j == 0 else "",
                log_y=True,
            )
            if i == 0:
                axes.set_title(f"memory {budget:g} % of R", fontsize=9)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)


def _draw_panel(axes: Axes, here: Table) -> None:
    """Draw one device and budget: a line per algorithm, a ring around each winner."""
    inlj = here.where(algorithm="inlj").values("tuples_per_s")[0]
    axes.text(0.5, 0.02, f"INLJ: {inlj:,.0f}", transform=axes.transAxes, fontsize=7)
    for name in here.distinct("algorithm"):
        if name == "inlj":  # far below the others: its rate is given as text
            continue
        style, rows = style_of(name), here.where(algorithm=name)
        axes.plot(
            rows.values("exponent"),
            rows.values("tuples_per_s"),
            "--" if name == _RESIDENT else style.line,
            color=style.colour,
            marker="" if name == _RESIDENT else style.marker,
            markersize=4,
            linewidth=1.2,
            label=style.label,
        )
    for (_, _, exponent), (name, rate) in _winners(here).items():
        colour = style_of(name).colour
        axes.plot([exponent], [rate], "o", color=colour, markersize=11, markerfacecolor="none")


FIGURES = (
    Figure(
        PAPER,
        "summary",
        "Which algorithm wins where (ringed), with all of R in memory, and the best fixed cache",
        _points,
        _draw,
        (
            Claim(
                "No algorithm wins everywhere, which is why `auto` chooses by a model.",
                "ours",
                _none_wins_everywhere,
            ),
            Claim(
                "From exponent 1 on, a join that keeps popular rows in memory wins everywhere.",
                "ours",
                _caches_win,
            ),
            Claim(
                "CMESHJOIN comes near to the best fixed cache before MESHJOIN.",
                "ours",
                _near_the_offline_bound,
                why="The front stage has to learn the hot keys; the fixed cache has them from the "
                "beginning. "
                "With little skew and much memory, learning takes longer than these runs.",
            ),
        ),
        note="All three devices are emulated, each with its own clock, whatever --device says; "
        f"{COMPUTING_S * 1e6:g} µs of computing per tuple are added. Keys are read first, "
        "unlike in the papers' figures.",
        medium="hdd-2007, ssd and object-store, emulated, in miniature",
        is_random=False,
        size=(9.6, 9.6),
    ),
)
