"""PostgreSQL, through its ADBC driver: rows come in the binary format of COPY, as Arrow.

Passwords are the business of libpq, which reads ``PGPASSWORD`` or ``~/.pgpass`` itself.
"""

import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from semistream.arrowtypes import is_text
from semistream.databases.database import Database
from semistream.databases.urls import Address
from semistream.errors import DatabaseError
from semistream.extras import needs_extra

_BY_BYTES = ("C", "POSIX")  # collations of an index that a query with COLLATE "C" can use
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), COALESCE(c.collname, ''),
       COALESCE(CASE WHEN c.collname = 'default' THEN d.datcollate ELSE c.collcollate END, '')
FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation
JOIN pg_database d ON d.datname = current_database()
WHERE a.attrelid = {table}::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_INDEXED = """
SELECT array_to_string(ARRAY(
         SELECT a.attname FROM unnest(i.indkey[0:{last}]) WITH ORDINALITY AS k(number, at)
         JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number ORDER BY k.at
       ), chr(1)),
       COALESCE((SELECT c.collname FROM pg_collation c WHERE c.oid = i.indcollation[0]), '')
FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam
WHERE i.indrelid = {table}::regclass AND i.indisvalid AND i.indpred IS NULL AND m.amname = 'btree'
"""


def connect_postgresql(address: Address) -> Any:
    """Return a connection to a server; libpq finds the password."""
    with needs_extra("sql", "a table in PostgreSQL"):
        from adbc_driver_postgresql import dbapi
    return dbapi.connect(address.url.replace("postgres://", "postgresql://", 1))


class PostgreSQL(Database):
    """A connection to PostgreSQL."""

    def _connect(self) -> Any:
        connection = connect_postgresql(self.address)
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute("SET LOCAL TIME ZONE 'UTC'")
            cursor.execute("SET LOCAL synchronize_seqscans = off")
        return connection

    def _query(self, connection: Any, sql: str, schema: pa.Schema | None) -> pa.Table:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetch_arrow_table()

    def _describe(self, table: str, columns: Sequence[str] | None) -> pa.Schema:
        empty = self._query(self._connected(), f"SELECT * FROM {self.table(table)} LIMIT 0", None)
        declared = {row["attname"]: row["format_type"] for row in self._columns(table)}
        fields = [pa.field(f.name, _arrow_type(f.type, declared[f.name])) for f in empty.schema]
        return pa.schema(fields)

    def _columns(self, table: str) -> list[dict[str, Any]]:
        sql = _COLUMNS.format(table=self.literal(self.table(table)))
        rows: list[dict[str, Any]] = self._query(self._connected(), sql, None).to_pylist()
        return rows

    def ordered(self, name: str, dtype: pa.DataType) -> str:
        """Return a key column as it is compared: texts by their bytes."""
        return f'{self.quote(name)} COLLATE "C"' if is_text(dtype) else self.quote(name)

    def check_key(self, table: str, key: Sequence[str], schema: pa.Schema) -> None:
        """Raise unless a B-tree begins with the key, and orders a text by its bytes."""
        collations = {row["attname"]: row for row in self._columns(table)}
        sql = _INDEXED.format(last=len(key) - 1, table=self.literal(self.table(table)))
        found = self.fetch(sql)
        indexed = zip(*(found.column(i).to_pylist() for i in range(2)), strict=True)
        texts = [name for name in key if is_text(schema.field(name).type)]
        wanted = ", ".join(
            f'{self.quote(n)} COLLATE "C"' if n in texts else self.quote(n) for n in key
        )
        advice = f"create one: CREATE INDEX ON {self.table(table)} ({wanted})"
        same = [collation for names, collation in indexed if names == "\x01".join(key)]
        if not same:
            raise DatabaseError(
                f"no index of the table {table!r} begins with {', '.join(key)}; {advice}"
            )
        # The index says "C", or the column's own collation is one that orders by bytes. A query
        # that asks for COLLATE "C" uses only an index that was made with it.
        if texts and not any(collation in _BY_BYTES for collation in same):
            shown = collations[texts[0]]["collname"]
            raise DatabaseError(
                f"the index on {', '.join(key)} of the table {table!r} orders texts by the "
                f"collation {shown!r}, not by their bytes, so ranges cannot be read by it; {advice}"
            )

    def export_snapshot(self) -> str:
        """Return the name of what this transaction sees, for other connections to see the same."""
        found = self.fetch("SELECT pg_export_snapshot()")
        return str(found.column(0)[0].as_py())

    def import_snapshot(self, name: str) -> None:
        """See what another connection sees; before the first query."""
        with self._explained("sharing a snapshot"), self._connected().cursor() as cursor:
            cursor.execute(f"SET TRANSACTION SNAPSHOT {self.literal(name)}")

    def _secrets(self) -> list[str]:
        password = os.environ.get("PGPASSWORD")
        return [password] if password else []


def _arrow_type(found: pa.DataType, declared: str) -> pa.DataType:
    """Return the type of a column: ADBC gives numbers of any precision as texts."""
    if declared.startswith("numeric(") and "," in declared:
        precision, scale = (int(n) for n in declared[len("numeric(") : -1].split(","))
        if precision <= 38 and 0 <= scale <= precision:
            return pa.decimal128(precision, scale)
    if isinstance(found, pa.BaseExtensionType):
        return found.storage_type
    return found
