"""``python -m tests.mutants [WORDS]``: apply each mutant to a copy of the tree, and see it fail.

Then the kernels run once more with Numba's bounds checks. The exit code is 1 if a mutant survives,
if its text is no longer found, or if an index is out of bounds. WORDS choose mutants by their name
or file.

A copy has a cache of compiled kernels of its own. What a mutated module compiles goes to a cache
that is used once: Numba does not know which kernels have taken in which others.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from time import monotonic

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.scratch import remove

ROOT = Path(__file__).parents[2]
WORKERS = min(2, os.cpu_count() or 1)
TIMEOUT_SECONDS = 300  # a mutant that takes longer is in an endless loop
LONG_TIMEOUT_SECONDS = 1_800
_SHARED = ("-n", str(WORKERS), "--dist", "worksteal")
COPIED = ("src", "tests", "benchmarks", "pyproject.toml", "README.md", "CONTRIBUTING.md", "docs")
# What runs with bounds checks: every kernel, by its own tests and under short memory.
BOUNDS_CHECKED = (
    *("tests/unit/joins", "tests/unit/relation"),
    *("tests/unit/test_keys.py", "tests/unit/test_columns.py"),
    *("tests/contract", "tests/formats"),
    *("-k", "not test_oracle_generated and not batch_sizes"),
)
FAILED, PASSED = 1, 0  # pytest's exit codes; any other says that no test ran


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant; `problem` is empty if it was killed."""

    name: str
    problem: str
    seconds: float


@dataclass(frozen=True)
class Tree:
    """A copy of the sources, with a cache of compiled kernels."""

    folder: Path

    @classmethod
    def copy(cls, folder: Path) -> "Tree":
        ignore = shutil.ignore_patterns("__pycache__", ".*")
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=ignore)
            else:
                shutil.copy2(ROOT / name, folder / name)
        return cls(folder)

    def check(self, mutant: Mutant) -> Outcome:
        """Apply an edit, run its tests, and take it back."""
        started = monotonic()
        path = self.folder / "src" / "semistream" / mutant.file
        text = path.read_text()
        count = text.count(mutant.old)
        if count != 1:
            return Outcome(mutant.name, f"its text occurs {count} times in {mutant.file}", 0.0)
        status = path.stat()
        path.write_text(text.replace(mutant.old, mutant.new))
        try:
            problem = self._survival(mutant, "njit" in text)
        finally:
            path.write_text(text)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        return Outcome(mutant.name, problem, monotonic() - started)

    def _survival(self, mutant: Mutant, has_kernels: bool) -> str:
        """Return why a mutant does not count as killed; nothing if it does."""
        caches = self.folder / "kernels"
        cache = Path(tempfile.mkdtemp(dir=self.folder)) if has_kernels else caches
        changes = {"NUMBA_CACHE_DIR": str(cache)}
        code, said = self.run(mutant.tests, changes, TIMEOUT_SECONDS)
        if code == FAILED or code < 0:  # by an exception, a wrong row, a crash or an endless loop
            return ""
        return "it survives" if code == PASSED else f"pytest ended with {code}:\n{said[-2000:]}"

    def run(
        self, tests: Iterable[str], changes: Mapping[str, str], timeout_seconds: int
    ) -> tuple[int, str]:
        """Run tests in the copy; return pytest's exit code, or -1, and what it said."""
        environment = os.environ | {
            "PYTHONPATH": str(self.folder / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(self.folder),  # a process that is killed cleans up nothing
            "NUMBA_CACHE_DIR": str(self.folder / "kernels"),
            **changes,
        }
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        done = subprocess.Popen(
            [*command, "--hypothesis-seed=0", *tests],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            said, _ = done.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            done.kill()
            said, _ = done.communicate()
            return -1, said
        return done.returncode, said


def main(words: list[str]) -> int:
    """Run all mutants, or those chosen; return the exit code."""
    chosen = [m for m in MUTANTS if not words or any(w in f"{m.name} {m.file}" for w in words)]
    if not chosen:
        print(f"no mutant has {' or '.join(map(repr, words))} in its name or file")
        return 2
    # Short, because sockets of tests lie below it.
    folder = Path(tempfile.mkdtemp(prefix="mut-"))
    try:
        trees = [Tree.copy(folder / str(i)) for i in range(WORKERS)]
        problems = _run_all(trees, chosen)
        if not words:
            problems += _check_bounds(trees[0])
    finally:
        remove(folder)
    for problem in problems:
        print(f"FAILED {problem}")
    print(f"{len(chosen)} mutants, {len(problems)} problems")
    return 1 if problems else 0


def _run_all(trees: list[Tree], mutants: list[Mutant]) -> list[str]:
    free: SimpleQueue[Tree] = SimpleQueue()
    for tree in trees:
        free.put(tree)

    def check(mutant: Mutant) -> Outcome:
        tree = free.get()
        try:
            return tree.check(mutant)
        finally:
            free.put(tree)

    problems = _sound_without_mutants(trees[0], mutants)
    if problems:
        return problems
    with ThreadPoolExecutor(len(trees)) as pool:
        for number, outcome in enumerate(pool.map(check, mutants), 1):
            said = outcome.problem.splitlines()[0] if outcome.problem else "killed"
            print(
                f"[{number:2}/{len(mutants)}] {outcome.seconds:4.0f} s  {said}: {outcome.name}",
                flush=True,
            )
            problems += [f"{outcome.name}: {outcome.problem}"] if outcome.problem else []
    return problems


def _sound_without_mutants(tree: Tree, mutants: list[Mutant]) -> list[str]:
    """Return what is wrong before any edit: then a failing test would prove nothing."""
    started = monotonic()
    tests = dict.fromkeys(test for mutant in mutants for test in mutant.tests)
    code, said = tree.run([*_without_parts(list(tests)), *_SHARED], {}, LONG_TIMEOUT_SECONDS)
    print(f"[ 0/{len(mutants)}] {monotonic() - started:4.0f} s  the tests without any mutant")
    return [] if code == PASSED else [f"the tests fail without any mutant:\n{said[-4000:]}"]


def _without_parts(tests: list[str]) -> list[str]:
    """Leave out tests of files that run as a whole: pytest would run only them."""
    return [test for test in tests if "::" not in test or test.split("::")[0] not in tests]


def _check_bounds(tree: Tree) -> list[str]:
    started = monotonic()
    cache = Path(tempfile.mkdtemp(dir=tree.folder))
    checks = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(cache)}
    code, said = tree.run([*BOUNDS_CHECKED, *_SHARED], checks, LONG_TIMEOUT_SECONDS)
    print(f"        {monotonic() - started:4.0f} s  the kernels with bounds checks")
    return [] if code == PASSED else [f"with bounds checks:\n{said[-4000:]}"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutants whose name or file has one of these")
    sys.exit(main(parser.parse_args().words))
