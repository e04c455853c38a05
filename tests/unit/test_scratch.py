"""What a run of the tests leaves behind is found, and its own folder is removed."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.scratch import Scratch, new_folder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the system's temporary folder."""
    folder = tmp_path / "system"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def test_files_in_the_folder_of_the_run_are_removed(system: Path, tmp_path: Path) -> None:
    scratch = Scratch.begin(tmp_path)
    assert Path(tempfile.mkdtemp()).parent == scratch.root == Path(os.environ["TMPDIR"])
    assert str(scratch.root) in os.environ["JAVA_TOOL_OPTIONS"]
    assert scratch.end() == []
    assert list(system.iterdir()) == []
    assert os.environ["TMPDIR"] == str(system)


def test_files_elsewhere_are_named(system: Path, tmp_path: Path) -> None:
    (system / "spark-before").mkdir()
    scratch = Scratch.begin(tmp_path)
    for path in (system / "blockmgr-1", system / "another-program", tmp_path / "spark-warehouse"):
        path.mkdir()
    assert scratch.end() == [str(tmp_path / "spark-warehouse"), str(system / "blockmgr-1")]


def test_a_run_that_leaves_something_behind_fails(system: Path, tmp_path: Path) -> None:
    left = system / "semistream-left"
    code = f"from pathlib import Path\ndef test_nothing(): Path({str(left)!r}).mkdir()\n"
    test = tmp_path / "test_left.py"
    test.write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", str(test)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout
    assert str(left) in done.stdout
    assert done.returncode == pytest.ExitCode.TESTS_FAILED


_made: list[Path] = []


def test_a_folder_of_a_test_exists_while_it_runs() -> None:
    _made.append(new_folder())
    assert _made[0].is_dir()


def test_and_is_removed_at_its_end() -> None:
    assert not any(folder.exists() for folder in _made)
