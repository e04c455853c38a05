"""Temporary folders of builds that have died are removed by the next build, others are not."""

import json
import os
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from semistream.relation.leases import Holder
from semistream.relation.spoolfiles import SpoolFiles

HOUR_S = 3600.0


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def folder(tmp_path: Path, name: str, owner: Holder | None) -> Path:
    path = tmp_path / f"semistream-build-{name}"
    path.mkdir()
    (path / "0.arrow").write_bytes(b"rows")
    if owner is not None:
        (path / "owner.json").write_text(json.dumps(asdict(owner)))
    return path


def test_only_folders_of_processes_that_ended_are_removed(tmp_path: Path) -> None:
    here = Holder.this_process()
    runs = folder(tmp_path, "runs", here)
    elsewhere = folder(tmp_path, "elsewhere", replace(here, machine="another", started="1"))
    ended = folder(tmp_path, "ended", replace(here, started="1"))
    file = tmp_path / "semistream-build-notes.txt"
    file.write_text("not ours")
    SpoolFiles()
    assert [path.exists() for path in (runs, elsewhere, ended, file)] == [True, True, False, True]


def test_a_folder_without_an_owner_is_kept_for_an_hour(tmp_path: Path) -> None:
    young, old = folder(tmp_path, "young", None), folder(tmp_path, "old", None)
    os.utime(old, (time.time() - 2 * HOUR_S,) * 2)
    SpoolFiles()
    assert (young.exists(), old.exists()) == (True, False)
