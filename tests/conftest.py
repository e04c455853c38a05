"""Fixtures that every test may use."""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", deadline=None, print_blob=True, suppress_health_check=list(HealthCheck)
)
settings.load_profile("default")


@pytest.fixture(autouse=True, scope="session")
def _same_python_everywhere() -> None:
    """Spark's workers must run the interpreter that runs the tests."""
    import sys

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


@pytest.fixture(autouse=True, scope="session")
def _own_calibrations(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the tests measure stays out of the user's cache, and the user's out of the tests."""
    os.environ["SEMISTREAM_CACHE"] = str(tmp_path_factory.mktemp("semistream-cache"))
