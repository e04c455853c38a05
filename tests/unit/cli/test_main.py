import argparse
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.cli.java import java_problem
from semistream.cli.main import main, parser
from tests.faults.test_read_only import OBEY_PERMISSIONS


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert "demo" in out
    assert "build" in out
    assert main([]) == 0  # without a command
    assert capsys.readouterr().out == out


def commands(whole: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in whole._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield command
                yield from commands(command)


@pytest.mark.parametrize("command", list(commands(parser())), ids=lambda command: command.prog)
def test_help_names_defaults_that_there_are(command: argparse.ArgumentParser) -> None:
    text = command.format_help()
    assert "None" not in text
    assert "False" not in text
    groups = argparse._SubParsersAction
    assert [a.dest for a in command._actions if not a.help and not isinstance(a, groups)] == []


def test_help_names_a_default_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["explain", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "a share such as 5% (default: 64MB)" in text
    assert "(default: this machine's) --tasks" in text


@pytest.mark.parametrize("target", ["products.csv", "products.csv/p.rel"])
def test_a_build_into_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("products.csv").write_text("id\n1\n")
    assert main(["build", "products.csv", target, "--key", "id"]) == 2
    said = capsys.readouterr().err
    assert "choose another place" in said if "/" in target else "is a file, but a relation" in said
    assert Path("products.csv").read_text() == "id\n1\n"


def test_a_chart_without_its_package_is_reported_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ss.build_relation(pa.table({"id": [1]}), tmp_path / "p.rel", key="id")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["explain", str(tmp_path / "p.rel"), "--plot", "chart.png"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "pip install 'semistream[charts]'" in err


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
    assert "none.csv' does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("build", "products.csv", "taken/p.rel", "--key", "id"),
        ("generate", "retail", "--rows", "10", "--out", "taken/stream"),
        ("generate", "retail", "--relation-rows", "10", "--relation-out", "taken/r.csv"),
        ("explain", "p.rel", "--device", "ssd", "--plot", "taken/chart.png"),
        ("lab", "run", "meshjoin-5a", "--out", "taken/lab"),
    ],
    ids=lambda words: " ".join(words),
)
def test_a_target_that_cannot_be_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
) -> None:
    """A file is in the way, which stops root as well."""
    monkeypatch.chdir(tmp_path)
    Path("products.csv").write_text("id\n1\n")
    Path("taken").touch()
    ss.build_relation("products.csv", "p.rel", key="id")
    assert main(list(words)) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("semistream: ")
    assert "taken" in said[0]


def test_a_target_that_is_read_only(tmp_path: Path) -> None:
    (tmp_path / "products.csv").write_text("id\n1\n")
    target = tmp_path / "read-only"
    target.mkdir(0o555)
    words = ["build", "products.csv", "read-only/p.rel", "--key", "id"]
    as_others = OBEY_PERMISSIONS if os.getuid() == 0 else []
    command = [*as_others, sys.executable, "-m", "semistream.cli.main", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert "read-only/p.rel' could not be built: [Errno 13] Permission denied" in said
    assert said.endswith("give this user the right to do so, or choose another place")


def test_a_pipe_that_nobody_reads(tmp_path: Path) -> None:
    place = str(tmp_path / "p.rel")
    ss.build_relation(pa.table({"id": range(100)}), place, key="id")
    line = "semistream: the output was closed before its end"
    assert _unread("explain", place, "--device", "ssd") == (141, [line])
    assert _unread("lab", "list") == (1, [])  # Rich ends the command by itself


def _unread(*words: str) -> tuple[int, list[str]]:
    """Run a command whose output nobody reads; return its exit code and what it says."""
    command = [sys.executable, "-m", "semistream.cli.main", *words]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    return done.returncode, done.stderr.splitlines()


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
