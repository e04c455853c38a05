"""Figures that were made twice: their numbers and verdicts; the verdicts of a run as text."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from semistream.cli.lab import compare_folders, make_report
from semistream.errors import OptionError
from semistream.lab.claims import Row, Table, Verdict
from semistream.lab.compare import compare
from semistream.lab.runner import OURS, Judged, Result

FIGURE = Result(
    name="xhybridjoin-6a",
    paper="xhybridjoin",
    number="6a",
    title="Tuning",
    note="",
    device="hdd-papers",
    scale="quick",
    seeds=(7, 8, 9),
    seconds=1.0,
    made_at="2026-11-16T06:46:16+00:00",
    machine="x86_64",
    version="0.1.0",
    claims=(
        Judged("It is 1 | 2.", "section 1", Verdict.HOLDS, "1.9", ""),
        Judged("It grows.", "section 2", Verdict.IN_SHAPE, "a little", "Seeks."),
        Judged("Ours grows.", OURS, Verdict.NOT_HERE, "no", "It is small."),
    ),
)


def _write(folder: Path, result: Result, rates: list[float]) -> None:
    folder.mkdir()
    rows: list[Row] = []
    for x, rate in enumerate(rates):
        # The predictions of a model are no measurement, and are left out.
        for what, value in (("measured", rate), ("model", 7.0)):
            rows.append({"swapped_mb": x, "what": what, "tuples_per_s": value})
    Table(rows).write(folder / f"{result.name}.csv")
    (folder / f"{result.name}.json").write_text(json.dumps(asdict(result)))
    (folder / f"{result.name}.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')


def test_measured_numbers_and_changed_verdicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, other = tmp_path / "a", tmp_path / "b"
    _write(mine, FIGURE, [90.0, 100.0, 120.0])
    claims = (FIGURE.claims[1], replace(FIGURE.claims[0], verdict=Verdict.NOT_HERE))
    _write(other, replace(FIGURE, claims=claims), [100.0, 100.0, 100.0])
    (pair,) = compare(mine, other)
    assert (pair.numbers, pair.least, pair.median, pair.most) == (3, 0.9, 1.0, 1.2)
    assert pair.verdicts == "1 of 2 the same"
    assert pair.changed == ("It is 1 | 2. holds / does not hold here",)
    assert compare_folders(mine, other) == 0
    printed = capsys.readouterr().out
    assert "0.90 to 1.20, median 1.00" in printed
    assert "xhybridjoin-6a: It is 1 | 2. holds / does not hold here" in printed
    (tmp_path / "none").mkdir()
    with pytest.raises(OptionError, match="have no figure in common"):
        compare_folders(mine, tmp_path / "none")


def test_verdicts_as_text(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    _write(folder, FIGURE, [1.0])
    assert make_report(folder) == 0
    assert (folder / "verdicts.md").read_text().splitlines() == [
        "| paper | claims | holds | in shape | not | not judged |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| X-HYBRIDJOIN (Naeem et al.) | 2 | 1 | 1 | 0 | 0 |",
        "| all papers | 2 | 1 | 1 | 0 | 0 |",
        "| our own | 1 | 0 | 0 | 1 | 0 |",
        "",
        "| figure | claim | verdict | here | why |",
        "| --- | --- | --- | --- | --- |",
        "| xhybridjoin-6a | It grows. | in shape | a little | Seeks. |",
        "| xhybridjoin-6a | Ours grows. | not | no | It is small. |",
    ]
