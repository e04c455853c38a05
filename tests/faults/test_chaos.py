"""A short run of `make chaos`: drivers, workers, executors killed; R that changes; disks."""

from pathlib import Path

import pytest

from tests.faults import chaos, query_faults
from tests.services.missing import missing


def test_a_driver_that_is_killed_and_workers_that_are(tmp_path: Path) -> None:
    about = {"files": 5, "kills": 2, "workers": 1, "master": chaos.LOCAL}
    did = chaos.one_round(tmp_path, 11, **about)  # type: ignore[arg-type]
    assert did["driver killed"] == 2
    assert did["Python worker killed"] == 1
    assert did["task run again"] >= 1


def test_an_executor_that_is_killed_and_tasks_that_run_twice(tmp_path: Path) -> None:
    about = {"files": 3, "kills": 0, "workers": 1, "master": chaos.CLUSTER}
    did = chaos.one_round(tmp_path, 12, **about)  # type: ignore[arg-type]
    assert did["executor killed"] == 1
    assert did["task run again"] >= 1


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what came of faults of disks and files."""
    return query_faults.run_all(tmp_path_factory.mktemp("faults"), 5)


@pytest.mark.parametrize("fault", [fault.__name__ for fault in query_faults.FAULTS])
def test_a_disk_or_file_that_fails(said: dict[str, str], fault: str) -> None:
    if said[fault].startswith(query_faults.SKIPPED):
        missing("a small disk", said[fault].removeprefix(query_faults.SKIPPED))
    assert "exact" in said[fault]
