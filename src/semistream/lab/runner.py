"""Runs figures: measures their points, writes CSV, PNG and SVG, and judges the paper's claims.

In the output folder each figure has ``NAME.csv``, ``NAME.png``, ``NAME.svg`` and ``NAME.json``;
the last one has the verdicts, the device, the scale and the machine. The report is made from these
files alone.
"""

import json
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from semistream.lab.canvas import Canvas, new_canvas
from semistream.lab.claims import Finding, Row, Table, Verdict
from semistream.lab.figures import Figure, Lab
from semistream.lab.rig import REAL
from semistream.version import __version__
from semistream.workload.files import write_whole

OURS = "ours"  # the source of a claim that no paper makes


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim with its verdict."""

    says: str
    source: str
    verdict: str
    number: str
    why: str


@dataclass(frozen=True, slots=True)
class Result:
    """A figure that was made."""

    name: str
    paper: str
    number: str
    title: str
    note: str
    device: str
    scale: str
    seeds: tuple[int, ...]
    seconds: float
    made_at: str
    machine: str
    version: str
    claims: tuple[Judged, ...]
    cpu_s: float = 0.0  # of all its points; what it shares with earlier figures costs nothing

    @classmethod
    def read(cls, path: Path) -> "Result":
        """Read the result of an earlier run."""
        fields = json.loads(path.read_text())
        claims = tuple(Judged(**claim) for claim in fields["claims"])
        return cls(**{**fields, "seeds": tuple(fields["seeds"]), "claims": claims})


def run_figure(
    figure: Figure,
    lab: Lab,
    out: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
    seeds: int = 1,
) -> Result:
    """Make one figure and write it; `progress` gets the points done and their total.

    With several seeds, beginning with the lab's own, the table has means and intervals.
    """
    began, cpu_began = time.perf_counter(), time.process_time()
    canvas = new_canvas(figure.name, figure.size)  # fails, if it must, before anything is measured
    used = tuple(range(lab.seed, lab.seed + (seeds if figure.is_random else 1)))
    tables = _measure(figure, [lab.with_seed(seed) for seed in used], progress)
    out.mkdir(parents=True, exist_ok=True)
    Table.mean_of(tables).write(out / f"{figure.name}.csv")
    table = Table.read(out / f"{figure.name}.csv")
    _draw(canvas, figure, table, lab, out)
    result = Result(
        name=figure.name,
        paper=figure.paper,
        number=figure.number,
        title=figure.title,
        note=figure.note,
        device=figure.medium or described(lab.disk(figure.disk)),
        scale=lab.scale.name,
        seeds=used,
        seconds=round(time.perf_counter() - began, 1),
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine(),
        version=__version__,
        claims=judge(figure, table, tables),
        cpu_s=round(time.process_time() - cpu_began, 1),
    )
    text = json.dumps(asdict(result), indent=1) + "\n"
    write_whole(out / f"{figure.name}.json", lambda hidden: hidden.write_text(text))
    return result


def _measure(
    figure: Figure, labs: Sequence[Lab], progress: Callable[[int, int], None]
) -> list[Table]:
    """Measure a figure's points, once for each seed."""
    points = [figure.points(lab) for lab in labs]
    total, done = sum(len(some) for some in points), 0
    progress(0, total)
    tables = []
    for some in points:
        rows: list[Row] = []
        for point in some:
            made = point()
            rows.extend([made] if isinstance(made, Mapping) else made)
            done += 1
            progress(done, total)
        tables.append(Table(rows))
    return tables


def judge(figure: Figure, table: Table, by_seed: Sequence[Table] = ()) -> tuple[Judged, ...]:
    """Judge all claims about a figure; the least favourable verdict of any seed counts.

    The number that is given is that of the table of means.
    """
    judged = []
    for claim in figure.claims:
        finding: Finding = claim.judge(table)
        verdicts = [finding.verdict, *(claim.judge(other).verdict for other in by_seed)]
        verdict = max(verdicts, key=list(Verdict).index)
        differ = "" if len(set(verdicts)) == 1 else "; the seeds differ, the worst counts"
        why = "" if verdict is Verdict.HOLDS else claim.why
        number = f"{finding.number}{differ}"
        judged.append(Judged(claim.says, claim.source, verdict.value, number, why))
    return tuple(judged)


def described(device: str) -> str:
    """Return the description of a device."""
    if device == REAL:
        return "this machine's own, the page cache dropped after each read"
    return f"{device}, emulated: only its own clock counts, computing takes no time"


def machine() -> str:
    """Return processor, cores and Python version of this machine."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def results_in(folder: Path) -> list[Result]:
    """Return all figures in a folder; it may have other files too."""
    paths = (path for path in sorted(folder.glob("*.json")) if path.with_suffix(".svg").exists())
    return [Result.read(path) for path in paths]


def claims_of(results: Iterable[Result], *, ours: bool = False) -> list[Judged]:
    """Return the papers' claims, or our own."""
    return [claim for r in results for claim in r.claims if (claim.source == OURS) is ours]


def counts_of(claims: Iterable[Judged]) -> dict[Verdict, int]:
    """Return how many claims there are of each verdict, the best first."""
    counts = Counter(claim.verdict for claim in claims)
    return {verdict: counts[verdict.value] for verdict in Verdict}


def score(claims: Iterable[Judged]) -> str:
    """Return the verdicts in one line: holds / in shape / not / not judged."""
    counts = counts_of(claims)
    return (
        f"{counts[Verdict.HOLDS]} hold / {counts[Verdict.IN_SHAPE]} in shape / "
        f"{counts[Verdict.NOT_HERE]} do not / {counts[Verdict.NOT_JUDGED]} not judged"
    )


def _draw(canvas: Canvas, figure: Figure, table: Table, lab: Lab, out: Path) -> None:
    figure.draw(canvas, table)
    scale = "the paper's size" if lab.scale.is_full else "in miniature"
    device = "real device" if lab.device == REAL else f"emulated {lab.disk(figure.disk)}"
    made = figure.medium or f"{device}, {scale}"
    canvas.suptitle(f"{figure.title}\n({made})", fontsize=10)
    canvas.savefig(out / f"{figure.name}.png", dpi=150)
    # Without a date, and with fixed identifiers, the same table gives the same file.
    canvas.savefig(out / f"{figure.name}.svg", metadata={"Date": None})
