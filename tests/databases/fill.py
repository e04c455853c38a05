"""Puts an Arrow table into each kind of database."""

import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import pyarrow as pa
import pymysql
from adbc_driver_postgresql import dbapi as postgresql

from tests.services.databases import PASSWORD

_MARIADB = {
    pa.int64(): "BIGINT",
    pa.int32(): "INT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR(200)",
    pa.binary(): "VARBINARY(200)",
    pa.date32(): "DATE",
    pa.timestamp("us"): "DATETIME(6)",
    pa.decimal128(12, 2): "DECIMAL(12,2)",
}
_POSTGRESQL = _MARIADB | {
    pa.float64(): "DOUBLE PRECISION",
    pa.string(): "TEXT",
    pa.binary(): "BYTEA",
    pa.timestamp("us"): "TIMESTAMP",
    pa.decimal128(12, 2): "NUMERIC(12,2)",
}
_SQLITE = {pa.int64(): "INTEGER", pa.float64(): "REAL", pa.string(): "TEXT", pa.binary(): "BLOB"}


class Filled:
    """A database that tests can put tables into."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.kind = urlsplit(url).scheme

    def put(self, rows: pa.Table, name: str, key: Sequence[str], unique: bool = True) -> None:
        """Create a table with an index on the key."""
        types = {"postgresql": _POSTGRESQL, "mysql": _MARIADB}.get(self.kind, _SQLITE)
        if self.kind == "duckdb":
            types = _POSTGRESQL | {pa.float64(): "DOUBLE", pa.binary(): "BLOB"}
        columns = ", ".join(f"{f.name} {types[f.type]}" for f in rows.schema)
        collated = [f'{k} COLLATE "C"' if self._is_text(rows, k) else k for k in key]
        how = "UNIQUE INDEX" if unique else "INDEX"
        self.run(f"CREATE TABLE {name} ({columns})", (), rows, name)
        if self.kind != "duckdb":
            self.run(f"CREATE {how} {name}_by_key ON {name} ({', '.join(collated)})")

    def _is_text(self, rows: pa.Table, name: str) -> bool:
        return self.kind == "postgresql" and rows.schema.field(name).type == pa.string()

    def run(
        self,
        sql: str,
        values: Sequence[Any] = (),
        rows: pa.Table | None = None,
        name: str = "",
    ) -> None:
        """Run a statement, then insert rows; commit."""
        with closing(self._connect()) as connection:
            if self.kind == "duckdb":
                connection.execute(sql)
                if rows is not None:
                    connection.register("rows_", rows)
                    connection.execute(f"INSERT INTO {name} SELECT * FROM rows_")
                return
            cursor = connection.cursor()
            cursor.execute(sql, *([tuple(values)] if values else []))
            if rows is not None and rows.num_rows:
                mark = "%s" if self.kind == "mysql" else "?"
                if self.kind == "postgresql":
                    cursor.adbc_ingest(f"{name}_", rows, mode="replace")
                    cursor.execute(f"INSERT INTO {name} SELECT * FROM {name}_")
                    cursor.execute(f"DROP TABLE {name}_")
                else:
                    marks = ", ".join([mark] * rows.num_columns)
                    listed = list(zip(*(c.to_pylist() for c in rows.columns), strict=True))
                    cursor.executemany(f"INSERT INTO {name} VALUES ({marks})", listed)
            cursor.close()
            connection.commit()

    def run_elsewhere(self, sql: str) -> None:
        """Run a statement while a join reads.

        Two libraries of SQLite in one process lose each other's locks, so that takes another one.
        """
        if self.kind != "sqlite":
            self.run(sql)
            return
        code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]);"
        code += "c.commit()"
        command = [sys.executable, "-c", code, urlsplit(self.url).path[1:], sql]
        subprocess.run(command, check=True)

    def _connect(self) -> Any:
        parts = urlsplit(self.url)
        if self.kind == "sqlite":
            return sqlite3.connect(parts.path[1:])
        if self.kind == "duckdb":
            return duckdb.connect(parts.path[1:])
        if self.kind == "postgresql":
            return postgresql.connect(self.url)
        return pymysql.connect(
            host=parts.hostname,
            port=parts.port,
            user=parts.username,
            password=PASSWORD,
            database=parts.path[1:],
        )


def file_url(kind: str, folder: Path) -> str:
    """Return the URL of a database in a file."""
    return f"{kind}:///{folder / f'shop.{kind}'}"
