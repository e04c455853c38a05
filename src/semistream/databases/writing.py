"""Rows of a micro-batch into a table, exactly once: one transaction, with its marker in it.

::

    begin ── marker of the stream, locked ──► this micro-batch or a later one? ── yes ──► nothing
                                              no ──► rows ──► marker := number ──► commit

The marker is a row of the table ``semistream_batches`` in the same database. Its lock makes two
attempts at one micro-batch wait for each other, so that the second finds it done. If anything
fails, the rows and the marker go together.

PostgreSQL takes the rows through ``COPY`` into a temporary table, MariaDB as CSV through ``LOAD
DATA``: no row becomes a Python object. Memory: one batch at a time.
"""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from semistream.arrowtypes import is_text
from semistream.columns import join_bytes, split_bytes
from semistream.databases.connect import open_database
from semistream.databases.database import Database, quietly
from semistream.databases.mariadb import connect_mariadb
from semistream.databases.postgresql import connect_postgresql
from semistream.databases.urls import Address
from semistream.errors import ColumnError, DatabaseError, OptionError

MARKERS = "semistream_batches"
_STAGED = "semistream_staged"
_MARKER_COLUMNS = "(stream VARCHAR(200) PRIMARY KEY, batch BIGINT NOT NULL)"


@dataclass(frozen=True)
class TableTarget:
    """A table that micro-batches are appended to."""

    url: str
    table: str
    create: bool = True

    def check(self) -> None:
        """Raise unless micro-batches can be written to such a database."""
        kind = Address.parse(self.url).kind
        if kind not in _WRITERS:
            raise OptionError(
                f"tables of {kind} cannot be written; use postgresql:// or mysql://, or another "
                "format of the sink"
            )

    def write(self, rows: pa.RecordBatchReader, stream: str, number: int) -> int | None:
        """Write the micro-batch `number` of a stream; None if that was done before.

        Returns the number of rows.
        """
        self.check()
        address = Address.parse(self.url)
        database = open_database(address)
        with database.explained(f"writing to the table {self.table!r}"):
            return _WRITERS[address.kind](database, self).write(rows, stream, number)


class _Writer(ABC):
    """What differs between databases."""

    insert_missing: str  # marker row, if there is none yet

    def __init__(self, database: Database, target: TableTarget) -> None:
        self.database = database
        self.target = target
        self.shown = database.table(target.table)

    @abstractmethod
    def connect(self) -> Any:
        """Return a connection that writes, with a transaction begun by its first statement."""

    @abstractmethod
    def append(self, connection: Any, rows: pa.RecordBatchReader) -> int:
        """Append rows to the table within the transaction."""

    @abstractmethod
    def create(self, connection: Any, schema: pa.Schema) -> None:
        """Create the table if it is not there."""

    def write(self, rows: pa.RecordBatchReader, stream: str, number: int) -> int | None:
        connection = self.connect()
        try:
            self._prepare(connection, rows.schema)
            name = self.database.literal(stream)
            with connection.cursor() as cursor:
                # Committed at once: made stronger, the lock of an insert would be a deadlock.
                cursor.execute(self.insert_missing.format(name=name))
                connection.commit()
                cursor.execute(f"SELECT batch FROM {MARKERS} WHERE stream = {name} FOR UPDATE")
                if int(cursor.fetchall()[0][0]) >= number:
                    connection.rollback()
                    return None
                cursor.execute(f"UPDATE {MARKERS} SET batch = {number} WHERE stream = {name}")
            count = self.append(connection, rows)
            connection.commit()
            return count
        finally:
            quietly(connection.close)  # what is not committed is rolled back

    def _prepare(self, connection: Any, schema: pa.Schema) -> None:
        """Create what is missing, before the transaction: definitions would end it in MariaDB."""
        for name in schema.names:
            if pa.types.is_nested(schema.field(name).type):
                raise ColumnError(
                    f"column {name!r} has type {schema.field(name).type}, which a table has no "
                    f"type for; add a step before the sink, add_columns: {{{name}: "
                    f"to_json({name})}}"
                )
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"CREATE TABLE IF NOT EXISTS {MARKERS} {_MARKER_COLUMNS}")
            if self.target.create:
                self.create(connection, schema)
            connection.commit()
        except ColumnError:
            connection.rollback()
            if not self._is_there(connection):
                raise
        except Exception:  # another writer may have been faster; what is wrong shows up below
            connection.rollback()

    def _is_there(self, connection: Any) -> bool:
        """Return whether the table exists."""
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT 1 FROM {self.shown} WHERE 1 = 0")
                return True
        except Exception:  # drivers raise whatever they like
            return False
        finally:
            connection.rollback()


