"""SQLite, through its ADBC driver, and DuckDB, which speaks Arrow itself: databases in a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream.arrowtypes import is_text
from semistream.databases.database import Database
from semistream.errors import DatabaseError
from semistream.extras import needs_extra


class SQLite(Database):
    """A file of SQLite. A value's type is its column's: others are cast, as SQLite itself does."""

    def _connect(self) -> Any:
        with needs_extra("sql", "a table in SQLite"):
            from adbc_driver_sqlite import dbapi
        if not Path(self.address.database).is_file():
            raise DatabaseError(f"there is no SQLite file {self.address.database!r}; check the URL")
        connection = dbapi.connect(f"file:{self.address.database}?mode=ro", autocommit=True)
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
        return connection

    def _query(self, connection: Any, sql: str, schema: pa.Schema | None) -> pa.Table:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetch_arrow_table()

    def _describe(self, table: str, columns: Sequence[str] | None) -> pa.Schema:
        return pa.schema([pa.field(r["name"], _affinity(r["type"])) for r in self._info(table)])

    def _info(self, table: str) -> list[dict[str, Any]]:
        sql = f"SELECT name, type, pk FROM pragma_table_info({self.literal(table)})"
        rows: list[dict[str, Any]] = self._query(self._connected(), sql, None).to_pylist()
        return rows

    def size(self, name: str, dtype: pa.DataType) -> str:
        """Return the size in bytes of a column of texts or binaries as SQL; of a null 0."""
        return f"COALESCE(LENGTH(CAST({self.quote(name)} AS BLOB)), 0)"

    def check_key(self, table: str, key: Sequence[str], schema: pa.Schema) -> None:
        """Raise unless the key is the primary one, or an index begins with it."""
        rows = self._info(table)
        primary = [r["name"] for r in sorted(rows, key=lambda r: r["pk"]) if r["pk"]]
        indexes = [primary]
        name = self.literal(table)
        found = self.fetch(
            "SELECT l.name AS i, x.seqno AS n, x.name AS c, x.coll AS o "
            f"FROM pragma_index_list({name}) l, pragma_index_xinfo(l.name) x "
            "WHERE l.partial = 0 AND x.key = 1 ORDER BY l.name, x.seqno"
        ).to_pylist()
        indexes += [
            [r["c"] for r in found if r["i"] == index and r["o"] == "BINARY"]
            for index in {row["i"] for row in found}
        ]
        if not any(index[: len(key)] == list(key) for index in indexes):
            columns = ", ".join(self.quote(n) for n in key)
            raise DatabaseError(
                f"no index of the table {table!r} begins with {', '.join(key)} in binary order; "
                f"create one: CREATE INDEX … ON {self.table(table)} ({columns})"
            )


def _affinity(declared: str) -> pa.DataType:
    """Return the Arrow type of a declared type, by SQLite's own rules of affinity."""
    name = declared.upper()
    if "INT" in name:
        return pa.int64()
    if any(word in name for word in ("CHAR", "CLOB", "TEXT", "DATE", "TIME")):
        return pa.string()
    if "BLOB" in name or not name:
        return pa.binary()
    return pa.float64()


class DuckDB(Database):
    """A file of DuckDB. It reads ranges by the least and greatest keys of its row groups."""

    def _connect(self) -> Any:
        with needs_extra("sql", "a table in DuckDB"):
            import duckdb
        if not Path(self.address.database).is_file():
            raise DatabaseError(f"there is no DuckDB file {self.address.database!r}; check the URL")
        connection = duckdb.connect(self.address.database, read_only=True)
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("BEGIN TRANSACTION")
        return connection

    def _query(self, connection: Any, sql: str, schema: pa.Schema | None) -> pa.Table:
        return connection.sql(sql).to_arrow_table()

    def _describe(self, table: str, columns: Sequence[str] | None) -> pa.Schema:
        sql = f"SELECT * FROM {self.table(table)} LIMIT 0"
        return self._query(self._connected(), sql, None).schema

    def size(self, name: str, dtype: pa.DataType) -> str:
        """Return the size in bytes of a column of texts or binaries as SQL; of a null 0."""
        function = "STRLEN" if is_text(dtype) else "OCTET_LENGTH"
        return f"COALESCE({function}({self.quote(name)}), 0)"

    def check_key(self, table: str, key: Sequence[str], schema: pa.Schema) -> None:
        """Raise if the default order of texts is not that of their bytes."""
        if any(is_text(schema.field(name).type) for name in key):
            found = self.fetch("SELECT current_setting('default_collation') AS c")
            if found.column(0)[0].as_py():
                raise DatabaseError(
                    f"DuckDB's default_collation is {found.column(0)[0].as_py()!r}, which does not "
                    "order texts by their bytes; leave it empty"
                )
