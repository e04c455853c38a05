"""Runs figures: measures their points, writes CSV, PNG and SVG, and judges the paper's claims.

In the output folder each figure has ``NAME.csv``, ``NAME.png``, ``NAME.svg`` and ``NAME.json``;
the last one has the verdicts, the device, the scale and the machine. The report is made from these
files alone.
"""

import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from semistream.lab.canvas import Canvas, new_canvas
from semistream.lab.claims import Finding, Row, Table, Verdict
from semistream.lab.figures import Figure, Lab
from semistream.lab.rig import REAL
from semistream.version import __version__
from semistream.workload.files import write_whole


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
    seed: int
    seconds: float
    made_at: str
    machine: str
    version: str
    claims: tuple[Judged, ...]

    @classmethod
    def read(cls, path: Path) -> "Result":
        """Read the result of an earlier run."""
        fields = json.loads(path.read_text())
        return cls(**{**fields, "claims": tuple(Judged(**claim) for claim in fields["claims"])})


def run_figure(
    figure: Figure,
    lab: Lab,
    out: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Result:
    """Make one figure and write it; `progress` gets the points done and their total."""
    began = time.perf_counter()
    canvas = new_canvas(figure.name, figure.size)  # fails, if it must, before anything is measured
    points = figure.points(lab)
    rows: list[Row] = []
    progress(0, len(points))
    for done, point in enumerate(points, 1):
        made = point()
        rows.extend([made] if isinstance(made, Mapping) else made)
        progress(done, len(points))
    out.mkdir(parents=True, exist_ok=True)
    Table(rows).write(out / f"{figure.name}.csv")
    table = Table.read(out / f"{figure.name}.csv")
    _draw(canvas, figure, table, lab, out)
    result = Result(
        name=figure.name,
        paper=figure.paper,
        number=figure.number,
        title=figure.title,
        note=figure.note,
        device=figure.medium or described(lab.device),
        scale=lab.scale.name,
        seed=lab.seed,
        seconds=round(time.perf_counter() - began, 1),
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine(),
        version=__version__,
        claims=judge(figure, table),
    )
    text = json.dumps(asdict(result), indent=1) + "\n"
    write_whole(out / f"{figure.name}.json", lambda hidden: hidden.write_text(text))
    return result


def judge(figure: Figure, table: Table) -> tuple[Judged, ...]:
    """Judge all claims about a figure by its table."""
    judged = []
    for claim in figure.claims:
        finding: Finding = claim.judge(table)
        why = "" if finding.verdict is Verdict.HOLDS else claim.why
        judged.append(Judged(claim.says, claim.source, finding.verdict.value, finding.number, why))
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


def share_that_holds(results: Sequence[Result]) -> tuple[int, int]:
    """Return how many claims hold, at least in shape, and how many there are."""
    verdicts = [claim.verdict for result in results for claim in result.claims]
    return sum(v != Verdict.NOT_HERE for v in verdicts), len(verdicts)


def _draw(canvas: Canvas, figure: Figure, table: Table, lab: Lab, out: Path) -> None:
    figure.draw(canvas, table)
    scale = "the paper's size" if lab.scale.is_full else "in miniature"
    device = "real device" if lab.device == REAL else f"emulated {lab.device}"
    made = figure.medium or f"{device}, {scale}"
    canvas.suptitle(f"{figure.title}\n({made})", fontsize=10)
    canvas.savefig(out / f"{figure.name}.png", dpi=150)
    # Without a date, and with fixed identifiers, the same table gives the same file.
    canvas.savefig(out / f"{figure.name}.svg", metadata={"Date": None})