class _PostgreSQL(_Writer):
    insert_missing = f"INSERT INTO {MARKERS} VALUES ({{name}}, -1) ON CONFLICT DO NOTHING"

    def connect(self) -> Any:
        return connect_postgresql(self.database.address)

    def create(self, connection: Any, schema: pa.Schema) -> None:
        with connection.cursor() as cursor:
            self._stage(cursor, schema.empty_table().to_reader())
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self.shown} AS SELECT * FROM {_STAGED} WITH NO DATA"
            )
            cursor.execute(f"DROP TABLE {_STAGED}")

    def append(self, connection: Any, rows: pa.RecordBatchReader) -> int:
        columns = ", ".join(self.database.quote(name) for name in rows.schema.names)
        with connection.cursor() as cursor:
            self._stage(cursor, rows)
            cursor.execute(f"INSERT INTO {self.shown} ({columns}) SELECT {columns} FROM {_STAGED}")
            cursor.execute(f"SELECT COUNT(*) FROM {_STAGED}")
            count = int(cursor.fetchall()[0][0])
            cursor.execute(f"DROP TABLE {_STAGED}")
        return count

    def _stage(self, cursor: Any, rows: pa.RecordBatchReader) -> None:
        cursor.adbc_ingest(_STAGED, rows, mode="create", temporary=True)


class _MariaDB(_Writer):
    insert_missing = f"INSERT IGNORE INTO {MARKERS} VALUES ({{name}}, -1)"

    def connect(self) -> Any:
        return connect_mariadb(self.database.address, autocommit=False, local_infile=True)

    def create(self, connection: Any, schema: pa.Schema) -> None:
        columns = ", ".join(f"{self.database.quote(f.name)} {_declared(f)}" for f in schema)
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {self.shown} ({columns})")

    def append(self, connection: Any, rows: pa.RecordBatchReader) -> int:
        return sum(self._load(connection, batch) for batch in rows if batch.num_rows)

    def _load(self, connection: Any, batch: pa.RecordBatch) -> int:
        columns = ", ".join(f"@c{i}, @n{i}" for i in range(batch.num_columns))
        values = ", ".join(
            f"{self.database.quote(f.name)} = IF(@n{i} = '1', NULL, {_loaded(f.type, f'@c{i}')})"
            for i, f in enumerate(batch.schema)
        )
        with _csv_file(batch) as path, connection.cursor() as cursor:
            count = cursor.execute(
                f"LOAD DATA LOCAL INFILE {self.database.literal(path)} INTO TABLE {self.shown} "
                "CHARACTER SET utf8mb4 FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"' "
                f"ESCAPED BY '' LINES TERMINATED BY '\n' ({columns}) SET {values}"
            )
            cursor.execute("SHOW WARNINGS")  # with LOCAL, errors are only warnings
            warnings = cursor.fetchall()
        if warnings or count != batch.num_rows:
            said = warnings[0][2] if warnings else "no reason was given"
            raise DatabaseError(
                f"MariaDB took {count} of {batch.num_rows} rows as they are: {said}. Nothing of "
                "this micro-batch was written"
            )
        return int(count)


_WRITERS: dict[str, type[_Writer]] = {"postgresql": _PostgreSQL, "mariadb": _MariaDB}


@contextmanager
def _csv_file(batch: pa.RecordBatch) -> Iterator[str]:
    """Yield the path of a CSV file with each column, and beside it whether it is null."""
    columns: dict[str, pa.Array] = {}
    for i, array in enumerate(batch.columns):
        columns[f"c{i}"] = _as_csv(array)
        columns[f"n{i}"] = pc.cast(pc.is_null(array), pa.int8())
    with tempfile.NamedTemporaryFile(prefix="semistream-", suffix=".csv") as file:
        csv.write_csv(pa.table(columns), file, csv.WriteOptions(include_header=False))
        file.flush()
        yield file.name


def _as_csv(array: pa.Array) -> pa.Array:
    """Return a column as texts that LOAD DATA reads: instants in UTC, binaries as digits."""
    if pa.types.is_timestamp(array.type):
        return (
            array.cast(pa.timestamp("us", array.type.tz)).view(pa.int64()).view(pa.timestamp("us"))
        )
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        lengths, data, validity = split_bytes(array)
        digits = np.frombuffer(data.tobytes().hex().encode(), np.uint8)
        return join_bytes(pa.string(), lengths * 2, digits, validity)
    return array


def _loaded(dtype: pa.DataType, value: str) -> str:
    """Return SQL that makes a value of a text."""
    if pa.types.is_boolean(dtype):
        return f"({value} = 'true')"
    if pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype):
        return f"UNHEX({value})"
    return value


def _declared(field: pa.Field) -> str:
    """Return the type of a column of a table in MariaDB."""
    dtype = field.type
    if pa.types.is_decimal(dtype):
        return f"DECIMAL({dtype.precision},{dtype.scale})"
    if is_text(dtype):
        return "LONGTEXT"
    tests = {
        "BOOLEAN": pa.types.is_boolean,
        "TINYINT": pa.types.is_int8,
        "SMALLINT": pa.types.is_int16,
        "INT": pa.types.is_int32,
        "BIGINT": pa.types.is_int64,
        "FLOAT": pa.types.is_float32,
        "DOUBLE": pa.types.is_float64,
        "DATE": pa.types.is_date,
        "DATETIME(6)": pa.types.is_timestamp,
        "LONGBLOB": lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t),
    }
    for name, fits in tests.items():
        if fits(dtype):
            return name
    raise ColumnError(
        f"column {field.name!r} has type {dtype}, which MariaDB has no type for; cast it to another"
    )
