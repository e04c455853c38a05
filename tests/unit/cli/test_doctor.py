"""``semistream doctor`` without Spark; `tests/spark/test_doctor.py` has the rest."""

import json
import sys
from pathlib import Path

import pytest

from semistream.cli import doctor
from semistream.cli.doctor import Finding, check_access, check_package, check_worker
from semistream.cli.main import main
from tests.unit.snapshots import build


def findings(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Finding]:
    main(["doctor", "--no-spark", "--json", *arguments])
    body = json.loads(capsys.readouterr().out)
    return {found["what"]: Finding(**found) for found in body["findings"]}


def test_all_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    relation = build(tmp_path / "r.rel")
    before = sorted(tmp_path.rglob("*"))
    found = findings(capsys, relation.location)
    assert [f for f in found.values() if f.state == "wrong"] == []
    assert found["Python"].found.endswith(sys.executable)
    assert found["numpy"].state == found["pyspark"].state == "ok"
    assert "version" in found["Java"].found
    assert "available" in found["memory"].found
    assert "/dev/shm" in found["shared memory"].found
    assert "reads" in found["disk"].found
    assert found["relation"].found == f"20 rows at {relation.location}"
    assert "wrote in" in found["place"].found
    assert sorted(tmp_path.rglob("*")) == before, "nothing is left behind"


def test_text_and_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["doctor", "--no-spark"]) == 1
    out = capsys.readouterr().out
    assert "wrong  Java " in out
    assert "apt-get install openjdk-17" in out
    assert out.endswith("Wrong: Java\n")
    monkeypatch.delenv("JAVA_HOME")
    assert main(["doctor", "--no-spark"]) == 0
    assert "Nothing is wrong." in capsys.readouterr().out


def test_packages() -> None:
    assert check_package("numpy>=1.26", is_optional=False).state == "ok"
    old = check_package("numpy>=99,<100", is_optional=False)
    assert (old.state, old.remedy) == ("wrong", "pip install 'numpy>=99,<100'")
    assert "but >=99,<100 is needed" in old.found
    assert check_package("no-such-package>=1", is_optional=False).state == "wrong"
    assert "semistream[spark]" in check_package("no-such-package", is_optional=True).remedy


def test_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "host_memory", lambda: (100_000_000, 8_000_000_000))
    memory, _ = doctor.check_memory()
    assert (memory.state, memory.found) == ("wrong", "100.0 MB of 8.0 GB available")


def test_a_place_that_does_not_exist_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = findings(capsys, str(tmp_path / "a" / "r.rel"))
    assert found["relation"].state == "note"
    assert found["place"].state == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = check_access(str(tmp_path / "file"))
    assert found.state == "wrong"
    assert "no file can be written" in found.found


def test_a_place_that_cannot_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    found = findings(capsys, "wasbs://c@a.blob.core.windows.net/r")
    assert found["relation"].state == "wrong"
    assert "abfss://" in found["relation"].found


def test_a_worker_with_other_packages_that_does_not_see_the_place() -> None:
    worker = {
        "host": "node-7",
        "python": "/usr/bin/python3",
        "python_version": "3.11.2",
        "packages": {"numpy": "", "pyarrow": "1.0"},
        "sees_path": False,
    }
    packages, place = check_worker(worker, "/data/r.rel")
    assert packages.state == "wrong"
    assert "numpy missing" in packages.found
    assert "pyarrow 1.0 (the driver has" in packages.found
    assert f"PYSPARK_PYTHON={sys.executable}" in packages.remedy
    assert (place.state, place.found) == ("wrong", "node-7 does not see /data/r.rel")
