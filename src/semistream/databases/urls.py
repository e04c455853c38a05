"""Addresses of databases. They never hold a password: that comes from the environment or a file.

=============================================  ====================================================
``postgresql://user@host:5432/database``       password: ``PGPASSWORD``, or ``~/.pgpass``
``mysql://user@host:3306/database``            (or ``mariadb://``) ``MYSQL_PWD``, or ``~/.my.cnf``
``sqlite:////data/shop.db``                    none
``duckdb:////data/shop.duckdb``                none
=============================================  ====================================================
"""

from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from semistream.errors import OptionError, did_you_mean

_KINDS = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mariadb",
    "mariadb": "mariadb",
    "sqlite": "sqlite",
    "duckdb": "duckdb",
}
_IN_QUERY = ("password", "sslpassword", "passwd")
_WHERE = {
    "postgresql": "the environment variable PGPASSWORD, or the file ~/.pgpass",
    "mariadb": "the environment variable MYSQL_PWD, or the file ~/.my.cnf",
}


@dataclass(frozen=True, slots=True)
class Address:
    """A database, without a password."""

    kind: str  # postgresql, mariadb, sqlite or duckdb
    url: str  # as given
    host: str
    port: int | None
    user: str | None
    database: str  # its name, or the path of its file

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Return the address of a URL; the URL is not repeated in an error if it has a password."""
        parts = urlsplit(url)
        kind = _KINDS.get(parts.scheme)
        if kind is None:
            raise OptionError(
                f"a database's URL begins with {', '.join(f'{k}://' for k in _KINDS)}; got "
                f"{parts.scheme!r}.{did_you_mean(parts.scheme, _KINDS)}"
            )
        if parts.password is not None or any(name in _IN_QUERY for name in parse_qs(parts.query)):
            raise OptionError(
                f"the URL of the {kind} database at {parts.hostname} holds a password, which would "
                f"appear in plans and logs. Leave it out, and put it into "
                f"{_WHERE.get(kind, 'the environment')}"
            )
        is_file = kind in ("sqlite", "duckdb")
        path = unquote(parts.path)
        # sqlite:///relative.db and sqlite:////absolute.db, as is usual.
        database = path[1:] if path.startswith("/") else path
        if is_file and not database:
            raise OptionError(f"{url!r} names no file; write {kind}:////path/of/the/file")
        user = None if parts.username is None else unquote(parts.username)
        return cls(kind, url, parts.hostname or "", parts.port, user, database)

    def __str__(self) -> str:
        """Return the URL."""
        return self.url
