"""Temporary files of a test run: one folder for all of them, removed when the run ends.

The folder is the run's ``TMPDIR`` and, for a JVM, its ``java.io.tmpdir``, so the processes that
tests start use it as well; the workers of pytest-xdist inherit it from the controller. What a run
leaves in the system's temporary folder all the same, or beside the sources, is found by comparing
with what was there before. Pass ``--basetemp`` to keep the files of the ``tmp_path`` fixtures.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests import classarchive

PREFIX = "semistream-tests-"
# How the names of files begin that this package, its tests, Spark or Kafka make.
PREFIXES = ("semistream", "spark", "pyspark", "blockmgr", "artifacts", "kafka", "hsperfdata")
BESIDE_SOURCES = ("spark-warehouse", "metastore_db", "derby.log", "artifacts", "demo-out")
_REMOVAL_SECONDS = 20


@dataclass
class Scratch:
    """The temporary folder of a run, and what lay around before it."""

    system: Path
    sources: Path
    root: Path
    before: set[Path] = field(default_factory=set)
    _replaced: dict[str, str | None] = field(default_factory=dict)

    @classmethod
    def begin(cls, sources: Path) -> "Scratch":
        """Make the folder, and let this process and its children use it."""
        system = Path(tempfile.gettempdir())
        scratch = cls(system, sources, Path(tempfile.mkdtemp(prefix=PREFIX)))
        scratch.before = scratch._found()
        scratch._set_environment(
            {
                "TMPDIR": str(scratch.root),
                # The JVM does not know TMPDIR; and it must not note its performance data in /tmp.
                "JAVA_TOOL_OPTIONS": jvm_options(scratch.root),
            }
        )
        tempfile.tempdir = None  # look at TMPDIR again
        return scratch

    def end(self) -> list[str]:
        """Remove the folder; return what the run has left behind elsewhere."""
        for name, value in self._replaced.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
        tempfile.tempdir = None
        remove(self.root)
        left = self._found() - self.before
        left |= {self.root} if self.root.exists() else set()
        return sorted(str(path) for path in left)

    def _set_environment(self, changes: Mapping[str, str]) -> None:
        self._replaced = {name: os.environ.get(name) for name in changes}
        os.environ.update(changes)

    def _found(self) -> set[Path]:
        """Return what lies around that a run could have made; other runs have their own folders."""
        named = (p for p in self.system.iterdir() if p.name.startswith(PREFIXES))
        temporary = {p for p in named if not p.name.startswith(PREFIX) and _is_ours(p)}
        return temporary | {self.sources / n for n in BESIDE_SOURCES if (self.sources / n).exists()}


def jvm_options(folder: Path) -> str:
    """Return the options of a JVM that keeps its temporary files in a folder, and starts fast."""
    return f"-Djava.io.tmpdir={folder} -XX:-UsePerfData {classarchive.OPTIONS}"


def remove(folder: Path) -> None:
    """Remove a folder while a process that is about to end may still remove files in it, too."""
    deadline = time.monotonic() + _REMOVAL_SECONDS
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            time.sleep(0.2)


def _is_ours(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.getuid()
    except FileNotFoundError:  # another process has just removed it
        return False


_folders: list[Path] = []


def new_folder() -> Path:
    """Return a new folder that is removed when the test ends."""
    folder = Path(tempfile.mkdtemp(prefix="semistream-test-"))
    _folders.append(folder)
    return folder


@contextmanager
def folders_of_a_test() -> Iterator[None]:
    """Remove, at the end, the folders that `new_folder` has made meanwhile."""
    kept, _folders[:] = _folders[:], []
    try:
        yield
    finally:
        for folder in _folders:
            shutil.rmtree(folder)
        _folders[:] = kept
