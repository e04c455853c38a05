"""Rows of a table in a database, to build, refresh or change a relation from.

They are read by ranges of the key, several at a time, each through a connection of its own. In
PostgreSQL all connections see the same snapshot; MariaDB cannot share one, so there they begin
while the table is locked for a moment, or, if the user may not lock it, one connection reads alone.
SQLite and DuckDB have one connection.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime
from queue import SimpleQueue

import pyarrow as pa
import pyarrow.compute as pc

from semistream.databases.connect import open_database
from semistream.databases.database import Database
from semistream.databases.directory import Directory, count_pages, page_range
from semistream.databases.mariadb import MariaDB
from semistream.databases.postgresql import PostgreSQL
from semistream.databases.urls import Address
from semistream.errors import ColumnError, OptionError, did_you_mean

_RANGE_BYTES = 4 << 20


@dataclass(frozen=True)
class SqlTable:
    """A source of rows; see `semistream.sql_table`."""

    url: str
    table: str
    key: tuple[str, ...]
    columns: tuple[str, ...] | None
    where: str
    changed_since: tuple[str, datetime | date | int | str] | None
    booleans: tuple[str, ...]
    connections: int

    def reader(self) -> pa.RecordBatchReader:
        """Return a reader that fetches range after range."""
        first = open_database(Address.parse(self.url))
        stored = self._stored_schema(first)
        directory = count_pages(
            first, self.table, self.key, stored, _RANGE_BYTES, self._where(first)
        )
        batches = self._batches(first, stored, directory)
        return pa.RecordBatchReader.from_batches(self._shown(stored), batches)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule with the rows, so that every source of Arrow rows takes it."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def _stored_schema(self, database: Database) -> pa.Schema:
        schema = database.schema(self.table, self.columns)
        for name in (*self.key, *self.booleans):
            if name not in schema.names:
                raise ColumnError(
                    f"the table {self.table!r} has no column {name!r}; it has "
                    f"{', '.join(schema.names)}.{did_you_mean(name, schema.names)}"
                )
        return schema

    def _shown(self, stored: pa.Schema) -> pa.Schema:
        return pa.schema(
            [f.with_type(pa.bool_()) if f.name in self.booleans else f for f in stored]
        )

    def _where(self, database: Database) -> str:
        """Return the conditions for the rows, besides those on the key."""
        conditions = [f"({self.where})"] if self.where else []
        if self.changed_since is not None:
            column, value = self.changed_since
            conditions.append(f"{database.quote(column)} > {database.literal(value)}")
        return "".join(f" AND {condition}" for condition in conditions)

    def _batches(
        self, first: Database, stored: pa.Schema, directory: Directory
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all ranges, in order; as many are fetched ahead as connections."""
        queries = [
            f"SELECT {', '.join(first.quote(name) for name in stored.names)} "
            f"FROM {first.table(self.table)} "
            f"WHERE {page_range(first, directory, stored, page, page + 1) or 'TRUE'}"
            f"{self._where(first)}"
            for page in range(directory.page_count)
        ]
        connections = self._connected(first, min(self.connections, len(queries)))
        free: SimpleQueue[Database] = SimpleQueue()
        for connection in connections:
            free.put(connection)

        def fetch(sql: str) -> pa.Table:
            connection = free.get()
            try:
                return connection.fetch(sql, stored)
            finally:
                free.put(connection)

        try:
            with ThreadPoolExecutor(len(connections)) as threads:
                ahead: list[Future[pa.Table]] = []
                for sql in queries:
                    ahead.append(threads.submit(fetch, sql))
                    if len(ahead) > len(connections):
                        yield from self._as_batches(ahead.pop(0).result())
                for later in ahead:
                    yield from self._as_batches(later.result())
        finally:
            _close(connections)

    def _as_batches(self, rows: pa.Table) -> list[pa.RecordBatch]:
        for name in self.booleans:
            index = rows.schema.get_field_index(name)
            marks = rows.column(index)
            if not pa.types.is_boolean(marks.type):
                marks = pc.not_equal(marks, pa.scalar(0, marks.type))
            rows = rows.set_column(index, pa.field(name, pa.bool_()), marks)
        return list(rows.to_batches())

    def _connected(self, first: Database, count: int) -> list[Database]:
        """Return connections that all see what the first one sees."""
        if count < 2:
            return [first]
        others: list[Database] = []
        try:
            others += (open_database(first.address) for _ in range(count - 1))
            if self._see_the_same(first, others):
                return [first, *others]
        except BaseException:
            _close(others)
            raise
        _close(others)
        return [first]

    def _see_the_same(self, first: Database, others: list[Database]) -> bool:
        """Let the others see what the first one sees; return whether they do."""
        if isinstance(first, PostgreSQL):
            snapshot = first.export_snapshot()
            for other in others:
                assert isinstance(other, PostgreSQL)
                other.import_snapshot(snapshot)
            return True
        return isinstance(first, MariaDB) and first.begin_together(self.table, others)


def _close(connections: list[Database]) -> None:
    for connection in connections:
        connection.close()


def sql_table(
    url: str,
    table: str,
    *,
    key: str | Sequence[str],
    columns: Sequence[str] | None = None,
    where: str = "",
    changed_since: tuple[str, datetime | date | int | str] | None = None,
    booleans: Sequence[str] = (),
    connections: int = 4,
) -> SqlTable:
    """Return the rows of a table or view, as a source for `build_relation`, `refresh`, `upsert`.

    `url` has no password: that comes from ``PGPASSWORD`` or ``~/.pgpass``, from ``MYSQL_PWD`` or
    ``~/.my.cnf``. The rows are read in ranges of the `key`, through some `connections` at once.
    Of all rows only those are read for which the SQL condition `where` is true, and whose column is
    greater than a value: ``changed_since=("updated_at", yesterday)``. `booleans` names columns of
    numbers that are to be read as false or true, where a database has no such type.

    >>> shop = "postgresql://reader@db.example/shop"
    >>> sql_table(shop, "products", key="product_id").table
    'products'
    """
    Address.parse(url)
    if connections < 1:
        raise OptionError(f"connections must be at least 1; got {connections}")
    keys = (key,) if isinstance(key, str) else tuple(key)
    chosen = None if columns is None else tuple(dict.fromkeys([*keys, *columns]))
    return SqlTable(url, table, keys, chosen, where, changed_since, tuple(booleans), connections)
