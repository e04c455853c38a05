"""MariaDB and MySQL, through PyMySQL: the server packs rows as CSV, and Arrow reads that.

A driver in Python makes an object of every value, about 90 thousand rows a second; connectorx is
fast, but opens a connection for each query, so two reads of a page could see different rows. Here
``GROUP_CONCAT`` puts all rows of a query into one text, which Arrow's CSV reader turns into
columns: native code on both sides, in a transaction of our own. The number of rows comes along, so
a text that was cut off is noticed.

The password comes from ``MYSQL_PWD``, or from ``[client]`` in ``~/.my.cnf``.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from semistream.arrowtypes import is_bytes, is_text
from semistream.columns import join_bytes, split_bytes
from semistream.databases.database import Database
from semistream.databases.urls import Address
from semistream.errors import DatabaseError
from semistream.extras import needs_extra

_SETTINGS = (
    "SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'",
    "SET SESSION time_zone = '+00:00'",
)
_READING = (
    "SET SESSION group_concat_max_len = 1073741824",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
)
_INTEGERS = {
    "tinyint": (pa.int8(), pa.uint8()),
    "smallint": (pa.int16(), pa.uint16()),
    "mediumint": (pa.int32(), pa.uint32()),
    "int": (pa.int32(), pa.uint32()),
    "bigint": (pa.int64(), pa.uint64()),
    "year": (pa.int16(), pa.int16()),
}
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "uuid")
_BINARIES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")


def connect_mariadb(address: Address, **more: Any) -> Any:
    """Return a connection to a server; the password comes from the environment or a file."""
    with needs_extra("sql", "a table in MariaDB or MySQL"):
        import pymysql
    about: dict[str, Any] = {"host": address.host or "localhost", "database": address.database}
    if address.port is not None:
        about["port"] = address.port
    if address.user is not None:
        about["user"] = address.user
    if os.environ.get("MYSQL_PWD"):
        about["password"] = os.environ["MYSQL_PWD"]
    elif (Path.home() / ".my.cnf").is_file():
        about["read_default_file"] = str(Path.home() / ".my.cnf")
    connection = pymysql.connect(**about, charset="utf8mb4", **more)
    with connection.cursor() as cursor:
        for setting in _SETTINGS:
            cursor.execute(setting)
    return connection


class MariaDB(Database):
    """A connection to MariaDB or MySQL."""

    def _connect(self) -> Any:
        connection = connect_mariadb(self.address, autocommit=True)
        with connection.cursor() as cursor:
            for setting in _READING:
                cursor.execute(setting)
        return connection

    def _query(self, connection: Any, sql: str, schema: pa.Schema | None) -> pa.Table:
        if schema is None:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                names = [about[0] for about in cursor.description]
                rows = cursor.fetchall()
            return pa.table({n: [row[i] for row in rows] for i, n in enumerate(names)})
        texts = (_as_csv(f.type, self.quote(f.name)) for f in schema)
        packed = "GROUP_CONCAT(CONCAT_WS(',', " + ", ".join(texts) + ") SEPARATOR '\n')"
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT COUNT(*), CAST({packed} AS BINARY) FROM ({sql}) AS packed")
            ((count, text),) = cursor.fetchall()
        return _read_csv(text, int(count), schema)

    def _describe(self, table: str, columns: Sequence[str] | None) -> pa.Schema:
        rows = self._columns(table)
        return pa.schema([pa.field(row["name"], _arrow_type(row, table)) for row in rows])

    def _columns(self, table: str) -> list[dict[str, Any]]:
        database, _, name = table.rpartition(".")
        of = self.literal(database) if database else "DATABASE()"
        sql = (
            "SELECT column_name AS name, data_type AS type, column_type AS declared, "
            "numeric_precision AS digits, numeric_scale AS scale, collation_name AS collation "
            f"FROM information_schema.columns WHERE table_schema = {of} "
            f"AND table_name = {self.literal(name)} ORDER BY ordinal_position"
        )
        rows: list[dict[str, Any]] = self._query(self._connected(), sql, None).to_pylist()
        return rows

    def check_key(self, table: str, key: Sequence[str], schema: pa.Schema) -> None:
        """Raise unless an index begins with the key, and a text is ordered by its bytes."""
        database, _, name = table.rpartition(".")
        of = self.literal(database) if database else "DATABASE()"
        found = self.fetch(
            "SELECT index_name AS i, column_name AS c FROM information_schema.statistics "
            f"WHERE table_schema = {of} AND table_name = {self.literal(name)} "
            "AND index_type = 'BTREE' AND sub_part IS NULL ORDER BY index_name, seq_in_index"
        ).to_pylist()
        indexes = {row["i"]: [r["c"] for r in found if r["i"] == row["i"]] for row in found}
        columns = ", ".join(self.quote(n) for n in key).replace('"', "`")
        if not any(index[: len(key)] == list(key) for index in indexes.values()):
            raise DatabaseError(
                f"no index of the table {table!r} begins with {', '.join(key)}; create one: "
                f"CREATE INDEX … ON {name} ({columns})"
            )
        for row in self._columns(table):
            collation = row["collation"]
            if row["name"] in key and collation and not _is_by_bytes(collation):
                raise DatabaseError(
                    f"key column {row['name']!r} of the table {table!r} has the collation "
                    f"{collation!r}, which does not order texts by their bytes; give the column "
                    "the collation utf8mb4_nopad_bin, or make a copy with build_relation"
                )

    def begin_together(self, table: str, others: Sequence[Database]) -> bool:
        """Let all connections see the same rows: they begin while the table is locked for reading.

        False if this user may not lock it; then nothing has changed.
        """
        connection = self._connected()
        with self._explained("locking the table for a moment"), connection.cursor() as cursor:
            try:
                cursor.execute(f"LOCK TABLES {self.table(table)} READ")  # ends the transaction
            except connection.OperationalError:
                cursor.execute(_READING[-1])
                return False
            for other in others:
                other.fetch("SELECT 1")  # connects, and begins
            cursor.execute("UNLOCK TABLES")
            cursor.execute(_READING[-1])
        return True

    def literal(self, value: Any) -> str:
        """Return a value of a key as SQL; a text is compared as the column's bytes."""
        if isinstance(value, str):
            return super().literal(value)
        return super().literal(value).replace("TIMESTAMPTZ", "TIMESTAMP").replace("+00'", "'")

    def _secrets(self) -> list[str]:
        password = os.environ.get("MYSQL_PWD")
        return [password] if password else []


