"""Results: a table for people, a line of JSON for each figure."""

import json
import platform
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).with_name("results.ndjson")


@dataclass
class Report:
    """One benchmark's figures. Rates are compared as ratios within this run, never across runs."""

    benchmark: str
    setting: dict[str, Any]
    console: Console = field(default_factory=Console)
    run_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def add(self, contestant: str, **figures: Any) -> None:
        line = {
            "run_at": self.run_at,
            "machine": f"{platform.machine()}, {cores()} cores",
            "benchmark": self.benchmark,
            **self.setting,
            "contestant": contestant,
            **figures,
        }
        with RESULTS.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def show(self, title: str, columns: list[str], rows: list[list[str]]) -> None:
        table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
        for i, column in enumerate(columns):
            table.add_column(column, justify="left" if i == 0 else "right")
        for row in rows:
            table.add_row(*row)
        self.console.print(table)
        self.console.print()


def cores() -> int:
    import os

    return len(os.sched_getaffinity(0))
