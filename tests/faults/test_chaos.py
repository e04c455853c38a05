"""A short run of `make chaos`: a killed driver, killed workers, a relation that changes; disks."""

import os
from pathlib import Path

import pytest

from tests.faults import chaos, query_faults


def test_a_driver_that_is_killed_and_workers_that_are(tmp_path: Path) -> None:
    about = {"files": 5, "kills": 2, "workers": 1, "master": "local[2,4]"}
    did = chaos.one_round(tmp_path, 11, **about)  # type: ignore[arg-type]
    assert "driver killed" in did
    assert "daemon's process killed" in did


def test_a_damaged_page_and_a_full_disk(tmp_path: Path) -> None:
    said = query_faults.run_all(tmp_path, 5)
    assert "CorruptRelationError" in said["a_damaged_page"]
    if said["a_full_disk"].startswith("skipped"):
        assert not os.environ.get("CI"), said["a_full_disk"]
        pytest.skip(said["a_full_disk"])
    assert "a_full_disk/out" in said["a_full_disk"]