def _is_by_bytes(collation: str) -> bool:
    return (
        collation == "binary" or collation.endswith("nopad_bin") or collation == "utf8mb4_0900_bin"
    )


def _arrow_type(row: dict[str, Any], table: str) -> pa.DataType:
    """Return the Arrow type of a column as the information schema describes it."""
    name = str(row["type"]).lower()
    if name in _INTEGERS:
        return _INTEGERS[name]["unsigned" in str(row["declared"])]
    if name == "decimal" and row["digits"] <= 38:
        return pa.decimal128(int(row["digits"]), int(row["scale"]))
    if name in _TEXTS or name == "decimal":
        return pa.string()
    if name in _BINARIES:
        return pa.binary()
    simple = {
        "double": pa.float64(),
        "float": pa.float32(),
        "date": pa.date32(),
        "datetime": pa.timestamp("us"),
        "timestamp": pa.timestamp("us"),
    }
    if name not in simple:
        raise DatabaseError(
            f"column {row['name']!r} of the table {table!r} has type {row['declared']}, which "
            "cannot be read; name the others with columns=…"
        )
    return simple[name]


def _is_binary(dtype: pa.DataType) -> bool:
    return is_bytes(dtype) and not is_text(dtype)


def _as_csv(dtype: pa.DataType, column: str) -> str:
    """Return a column as a field of CSV: without quotes only if it is null or a number."""
    if is_text(dtype):
        shown = f"CONCAT('\"', REPLACE({column}, '\"', '\"\"'), '\"')"
    elif _is_binary(dtype):
        shown = f"CONCAT('\"', HEX({column}), '\"')"
    else:
        shown = column
    return f"COALESCE({shown}, '')"


def _read_csv(text: bytes | None, count: int, schema: pa.Schema) -> pa.Table:
    """Return the rows of a text; binaries come as hexadecimal digits."""
    if not count:
        return schema.empty_table()
    kinds = {f.name: pa.string() if _is_binary(f.type) else f.type for f in schema}
    found = csv.read_csv(
        pa.BufferReader(text),
        csv.ReadOptions(
            column_names=schema.names, use_threads=False, block_size=len(text or b"") + 1
        ),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=kinds,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    if found.num_rows != count:
        raise DatabaseError(
            f"MariaDB packed {found.num_rows} of {count} rows into one text; raise the server's "
            "max_allowed_packet"
        )
    columns = [
        _from_hexadecimal(found.column(i)) if _is_binary(f.type) else found.column(i)
        for i, f in enumerate(schema)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _from_hexadecimal(column: pa.ChunkedArray) -> pa.Array:
    """Return the binaries that texts of hexadecimal digits stand for."""
    lengths, digits, validity = split_bytes(column.combine_chunks())
    data = np.frombuffer(bytes.fromhex(digits.tobytes().decode()), np.uint8)
    return join_bytes(pa.binary(), lengths // 2, data, validity)
