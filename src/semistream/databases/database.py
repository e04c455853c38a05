"""A connection to a database: queries in, Arrow tables out, all in one read-only transaction.

What a join reads of R must not change between two reads of a page, so every connection sees the
database as it was at its first query. What differs between databases is in `postgresql.py`,
`mariadb.py` and `files.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from semistream.columns import Encoding, encoding_of, plain_schema, plain_type
from semistream.databases.urls import Address
from semistream.errors import ColumnError, DatabaseError, did_you_mean


class Database(ABC):
    """A connection to one database."""

    most_ranges = 200  # in one query

    def __init__(self, address: Address) -> None:
        """Note the address; the first query connects."""
        self.address = address
        self._connection: Any = None

    @abstractmethod
    def _connect(self) -> Any:
        """Return a connection in a new read-only transaction."""

    @abstractmethod
    def _query(self, connection: Any, sql: str, schema: pa.Schema | None) -> pa.Table:
        """Return the rows of a query; `schema` is given where the caller knows it."""

    @abstractmethod
    def _describe(self, table: str, columns: Sequence[str] | None) -> pa.Schema:
        """Return the columns of a table and their types."""

    @abstractmethod
    def check_key(self, table: str, key: Sequence[str], schema: pa.Schema) -> None:
        """Raise unless ranges of the key can be read by an index in the order of its bytes."""

    def fetch(self, sql: str, schema: pa.Schema | None = None) -> pa.Table:
        """Return the rows of a query, in the types of the schema if one is given."""
        with self._explained("a query"):
            found = self._query(self._connected(), sql, schema)
        return found if schema is None else conform(found, schema)

    def schema(self, table: str, columns: Sequence[str] | None = None) -> pa.Schema:
        """Return the columns of a table, all or those that are named, in plain types."""
        with self._explained(f"reading about the table {table!r}"):
            found = plain_schema(self._describe(table, None))
        if not len(found):
            raise DatabaseError(
                f"{self.address} has no table {table!r} that this user can read; "
                "check its name, its schema, and what the user may do"
            )
        if columns is None:
            return found
        for name in columns:
            if name not in found.names:
                raise ColumnError(
                    f"the table {table!r} has no column {name!r}; it has {', '.join(found.names)}."
                    f"{did_you_mean(name, found.names)}"
                )
        return pa.schema([found.field(name) for name in columns])

    def begin_again(self) -> None:
        """End the transaction: the next query sees what was committed since."""
        self.close()

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            quietly(connection.close)

    def __del__(self) -> None:
        """Close on collection, since readers are cached and dropped."""
        self.close()

    def quote(self, name: str) -> str:
        """Return the name of a column as SQL."""
        return '"' + name.replace('"', '""') + '"'

    def table(self, name: str) -> str:
        """Return the name of a table, maybe with its schema before a dot, as SQL."""
        return ".".join(self.quote(part) for part in name.split("."))

    def size(self, name: str, dtype: pa.DataType) -> str:
        """Return the size in bytes of a column of texts or binaries as SQL; of a null 0."""
        return f"COALESCE(OCTET_LENGTH({self.quote(name)}), 0)"

    def ordered(self, name: str, dtype: pa.DataType) -> str:
        """Return a key column as it is compared: by bytes if it is a text."""
        return self.quote(name)

    def literal(self, value: Any) -> str:
        """Return a value of a key as SQL."""
        if isinstance(value, bool):
            raise AssertionError("a key is not a boolean here")
        if isinstance(value, int):
            return str(value)
        if isinstance(value, datetime):
            zone = "" if value.tzinfo is None else "+00"
            name = "TIMESTAMP" if value.tzinfo is None else "TIMESTAMPTZ"
            return f"{name} '{value.replace(tzinfo=None).isoformat(' ')}{zone}'"
        if isinstance(value, date):
            return f"DATE '{value.isoformat()}'"
        return "'" + str(value).replace("'", "''") + "'"

    def _connected(self) -> Any:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Turn what a driver raises into our error, without what a driver may say of passwords."""
        try:
            yield
        except (DatabaseError, ColumnError):
            raise
        except Exception as error:
            if isinstance(error, AssertionError | ImportError):
                raise
            problem = self._redacted(f"{type(error).__name__}: {error}")
            raise DatabaseError(
                f"{what} failed at {self.address}: {problem}. Check that the server answers and "
                "what the user may do; a password comes from the environment or a file"
            ) from None

    def explained(self, what: str) -> AbstractContextManager[None]:
        """Turn what a driver raises meanwhile into our error, without passwords."""
        return self._explained(what)

    def _secrets(self) -> list[str]:
        """Return what must not be shown, should a driver repeat it."""
        return []

    def _redacted(self, text: str) -> str:
        for secret in self._secrets():
            text = text.replace(secret, "***")
        return " ".join(text.split())


def conform(found: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows in the types of a schema."""
    columns = []
    for name, field in zip(found.column_names, schema, strict=True):
        column = found.column(name)
        if isinstance(column.type, pa.BaseExtensionType):
            column = pa.chunked_array(
                [chunk.storage for chunk in column.chunks], column.type.storage_type
            )
        if column.type == field.type:
            columns.append(column)
        elif column.null_count == len(column):
            columns.append(pa.chunked_array([pa.nulls(len(column), field.type)]))
        else:
            columns.append(column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def checked_types(schema: pa.Schema, table: str) -> None:
    """Raise unless every column can be served without a copy."""
    for field in schema:
        if encoding_of(plain_type(field.type)) is Encoding.NESTED:
            raise ColumnError(
                f"column {field.name!r} of the table {table!r} has type {field.type}, which cannot "
                "be served from a database in place; name the others with columns=…, or make a "
                "copy with build_relation"
            )


def quietly(call: Callable[[], object]) -> None:
    """Close something that nothing was written through."""
    try:
        call()
    except Exception:  # drivers raise whatever they like
        return
