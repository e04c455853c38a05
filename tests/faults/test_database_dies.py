"""A database server that is killed in mid-transaction: nothing is lost, nothing is there twice."""

from pathlib import Path

import pytest

from tests.faults import database_faults
from tests.services.databases import PASSWORD, need_servers
from tests.services.session import driver_environment
from tests.spark.services import run_driver


def test_a_server_killed_in_mid_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_servers()  # the program could not skip the test
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.setenv("MYSQL_PWD", PASSWORD)
    program = Path(database_faults.__file__)
    done = run_driver(str(program), str(tmp_path), env=driver_environment())
    assert done.split() == list(database_faults.RUN)
