import os
import stat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.cli.java import java_problem
from semistream.cli.main import main


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert "demo" in out
    assert "build" in out


def test_build_from_parquet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "products.parquet"
    pq.write_table(pa.table({"id": [1, 2, None], "name": ["a", "b", "c"]}), source)
    assert main(["build", str(source), str(tmp_path / "p.rel"), "--key", "id"]) == 0
    assert ss.Relation.open(tmp_path / "p.rel").row_count == 2
    out = capsys.readouterr().out
    assert "2 rows" in out
    assert "1 rows without a key left out" in out


def test_build_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "products.csv"
    source.write_text("product_id,name\n1,a\n")
    assert main(["build", str(source), str(tmp_path / "p.rel"), "--key", "prodct_id"]) == 2
    assert "Did you mean 'product_id'?" in capsys.readouterr().err
    assert main(["build", str(tmp_path / "none.csv"), str(tmp_path / "p.rel"), "--key", "x"]) == 2
    assert "none.csv" in capsys.readouterr().err


def _fake_java(folder: Path, first_line: str) -> Path:
    home = folder / "jdk"
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{first_line}' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return home


@pytest.mark.parametrize(
    ("first_line", "complaint"),
    [
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('openjdk version "21" 2023-09-19', None),
        ('openjdk version "11.0.2"', "is version 11"),
        ('java version "1.8.0_402"', "is version 8"),
        ("nonsense", "does not print its version"),
    ],
)
def test_java_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_line: str, complaint: str | None
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path, first_line)))
    problem = java_problem()
    if complaint is None:
        assert problem is None
    else:
        assert problem is not None
        assert complaint in problem
        assert "Install Java 17" in problem


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    problem = java_problem()
    assert problem is not None
    assert "there is none" in problem
    monkeypatch.setenv("JAVA_HOME", os.fspath(tmp_path))
    assert "JAVA_HOME" in (java_problem() or "")
