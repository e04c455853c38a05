"""Fixtures that every test may use, and the temporary folder of the run."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import classarchive
from tests.scratch import Scratch, folders_of_a_test

settings.register_profile(
    "default", deadline=None, print_blob=True, suppress_health_check=list(HealthCheck)
)
settings.load_profile("default")

# Folders of tests; all others come after them.
_LONGEST_FIRST = ("install", "services", "faults", "databases", "spark", "contract")
_TESTS = Path(__file__).parent
_SCRATCH = pytest.StashKey[Scratch]()
_ARCHIVING = pytest.StashKey[subprocess.Popen[bytes] | None]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Before anything makes a temporary file, and once: workers inherit the folder."""
    if not hasattr(config, "workerinput"):
        config.stash[_SCRATCH] = Scratch.begin(config.rootpath)
        if config.getoption("numprocesses", None):  # a run of many tests
            config.stash[_ARCHIVING] = classarchive.begin()


def pytest_xdist_auto_num_workers() -> int:
    """With `-n auto`: twice as many as cores, because tests of Spark and of services often wait."""
    return 2 * len(os.sched_getaffinity(0))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that take long, so that at the end all workers have short ones left."""
    items.sort(key=_place_in_line)


def pytest_collection_finish() -> None:
    """Leave thousands of tests out of every garbage collection: a tenth to a fifth of the time."""
    gc.collect()
    gc.freeze()


def _place_in_line(item: pytest.Item) -> int:
    found = [i for i, f in enumerate(_LONGEST_FIRST) if _TESTS / f in item.path.parents]
    return found[0] if found else len(_LONGEST_FIRST)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Remove the run's temporary files; whatever else it has left behind makes it fail."""
    yield
    gc.unfreeze()
    archiving = session.config.stash.get(_ARCHIVING, None)
    if archiving is not None and archiving.poll() is None:
        os.killpg(archiving.pid, signal.SIGKILL)
        archiving.wait()
    scratch = session.config.stash.get(_SCRATCH, None)
    left = [] if scratch is None else scratch.end()
    if left:
        print("\nFAILED: the tests have left behind:", *left, sep="\n  ")
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def _folders_are_removed() -> Iterator[None]:
    with folders_of_a_test():
        yield


@pytest.fixture(autouse=True, scope="session")
def _same_python_everywhere() -> None:
    """Spark's workers must run the interpreter that runs the tests."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


@pytest.fixture(autouse=True, scope="session")
def _own_calibrations(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the tests measure stays out of the user's cache, and the user's out of the tests."""
    os.environ["SEMISTREAM_CACHE"] = str(tmp_path_factory.mktemp("semistream-cache"))
