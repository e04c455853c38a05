"""``semistream lab``: the papers' figures, made here and judged."""

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table as ConsoleTable

from semistream.errors import OptionError, did_you_mean
from semistream.lab.catalogue import FIGURES
from semistream.lab.claims import Verdict
from semistream.lab.figures import SCALES, Figure, Lab
from semistream.lab.report import write_report
from semistream.lab.runner import Result, results_in, run_figure, share_that_holds

_COLOURS = {Verdict.HOLDS: "green", Verdict.IN_SHAPE: "cyan", Verdict.NOT_HERE: "yellow"}


def list_figures() -> int:
    """Print every figure with its title."""
    table = ConsoleTable("figure", "what it shows", "claims", box=None, pad_edge=False)
    for name, figure in FIGURES.items():
        table.add_row(name, figure.title, str(len(figure.claims)))
    Console().print(table)
    return 0


def run_figures(names: Sequence[str], scale: str, device: str, seed: int, out: Path) -> int:
    """Make figures, print their verdicts, and write the report of all that are in the folder."""
    figures = choose(names)
    console = Console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with (
        tempfile.TemporaryDirectory(prefix="semistream-lab-") as folder,
        Progress(*columns, console=console) as progress,
    ):
        lab = Lab(Path(folder), SCALES[scale], device, seed)
        overall = progress.add_task("all figures", total=len(figures))
        results = []
        for figure in figures:
            task = progress.add_task(figure.name, total=None)
            update = partial(_update, progress, task)
            result = run_figure(figure, lab, out, update)
            progress.remove_task(task)
            progress.advance(overall)
            _print(result, progress.console)
            results.append(result)
    hold, claims = share_that_holds(results)
    if claims:
        console.print(f"\n{hold} of {claims} claims hold, at least in shape ({hold / claims:.0%}).")
    return make_report(out)


def make_report(out: Path) -> int:
    """Write one page of all the figures in a folder."""
    results = results_in(out)
    if not results:
        raise OptionError(
            f"there are no figures in {out}; make some: semistream lab run --out {out}"
        )
    path = write_report(results, out, list(FIGURES))
    Console().print(f"{len(results)} figures in {out}; all on one page: {path}")
    return 0


def choose(names: Sequence[str]) -> list[Figure]:
    """Return the figures of these names, or of these papers; all of them if there are none."""
    chosen: dict[str, Figure] = {}
    for name in names or [figure.paper for figure in FIGURES.values()]:
        found = [f for f in FIGURES.values() if name in (f.name, f.paper)]
        if not found:
            known = [*FIGURES, *(figure.paper for figure in FIGURES.values())]
            raise OptionError(
                f"there is no figure {name!r}.{did_you_mean(name, known)} "
                "`semistream lab list` names them all"
            )
        chosen.update({figure.name: figure for figure in found})
    return list(chosen.values())


def _update(progress: Progress, task: TaskID, done: int, total: int) -> None:
    progress.update(task, completed=done, total=total)


def _print(result: Result, console: Console) -> None:
    console.print(f"[bold]{result.name}[/bold]  {result.title}  ({result.seconds:.0f} s)")
    for claim in result.claims:
        colour = _COLOURS[Verdict(claim.verdict)]
        console.print(f"  [{colour}]{claim.verdict}[/{colour}]: {claim.says} {claim.number}")
