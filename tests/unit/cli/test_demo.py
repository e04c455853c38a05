"""The demo's options are checked before it starts; `tests/install` runs it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from semistream.cli import demo
from semistream.cli.demo import DemoOptions, run_demo
from semistream.errors import BudgetError, OptionError, SemistreamError


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DemoOptions:
    """Options of a large demo, which Spark would not even be started for."""
    monkeypatch.setattr(demo, "DemoSpark", _never)
    return DemoOptions(8_000_000, 4_000_000, 10, "5%", 1.0, 2, 2026, tmp_path / "out")


def _never(*_: Any) -> None:
    raise AssertionError("Spark was started")


@pytest.mark.parametrize("memory", ["lots", "", "-5%", "0", "5 %%"])
def test_memory_that_is_no_size(options: DemoOptions, memory: str) -> None:
    with pytest.raises(OptionError, match="memory must be a size or a share"):
        run_demo(replace(options, memory=memory))
    assert not options.out.exists()


@pytest.mark.parametrize("memory", ["10KB", "0.001%"])
def test_memory_that_is_too_little(options: DemoOptions, memory: str) -> None:
    with pytest.raises(BudgetError, match="the total for all 2 tasks"):
        run_demo(replace(options, memory=memory))
    assert not options.out.exists()


@pytest.mark.parametrize("changes", [{"rows": 0}, {"batches": 2}, {"partitions": 0}])
def test_too_few_of_something(options: DemoOptions, changes: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="must be"):
        run_demo(replace(options, **changes))


def test_a_folder_that_cannot_be_made(options: DemoOptions) -> None:
    options.out.touch()
    with pytest.raises(OptionError, match=r"--out .*below cannot be written: Not a directory"):
        run_demo(replace(options, out=options.out / "below"))


def test_other_files_are_never_removed(options: DemoOptions) -> None:
    options.out.mkdir()
    (options.out / "thesis.txt").write_text("mine")
    with pytest.raises(OptionError, match="has files in it that are not of a demo"):
        run_demo(options)
    assert (options.out / "thesis.txt").read_text() == "mine"


def test_the_files_of_an_earlier_demo_are(options: DemoOptions) -> None:
    with pytest.raises(AssertionError, match="Spark was started"):
        run_demo(options)
    (options.out / "products.parquet").touch()
    with pytest.raises(AssertionError, match="Spark was started"):
        run_demo(options)
    assert not (options.out / "products.parquet").exists()


def test_a_file_as_folder(options: DemoOptions) -> None:
    options.out.touch()
    with pytest.raises(SemistreamError, match="--out"):
        run_demo(options)
