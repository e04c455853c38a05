"""The catalogue of mutants: the runner could apply each of them to the sources as they are."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]
TIMES = 1  # `Tree.check` refuses a text that occurs more or less often


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_text_occurs_once(mutant: Mutant) -> None:
    text = (ROOT / "src" / "semistream" / mutant.file).read_text()
    assert text.count(mutant.old) == TIMES
    assert mutant.new != mutant.old


def test_help_runs_no_mutant() -> None:
    command = [sys.executable, "-m", "tests.mutants", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("usage: python -m tests.mutants")


def test_names_are_distinct() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)


def test_the_tests_exist() -> None:
    """Their files and functions: a test that was renamed would end the run, not kill a mutant."""
    for test in {test for mutant in MUTANTS for test in mutant.tests}:
        path, _, function = test.partition("::")
        assert (ROOT / path).exists(), test
        name = function.partition("[")[0]
        assert not name or f"def {name}(" in (ROOT / path).read_text(), test
