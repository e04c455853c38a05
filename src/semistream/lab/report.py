"""One page of all figures: charts, claims, verdicts, and where they were made."""

from collections.abc import Sequence
from pathlib import Path

from semistream.lab.runner import Result

REPORT = "index.html"


def write_report(results: Sequence[Result], out: Path, order: Sequence[str]) -> Path:
    """Write the page and return where it is."""
    path = out / REPORT
    path.write_text("")
    return path
