"""Which class connects to which database."""

from semistream.databases.database import Database
from semistream.databases.files import DuckDB, SQLite
from semistream.databases.mariadb import MariaDB
from semistream.databases.postgresql import PostgreSQL
from semistream.databases.urls import Address

_KINDS: dict[str, type[Database]] = {
    "postgresql": PostgreSQL,
    "mariadb": MariaDB,
    "sqlite": SQLite,
    "duckdb": DuckDB,
}


def open_database(address: Address) -> Database:
    """Return a connection that the first query opens."""
    return _KINDS[address.kind](address)
