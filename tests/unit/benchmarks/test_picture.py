"""The README's picture: which run it shows, and which of plain Spark's joins."""

import json
from pathlib import Path

from benchmarks.picture import OURS, PLAIN, best_of, draw, last_run


def line(run_at: str, contestant: str, rows: int, seconds: float) -> dict[str, object]:
    about = {"benchmark": "picture", "machine": "m", "batch_rows": 10, "budget_bytes": 1_000_000}
    figures = {"contestant": contestant, "relation_rows": rows, "seconds": seconds}
    return {**about, **figures, "run_at": run_at}


def test_the_last_run_is_drawn(tmp_path: Path) -> None:
    lines = [
        line("1", OURS, 5, 1.0),
        {**line("3", OURS, 5, 1.0), "benchmark": "spark"},
        line("2", OURS, 20, 2.0),
        line("2", OURS, 10, 3.0),
        line("2", PLAIN[0], 10, 9.0),
        line("2", PLAIN[1], 10, 7.0),
        {**line("4", OURS, 5, 1.0), "benchmark": "spark"},
    ]
    results = tmp_path / "results.ndjson"
    results.write_text("\n".join(map(json.dumps, lines)))
    found = last_run(results)
    assert {each["run_at"] for each in found} == {"2"}
    assert list(best_of(found, (OURS,)).items()) == [(10, 3.0), (20, 2.0)]
    assert best_of(found, PLAIN) == {10: 7.0}
    draw(found, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"
