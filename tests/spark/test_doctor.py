"""``semistream doctor`` starts Spark and looks at the Python of its workers."""

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from semistream.cli.doctor import check_unconfigured
from tests.spark.services import environment
from tests.unit.snapshots import build


def doctor(*arguments: str, **variables: str) -> tuple[int, dict[str, dict[str, Any]]]:
    done = subprocess.run(
        [sys.executable, "-m", "semistream.cli.main", "doctor", "--json", *arguments],
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, {f["what"]: f for f in json.loads(done.stdout)["findings"]}


def test_workers_that_run_this_python(tmp_path: Path) -> None:
    relation = build(tmp_path / "r.rel")
    code, found = doctor(relation.location)
    assert code == 0, found
    assert "ran a job on local[1]" in found["Spark"]["found"]
    assert found["worker Python"]["state"] == "ok"
    assert sys.executable in found["worker Python"]["found"]


def test_a_session_that_is_not_configured_would_run_another_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    bare = tmp_path / "python3"
    bare.write_text("#!/bin/sh\nexit 1\n")
    bare.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = check_unconfigured()
    assert found.state == "note"
    assert f"their workers run {bare}" in found.found
    assert f"export PYSPARK_PYTHON={sys.executable}" in found.remedy
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert list(check_unconfigured()) == []


def test_workers_that_run_a_python_without_packages(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare")
    bare = str(tmp_path / "bare" / "bin" / "python")
    code, found = doctor(PYSPARK_PYTHON=bare)
    assert code == 1
    assert found["Spark"]["state"] == "wrong"
    assert f"workers run {bare}" in found["Spark"]["remedy"]
    assert f"export PYSPARK_PYTHON={sys.executable}" in found["Spark"]["remedy"]
