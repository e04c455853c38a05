"""Run as a program: a database server is killed while a pipeline writes a micro-batch to it.

For PostgreSQL and for MariaDB: a lock of ours lets the transaction wait after it has noted the
micro-batch, the server is killed (SIGKILL), the pipeline ends with an error, the server is started
again. Nothing of the micro-batch may be there; after the next start of the pipeline all rows are,
once.
"""

import os
import signal
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import semistream as ss
from tests.databases.fill import Filled
from tests.faults.chaos_driver import session
from tests.services.databases import Server, mariadb, postgresql
from tests.spark.services import PATIENCE_SECONDS

RUN = {"postgresql": postgresql, "mariadb": mariadb}
LOCK = {
    "postgresql": "LOCK TABLE sales IN EXCLUSIVE MODE",
    "mysql": "SELECT * FROM sales FOR UPDATE",
}
WAITING = {
    "postgresql": "SELECT COUNT(*) FROM pg_locks WHERE NOT granted",
    "mysql": "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
}
ROWS = 100  # of a file
Rows = set[tuple[int, int]]


def arrive(folder: Path, number: int) -> Rows:
    """Let a file of sales arrive; return its rows."""
    rows = [(i % 7, number * ROWS + i) for i in range(ROWS)]
    (folder / "in").mkdir(exist_ok=True)
    text = "".join(f'{{"product": {product}, "n": {n}}}\n' for product, n in rows)
    (folder / f"{number}.json").write_text(text)
    (folder / f"{number}.json").rename(folder / "in" / f"{number}.json")
    return set(rows)


def pipeline(folder: Path, url: str) -> ss.Pipeline:
    return ss.Pipeline(
        name="sales",
        storage="storage",
        source={"format": "files", "path": "in"},
        parse={"format": "json", "schema": "product long, n long"},
        sink={"format": "sql", "url": url, "table": "sales"},
        trigger="available now",
    ).placed(folder)


def written(url: str) -> Rows:
    with closing(Filled(url)._connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT product, n FROM sales")
        found = [tuple(row) for row in cursor.fetchall()]
    assert len(set(found)) == len(found), "rows are there twice"
    return set(found)


def killed_in_mid_transaction(spark: SparkSession, server: Server, folder: Path) -> None:
    """Start the pipeline, and kill the server when its transaction waits for a lock of ours."""
    database = Filled(server.url)
    holder, watcher = database._connect(), database._connect()
    with holder.cursor() as cursor:
        cursor.execute(LOCK[database.kind])
    query = ss.start_pipeline(pipeline(folder, server.url), spark=spark)
    deadline = time.monotonic() + PATIENCE_SECONDS
    is_waiting = False
    while not is_waiting:
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, "the pipeline writes nothing"
        time.sleep(0.3)  # MariaDB looks anew only if it was not asked for a tenth of a second
        with watcher.cursor() as cursor:
            cursor.execute(WAITING[database.kind])
            is_waiting = int(cursor.fetchall()[0][0]) > 0
        watcher.rollback()
    os.killpg(server.process.pid, signal.SIGKILL)
    server.process.wait()
    for connection in (holder, watcher):
        with suppress(Exception):
            connection.close()
    with pytest.raises(StreamingQueryException, match="DatabaseError"):
        query.awaitTermination(PATIENCE_SECONDS)


def run(spark: SparkSession, kind: str, folder: Path) -> None:
    folder.mkdir(parents=True)
    with RUN[kind](folder) as server:
        first = arrive(folder, 0)
        ss.run_pipeline(pipeline(folder, server.url), spark=spark)
        assert written(server.url) == first
        second = arrive(folder, 1)
        killed_in_mid_transaction(spark, server, folder)
    with RUN[kind](folder, server.port) as server:
        assert written(server.url) == first, "a part of the micro-batch is there"
        third = arrive(folder, 2)
        ss.run_pipeline(pipeline(folder, server.url), spark=spark)
        assert written(server.url) == first | second | third


def main(folder: Path) -> None:
    spark = session(folder, "local[2]")
    for kind in RUN:
        run(spark, kind, folder / kind)
        print(kind)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
