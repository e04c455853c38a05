"""Fixtures that every test may use, and the temporary folder of the run."""

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.scratch import Scratch, folders_of_a_test

settings.register_profile(
    "default", deadline=None, print_blob=True, suppress_health_check=list(HealthCheck)
)
settings.load_profile("default")

_SCRATCH = pytest.StashKey[Scratch]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Before anything makes a temporary file, and once: workers inherit the folder."""
    if not hasattr(config, "workerinput"):
        config.stash[_SCRATCH] = Scratch.begin(config.rootpath)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Remove the run's temporary files; whatever else it has left behind makes it fail."""
    yield
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
