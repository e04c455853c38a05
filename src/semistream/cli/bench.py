"""``semistream bench model``: how good the cost models are, on an emulated disk and on this one.

Everything is measured; the report says where and how.
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

from semistream.advice.calibration import Calibration, calibrate
from semistream.cost.models import MODELS
from semistream.joins.registry import ALGORITHMS
from semistream.lab.dynamics import Recovery, rate_change, skew_change
from semistream.lab.validation import (
    EXPONENTS,
    SHARES,
    Bench,
    Choice,
    Errors,
    Point,
    StreamInput,
    Tuning,
    choice,
    choices_of,
    points,
    settings_of_grid,
    stream_input,
    tuning,
)

_TUNED = ("meshjoin", "rmeshjoin", "hybridjoin", "xhybridjoin", "cmeshjoin", "chybridjoin")
_REAL_BUFFERS = (0.5, 1.0)
_ROUNDS = 5


def run_bench_model(rows: int, device: str, quick: bool, out: Path | None) -> int:
    """Measure, print the tables, and write them to a file if one is named."""
    console = Console()
    emulated = None if device == "real" else device
    with (
        tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder,
        Progress(console=Console(stderr=True)) as progress,
    ):
        bench = Bench.build(Path(folder), rows, emulated)
        if emulated is None:
            bench.batch_rows, bench.rounds = 65_536, _ROUNDS
        report = "\n".join(_report(bench, quick, progress))
    console.print(report, markup=False, highlight=False)
    if out is not None:
        out.write_text(report + "\n")
        console.print(f"written to {out}")
    return 0


def _report(bench: Bench, quick: bool, progress: Progress) -> Iterator[str]:
    shares = SHARES[::3] if quick else SHARES
    exponents = EXPONENTS[::2] if quick else EXPONENTS
    where = (
        f"emulated {bench.device}, on its clock alone: computing takes no time"
        if bench.device
        else f"R in the page cache; each rate the best of {bench.rounds} rounds"
    )
    yield f"## {'Emulated ' + bench.device if bench.device else 'A real machine'}\n"
    yield (
        f"R of {bench.relation.row_count:,} rows of 120 bytes, S of 20 bytes, two columns added; "
        f"{where}.\n"
    )
    if bench.device is None:
        bench.calibration = _calibrate(bench, progress)
    options = {} if bench.device else {"buffers": _REAL_BUFFERS}
    # With a cache of this size `cinlj` would have to run for minutes until it is warm.
    slow = {a.name for a in ALGORITHMS.values() if a.has_front and a.one_tuple_at_a_time}
    names = [name for name in MODELS if bench.device or name not in slow]
    grids = {name: settings_of_grid(bench, name, shares, exponents, **options) for name in names}
    pairs = [(share, exponent) for exponent in exponents for share in shares]
    choices = [choices_of(bench, *pair) for pair in pairs]
    keys = [key for some in (*grids.values(), *choices) for key in some]
    rounds = bench.measure_in_rounds(keys)
    total = bench.rounds * len(set(keys))
    for _ in progress.track(rounds, total=total, description="service rates"):
        pass
    if bench.device is None:
        # Factors that were measured in a disturbed minute are too slow for all runs.
        bench.use_faster(_calibrate(bench, progress))
    yield from _table_of_errors([points(bench, grid) for grid in grids.values()])
    yield from _table_of_choices([choice(some, bench) for some in choices])
    if bench.device is not None:
        yield from _emulated_only(bench, quick, exponents, progress)


def _calibrate(bench: Bench, progress: Progress) -> Calibration:
    task = progress.add_task("calibrating", total=None)
    return calibrate(
        bench.relation,
        bench.spec,
        progress=lambda done, total: progress.update(task, completed=done, total=total),
    )


def _emulated_only(
    bench: Bench, quick: bool, exponents: Sequence[float], progress: Progress
) -> Iterator[str]:
    tunings = [(a, s, e) for a in _TUNED for s in (0.02, 0.1)[quick:] for e in (0.0, 1.0)]
    tracked = progress.track(tunings, description="tuning")
    yield from _table_of_tunings([tuning(bench, *t) for t in tracked])
    inputs = [(a, 0.05, e) for a in ("hybridjoin", "xhybridjoin") for e in exponents]
    yield from _table_of_inputs([stream_input(bench, *i) for i in inputs])
    yield from _table_of_recoveries(
        [
            skew_change(bench, 0.05, 0.0, 1.0),
            skew_change(bench, 0.05, 1.0, 0.0),
            rate_change(bench, 0.1, 4.0),
        ]
    )


def _table_of_errors(found: list[list[Point]]) -> Iterator[str]:
    yield "### Predicted against measured service rate\n"
    yield "| algorithm | points | median error | within 25 % | worst | bias |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for points_ in found:
        e = Errors.of(points_)
        yield (
            f"| {e.algorithm} | {e.points} | {e.median:.1%} | {e.within_25:.0%} | {e.worst:.0%} | "
            f"{e.bias:+.0%} |"
        )
    yield ""


def _table_of_choices(choices: list[Choice]) -> Iterator[str]:
    yield "### What auto chooses, against the best of all algorithms, each at its best split\n"
    yield "| memory | Zipf | auto | tuples/s | best | tuples/s | reached |"
    yield "| ---: | ---: | --- | ---: | --- | ---: | ---: |"
    for c in choices:
        yield (
            f"| {c.share:.0%} | {c.exponent} | {c.chosen} | {c.chosen_rate:,.0f} | {c.best} | "
            f"{c.best_rate:,.0f} | {c.chosen_rate / c.best_rate:.0%} |"
        )
    yield ""


def _table_of_tunings(tunings: list[Tuning]) -> Iterator[str]:
    yield "### Tuned and usual splits, against the best of a grid that was measured\n"
    yield "| algorithm | memory | Zipf | tuned, tuples/s | of the best | the usual split |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for t in tunings:
        yield (
            f"| {t.algorithm} | {t.share:.0%} | {t.exponent} | {t.tuned:,.0f} | "
            f"{t.tuned / t.best:.0%} | {t.usual / t.best:.0%} |"
        )
    losses = [1 - t.usual / t.best for t in tunings if "mesh" in t.algorithm]
    yield f"\nMESHJOIN's usual disk buffer loses {np.median(losses):.0%} (median) of the best.\n"


def _table_of_inputs(inputs: list[StreamInput]) -> Iterator[str]:
    yield "### w, the tuples that a loop serves: the papers' formulas and ours\n"
    yield "| algorithm | Zipf | measured | as printed | corrected | derived |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for i in inputs:
        yield (
            f"| {i.algorithm} | {i.exponent} | {i.measured:,.0f} | {i.printed:,.0f} | "
            f"{i.corrected:,.0f} | {i.derived:,.0f} |"
        )
    yield (
        "\nHYBRIDJOIN: equation 2 with the authors' k = 1.36, and with 2. X-HYBRIDJOIN: equation "
        "9, and with means in the place of variances; it assumes R sorted by frequency, which "
        "this R is not.\n"
    )


def _table_of_recoveries(recoveries: list[Recovery]) -> Iterator[str]:
    yield "### Dynamic tuning\n"
    yield "| change | retunings | back to 90 % after | rate then, of a fresh start's |"
    yield "| --- | ---: | ---: | ---: |"
    for r in recoveries:
        after = "never" if r.windows is None else f"{r.windows:.1f} windows"
        yield f"| {r.change} | {r.retunings} | {after} | {r.reached:.0%} |"
    yield ""
