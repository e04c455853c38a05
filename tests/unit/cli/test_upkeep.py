"""``semistream info``, ``verify`` and ``prune``, with their JSON and their exit codes."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

import semistream as ss
from semistream.cli.main import main
from tests.unit.snapshots import build


@pytest.fixture
def pair(tmp_path: Path) -> tuple[ss.Relation, ss.Relation]:
    """An old snapshot and the current one."""
    return build(tmp_path / "r.rel"), build(tmp_path / "r.rel")


def damage(relation: ss.Relation, kind: str) -> None:
    folder = Path(relation.location) / "snapshots" / relation.snapshot
    for path in folder.glob(f"*.{kind}"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


def test_info(pair: tuple[ss.Relation, ss.Relation], capsys: pytest.CaptureFixture[str]) -> None:
    old, new = pair
    assert main(["info", new.location]) == 0
    out = capsys.readouterr().out
    assert out == f"{new.info()}\n"
    for word in ("id", "int64  (key)", "text", "string", "format 1", old.snapshot, new.snapshot):
        assert word in out, word
    assert main(["info", new.location, "--snapshot", old.snapshot, "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["snapshot"] == old.snapshot
    assert [s["is_current"] for s in body["snapshots"]] == [False, True]


def test_verify(pair: tuple[ss.Relation, ss.Relation], capsys: pytest.CaptureFixture[str]) -> None:
    old, new = pair
    assert main(["verify", new.location]) == 0
    assert f"snapshot {new.snapshot} is intact: 20 rows" in capsys.readouterr().out
    damage(new, "data")
    assert main(["verify", new.location]) == 1
    out = capsys.readouterr().out
    assert "is damaged, in 2 places" in out
    assert "column 'text'" in out
    assert main(["verify", new.location, "--json"]) == 1
    body = json.loads(capsys.readouterr().out)
    assert body["is_intact"] is False
    assert len(body["problems"]) == 2
    assert main(["verify", new.location, "--snapshot", old.snapshot]) == 0


def test_prune(pair: tuple[ss.Relation, ss.Relation], capsys: pytest.CaptureFixture[str]) -> None:
    old, new = pair
    assert main(["prune", new.location]) == 0
    out = capsys.readouterr().out
    assert f"kept    {old.snapshot}" in out
    assert "--grace" in out
    size = new.info().snapshots[0].size_bytes
    assert main(["prune", new.location, "--grace", "0", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body == {"removed": [old.snapshot], "kept": {}, "freed_bytes": size}
    assert main(["prune", new.location, "--keep", "2"]) == 0
    assert "0 removed, 0 B freed; 1 left" in capsys.readouterr().out


def test_history_and_compact(
    pair: tuple[ss.Relation, ss.Relation], capsys: pytest.CaptureFixture[str]
) -> None:
    new = pair[1]
    assert main(["compact", new.location]) == 0
    assert "nothing to do" in capsys.readouterr().out
    rows = pa.table({"id": [1, 2, 900], "text": ["a", "b", "c"], "gone": [False, True, False]})
    changed = new.upsert(rows, deletes="gone")
    assert main(["info", new.location]) == 0
    assert "2 rows on 2 delta pages, 2 dead rows; semistream compact" in capsys.readouterr().out
    assert main(["history", new.location]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert "upsert from Table: 20 rows (1 added, 1 changed, 1 deleted)  (current)" in last
    assert main(["compact", new.location, "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["replaced"], body["row_count"]) == (changed.snapshot, 20)
    assert main(["history", new.location, "--json"]) == 0
    history = json.loads(capsys.readouterr().out)
    assert [s["origin"]["operation"] for s in history] == ["build", "build", "upsert", "compact"]
    assert (history[-1]["snapshot"], history[-1]["delta_rows"]) == (body["snapshot"], 0)


@pytest.mark.parametrize("command", ["info", "verify", "prune", "history", "compact"])
def test_no_relation(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, str(tmp_path / "none.rel")]) == 2
    assert "is not a relation" in capsys.readouterr().err


def test_a_manifest_that_is_damaged(
    pair: tuple[ss.Relation, ss.Relation], capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(pair[1].location) / "snapshots" / pair[1].snapshot / "manifest.json"
    path.write_text(path.read_text().replace('"id"', '"if"'))
    assert main(["verify", pair[1].location]) == 2
    assert "is not a valid manifest" in capsys.readouterr().err
