"""``semistream lab``: makes the papers' figures and judges their claims."""

import tempfile
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.managers import SyncManager
from pathlib import Path
from queue import Empty, Queue
from typing import TypeAlias

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table as ConsoleTable

from semistream.cli.children import children_end_on_errors, end_with_parent
from semistream.errors import OptionError, did_you_mean
from semistream.lab.catalogue import FIGURES
from semistream.lab.claims import Verdict
from semistream.lab.compare import compare
from semistream.lab.computing import EXPONENTS, measure_skew_cost
from semistream.lab.figures import PAPERS_DISK, SCALES, Figure, Lab
from semistream.lab.map import measure_map, write_map
from semistream.lab.report import write_report
from semistream.lab.rig import REAL
from semistream.lab.runner import Result, claims_of, results_in, run_figure, score
from semistream.lab.verdicts import write_verdicts
from semistream.workload.cloudfiles import CloudFiles

_COLOURS = {
    Verdict.HOLDS: "green",
    Verdict.IN_SHAPE: "cyan",
    Verdict.NOT_HERE: "yellow",
    Verdict.NOT_JUDGED: "bright_black",
}


def list_figures() -> int:
    """Print every figure with its title."""
    table = ConsoleTable("figure", "what it shows", "claims", box=None, pad_edge=False)
    for name, figure in FIGURES.items():
        table.add_row(name, figure.title, str(len(figure.claims)))
    Console().print(table)
    return 0


@dataclass(frozen=True, slots=True)
class Setup:
    """How figures are made."""

    scale: str = "quick"
    device: str = PAPERS_DISK
    seed: int = 7
    seeds: int = 1
    clouds: Path | None = None  # folder with real cloud reports

    def check(self) -> None:
        """Refuse settings that would fail only after some figures."""
        if not 1 <= self.seeds <= 9:
            raise OptionError(f"--seeds must be between 1 and 9; got {self.seeds}")
        if self.clouds is not None:
            CloudFiles(self.clouds).check()


def run_figures(names: Sequence[str], setup: Setup, out: Path, jobs: int = 1) -> int:
    """Make figures, print their verdicts, and write the report of all figures in the folder."""
    figures = choose(names)
    setup.check()
    console = Console()
    if setup.device == REAL:
        timed = [figure.name for figure in figures if figure.needs_clock]
        if timed and names:
            raise OptionError(
                f"{', '.join(timed)} can only be made on an emulated device: they compare with its "
                "cost model, or read times off its clock. Choose one with --device"
            )
        figures = [figure for figure in figures if not figure.needs_clock]
        if timed:
            console.print(f"left out, since they need an emulated device: {', '.join(timed)}")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"cannot write to {out}: {error.strerror}") from error
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    results = []
    with (
        tempfile.TemporaryDirectory(prefix="semistream-lab-") as folder,
        Progress(*columns, console=console) as progress,
        closing(_make([f.name for f in figures], Path(folder), setup, out, jobs)) as made,
    ):
        overall = progress.add_task("all figures", total=len(figures))
        bars: dict[str, TaskID] = {}
        for news in made:
            if isinstance(news, Result):
                progress.remove_task(bars.pop(news.name))
                progress.advance(overall)
                _print(news, progress.console)
                results.append(news)
            else:
                name, done, total = news
                if name not in bars:
                    bars[name] = progress.add_task(name)
                progress.update(bars[name], completed=done, total=total)
    for whose, claims in (
        ("The papers'", claims_of(results)),
        ("Our own", claims_of(results, ours=True)),
    ):
        if claims:
            console.print(f"{whose} {len(claims)} claims: {score(claims)}.")
    return make_report(out)


def make_report(out: Path) -> int:
    """Write one page of all the figures in a folder."""
    results = results_in(out)
    if not results:
        raise OptionError(
            f"there are no figures in {out}; make some: semistream lab run --out {out}"
        )
    path = write_report(results, out, list(FIGURES))
    verdicts = write_verdicts(results, out, list(FIGURES))
    Console().print(
        f"{len(results)} figures in {out}; all on one page: {path}; verdicts as text: {verdicts}"
    )
    return 0


def compare_folders(first: Path, second: Path) -> int:
    """Print how the figures that two folders have differ."""
    table = ConsoleTable("figure", "numbers", "the first over the second", "verdicts", box=None)
    found = compare(first, second)
    if not found:
        raise OptionError(f"{first} and {second} have no figure in common")
    for pair in found:
        span = f"{pair.least:.2f} to {pair.most:.2f}, median {pair.median:.2f}"
        table.add_row(pair.name, str(pair.numbers), span, pair.verdicts)
    console = Console()
    console.print(table)
    for pair in found:
        for claim in pair.changed:
            console.print(f"{pair.name}: {claim}", highlight=False)
    return 0


def make_map(rows: int, devices: Sequence[str], seed: int, out: Path) -> int:
    """Measure which algorithm wins where, and write the page."""
    console = Console()
    out.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="semistream-lab-") as folder,
        Progress(console=console) as progress,
    ):
        bar = progress.add_task("map")

        def report(done: int, total: int) -> None:
            progress.update(bar, completed=done, total=total)

        table = measure_map(Path(folder), rows, devices, seed, report)
    path, regret = write_map(table, rows, out)
    console.print(f"{regret}\n{path}")
    return 0


def show_computing() -> int:
    """Measure and print what a tuple costs MESHJOIN, by skew."""
    for exponent, cost in zip(EXPONENTS, measure_skew_cost(), strict=True):
        Console().print(f"exponent {exponent:g}: {cost:.3f} times the cost of a uniform stream")
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


_News: TypeAlias = tuple[str, int, int] | Result  # a figure, its points done and their total


def _make(
    names: Sequence[str], folder: Path, setup: Setup, out: Path, jobs: int
) -> Generator[_News, None, None]:
    """Make figures in several processes, one per paper; yield progress and results."""
    papers: dict[str, list[str]] = {}
    for name in names:
        papers.setdefault(FIGURES[name].paper, []).append(name)
    context = get_context("spawn")
    manager = SyncManager(ctx=context)
    manager.start(end_with_parent)
    with (
        manager,
        ProcessPoolExecutor(max(1, min(jobs, len(papers))), context, end_with_parent) as pool,
        children_end_on_errors(),
    ):
        news = manager.Queue()
        work = [
            pool.submit(_make_paper, some, folder / paper, setup, out, news)
            for paper, some in reversed(
                papers.items()
            )  # the last paper takes longest, so it starts first
        ]
        while not all(future.done() for future in work) or not news.empty():
            with suppress(Empty):
                yield news.get(timeout=0.2)
            for future in work:
                if future.done():
                    future.result()  # raises what ended it


def _make_paper(
    names: Sequence[str],
    folder: Path,
    setup: Setup,
    out: Path,
    news: "Queue[_News]",
) -> None:
    folder.mkdir()
    lab = Lab(folder, SCALES[setup.scale], setup.device, setup.seed, setup.clouds)
    for name in names:

        def report(done: int, total: int, name: str = name) -> None:
            news.put((name, done, total))

        news.put(run_figure(FIGURES[name], lab, out, report, setup.seeds))


def _print(result: Result, console: Console) -> None:
    spent = f"{result.seconds:.0f} s, {result.cpu_s:.0f} s of CPU time"
    console.print(f"[bold]{result.name}[/bold]  {result.title}  ({spent})")
    for claim in result.claims:
        colour = _COLOURS[Verdict(claim.verdict)]
        console.print(f"  [{colour}]{claim.verdict}[/{colour}]: {claim.says} {claim.number}")
