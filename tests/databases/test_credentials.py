"""A password comes from the environment or a file, and is in no log, error, plan or manifest."""

import logging
import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import DatabaseError, OptionError, SemistreamError
from tests.databases.fill import Filled
from tests.services.databases import PASSWORD, USER
from tests.services.session import driver_environment
from tests.spark.services import PATIENCE_SECONDS

SERVERS = ("postgresql", "mysql")
DRIVER = Path(__file__).parent / "credentials_driver.py"
ROWS = pa.table({"k": range(20), "v": [f"v{i}" for i in range(20)]})


@pytest.fixture
def server(database: Filled) -> Filled:
    if database.kind not in SERVERS:
        pytest.skip("a file has no password")
    return database


@pytest.fixture(scope="module")
def name(database: Filled) -> str:
    if database.kind in SERVERS:
        database.put(ROWS, "guarded", ["k"])
    return "guarded"


def _variable(database: Filled) -> str:
    return "PGPASSWORD" if database.kind == "postgresql" else "MYSQL_PWD"


def _with_password(url: str) -> str:
    return url.replace(f"{USER}@", f"{USER}:{PASSWORD}@")


def test_a_url_with_a_password_is_refused_without_repeating_it(server: Filled, name: str) -> None:
    for url in (_with_password(server.url), f"{server.url}?password={PASSWORD}"):
        for call in (ss.Relation.sql, ss.sql_table):
            with pytest.raises(OptionError, match="holds a password") as raised:
                call(url, name, key="k")
            assert PASSWORD not in str(raised.value)
            assert _variable(server) in str(raised.value)


def test_no_error_shows_it(server: Filled, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = "wrong-Tr0ub4dor"
    monkeypatch.setenv(_variable(server), wrong)
    errors: list[SemistreamError] = []
    for url in (server.url, server.url.replace("127.0.0.1", "127.0.0.2").replace(USER, "nobody")):
        with pytest.raises(DatabaseError) as raised:
            ss.Relation.sql(url, name, key="k")
        errors.append(raised.value)
    monkeypatch.setenv(_variable(server), PASSWORD)
    with pytest.raises(DatabaseError) as raised:
        pa.table(ss.sql_table(server.url, name, key="k", where=f"no_such_column = '{PASSWORD}'"))
    errors.append(raised.value)
    for error in errors:
        seen: BaseException | None = error
        while seen is not None:
            assert wrong not in str(seen)
            assert PASSWORD not in str(seen)
            seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)


def test_the_environment_or_a_file(
    server: Filled, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(_variable(server))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(DatabaseError):
        ss.Relation.sql(server.url, name, key="k")
    if server.kind == "postgresql":
        file, text = tmp_path / ".pgpass", f"127.0.0.1:*:*:{USER}:{PASSWORD}\n"
        monkeypatch.setenv("PGPASSFILE", str(file))  # libpq looks up the real home otherwise
    else:
        file, text = tmp_path / ".my.cnf", f"[client]\npassword={PASSWORD}\n"
    file.write_text(text)
    file.chmod(0o600)
    assert ss.Relation.sql(server.url, name, key="k").row_count == ROWS.num_rows


def test_it_is_in_no_relation_log_or_manifest(
    server: Filled,
    name: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    relation = ss.Relation.sql(server.url, name, key="k")
    list(ss.join(ROWS.select(["k"]), relation, memory="20MB"))
    explained = relation.explain(memory="20MB")
    source = ss.sql_table(server.url, name, key="k")
    built = ss.build_relation(source, tmp_path / "r.rel", key="k")
    built = built.refresh(source).upsert(source)
    shown = [repr(relation), str(explained), repr(source), caplog.text, *capfd.readouterr()]
    shown += [repr(built), str(built.info()), str(built.history())]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    for text in shown:
        assert PASSWORD not in text
    for content in (pickle.dumps(relation), pickle.dumps(source), *(p.read_bytes() for p in files)):
        assert PASSWORD.encode() not in content


def test_spark_shows_it_in_no_plan_or_log(server: Filled, name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(DRIVER), server.url, name, str(tmp_path)]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=driver_environment(),
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    assert PASSWORD not in done.stdout
    assert done.returncode == 0, done.stdout[-4000:]
    # Something was looked at: a plan, what was logged, and a join that found its password.
    for text in ("== Physical Plan ==", "MapInArrow", "DEBUG:", "3 rows were joined"):
        assert text in done.stdout
