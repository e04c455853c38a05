"""The map: every place is measured, the model's choice is marked, the page names both."""

from pathlib import Path

import pytest

from semistream.lab import map as lab_map
from semistream.lab.map import measure_map, write_map
from semistream.lab.mappage import regret_told


def test_a_small_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_map, "EXPONENTS", (0.0, 1.0))
    monkeypatch.setattr(lab_map, "SHARES", (0.2,))
    monkeypatch.setattr(lab_map, "BATCHES", (0.1, 1.0))
    seen: list[tuple[int, int]] = []
    devices = ["real", "hdd-2007"]
    table = measure_map(tmp_path, 5_000, devices, 7, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (8, 8)
    assert sum(float(row["is_chosen"]) for row in table) == 8
    for device in devices:
        here = table.where(device=device, exponent=1.0, batch_per_row=1.0)
        best = max(here, key=lambda row: float(row["tuples_per_s"]))
        assert best["is_fastest"]
        assert float(best["regret"]) == 0
        assert all(0 <= float(row["regret"]) < 1 for row in here)
    path, told = write_map(table, 5_000, tmp_path)
    assert told == regret_told(table)
    page = path.read_text()
    assert told in page
    assert all(regret_told(table.where(device=device)) in page for device in devices)
    assert "hdd-2007: emulated" in page
    assert "This machine: measured" in page
    assert page.count("<td") == 8
    again = measure_map(tmp_path / "b", 5_000, ["hdd-2007"], 7)
    emulated = [dict(row) for row in table if row["device"] == "hdd-2007"]
    assert [dict(row) for row in again] == emulated
