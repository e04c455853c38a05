"""What a test does on a machine where a service cannot be had."""

import os
from typing import NoReturn

import pytest


def missing(service: str, why: str) -> NoReturn:
    """Skip the test by name; in CI, where every service must be there, fail."""
    if os.environ.get("CI"):
        pytest.fail(f"{service} cannot be started: {why}")
    pytest.skip(f"{service} cannot be started: {why}")
