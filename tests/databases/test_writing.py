"""Micro-batches into tables of real servers: exactly once, whatever fails or is repeated."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from semistream.databases.writing import TableTarget
from semistream.errors import ColumnError, DatabaseError, OptionError
from tests.databases.fill import Filled

AT = datetime(2026, 11, 17, 8, 30, 1, 250_000)
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "small": pa.array([None, -7, 7], pa.int32()),
        "name": ['a "quoted", one', "", None],
        "lines": ["first\nsecond\\n", None, "ünï, 'x'"],
        "price": [1.5, None, -1e20],
        "is_sold": [True, False, None],
        "day": pa.array([date(2026, 11, 17), None, date(1970, 1, 1)]),
        "at": pa.array([AT, None, AT], pa.timestamp("us")),
        "instant": pa.array([AT.replace(tzinfo=UTC), None, None], pa.timestamp("us", "UTC")),
        "raw": pa.array([b'\x00\xff,"', None, b""]),
        "cost": pa.array([Decimal("12.30"), None, Decimal("-0.01")], pa.decimal128(12, 2)),
    }
)


pytestmark = pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)


@pytest.fixture
def server(database: Filled) -> Filled:
    return database


def rows_of(server: Filled, table: str) -> list[tuple[Any, ...]]:
    with closing(server._connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} ORDER BY id")
        return [tuple(row) for row in cursor.fetchall()]


def expected(kind: str, rows: pa.Table) -> list[tuple[Any, ...]]:
    """Return what the drivers give for the rows."""
    found = []
    for row in rows.to_pylist():
        if kind == "mysql":
            row["is_sold"] = None if row["is_sold"] is None else int(row["is_sold"])
            row["instant"] = row["instant"] and row["instant"].replace(tzinfo=None)
        elif row["cost"] is not None:  # numbers without a fixed number of digits are texts here
            row["cost"] = str(row["cost"].normalize())
        found.append(tuple(row.values()))
    return found


def test_every_type_arrives_and_a_repeated_batch_is_left_out(server: Filled) -> None:
    target = TableTarget(server.url, "every_type")
    assert target.write(ROWS.to_reader(), "q1", 0) == 3
    assert rows_of(server, "every_type") == expected(server.kind, ROWS)
    assert target.write(ROWS.to_reader(), "q1", 0) is None
    assert len(rows_of(server, "every_type")) == 3
    assert target.write(ROWS.to_reader(), "q1", 1) == 3
    assert target.write(ROWS.to_reader(), "another query", 0) == 3
    assert len(rows_of(server, "every_type")) == 9


def test_a_batch_that_fails_leaves_nothing_and_can_be_repeated(server: Filled) -> None:
    target = TableTarget(server.url, "half")

    def broken() -> Iterator[pa.RecordBatch]:
        yield ROWS.to_batches()[0]
        raise ValueError("the worker dies here")

    reader = pa.RecordBatchReader.from_batches(ROWS.schema, broken())
    with pytest.raises(DatabaseError, match="the worker dies here"):
        target.write(reader, "half", 4)
    assert rows_of(server, "half") == []
    assert target.write(ROWS.to_reader(), "half", 4) == 3
    assert len(rows_of(server, "half")) == 3


OTHERS = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
    "AND datname = current_database()",
    "mysql": "SELECT id FROM information_schema.processlist WHERE id <> connection_id() "
    "AND user <> 'system user'",
}
CUT = {"postgresql": "SELECT pg_terminate_backend({})", "mysql": "KILL {}"}


def cut_connections(server: Filled) -> int:
    """Let the server end all connections but our own; return how many there were."""
    with closing(server._connect()) as connection, connection.cursor() as cursor:
        cursor.execute(OTHERS[server.kind])
        others = [row[0] for row in cursor.fetchall()]
        for other in others:
            cursor.execute(CUT[server.kind].format(other))
    return len(others)


def test_a_connection_that_is_cut_in_mid_transaction_leaves_nothing(server: Filled) -> None:
    target = TableTarget(server.url, "cut")
    target.write(ROWS.to_reader(), "cut", 0)
    were_cut = []

    def batches() -> Iterator[pa.RecordBatch]:
        yield ROWS.to_batches()[0]
        were_cut.append(cut_connections(server))
        yield ROWS.to_batches()[0]

    with pytest.raises(DatabaseError, match="cut"):
        target.write(pa.RecordBatchReader.from_batches(ROWS.schema, batches()), "cut", 1)
    assert were_cut[0] >= 1
    assert len(rows_of(server, "cut")) == 3
    assert target.write(ROWS.to_reader(), "cut", 1) == 3
    assert len(rows_of(server, "cut")) == 6


def test_attempts_at_once_write_once(server: Filled) -> None:
    target = TableTarget(server.url, "at_once")
    target.write(ROWS.to_reader(), "warm", 0)
    with ThreadPoolExecutor(4) as pool:
        attempts = [pool.submit(target.write, ROWS.to_reader(), "race", 7) for _ in range(4)]
    assert sorted(str(a.result()) for a in attempts) == ["3", "None", "None", "None"]
    assert len(rows_of(server, "at_once")) == 6


def test_rows_that_do_not_fit_are_not_changed_in_silence(server: Filled) -> None:
    server.run("CREATE TABLE narrow (id INTEGER PRIMARY KEY)")
    target = TableTarget(server.url, "narrow")
    too_large = pa.table({"id": pa.array([1, 2**40], pa.int64())})
    with pytest.raises(DatabaseError, match=r"out of range|Out of range"):
        target.write(too_large.to_reader(), "narrow", 0)
    twice = pa.table({"id": pa.array([1, 1], pa.int64())})
    with pytest.raises(DatabaseError, match=r"(?i)duplicate"):
        target.write(twice.to_reader(), "narrow", 0)
    assert rows_of(server, "narrow") == []


def test_what_cannot_be_written_is_said(server: Filled) -> None:
    nested = pa.table({"id": [1], "tags": [["a"]]})
    with pytest.raises(ColumnError, match=r"to_json\(tags\)"):
        TableTarget(server.url, "nested").write(nested.to_reader(), "n", 0)
    with pytest.raises(OptionError, match="tables of sqlite cannot be written"):
        TableTarget("sqlite:///x.db", "t").check()
    target = TableTarget(server.url, "no_such", create=False)
    with pytest.raises(DatabaseError, match="no_such"):
        target.write(ROWS.to_reader(), "n", 0)


def test_a_column_that_a_new_table_cannot_have_is_named(server: Filled) -> None:
    rows = pa.table({"id": [1, 2], "note": pa.nulls(2)})
    new, there = TableTarget(server.url, "with_a_note"), TableTarget(server.url, "noted")
    with closing(server._connect()) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE noted (id BIGINT, note VARCHAR(10))")
        connection.commit()
    if server.kind == "mysql":
        with pytest.raises(ColumnError, match=r"column 'note' has type null, which MariaDB has no"):
            new.write(rows.to_reader(), "notes", 0)
    else:
        assert new.write(rows.to_reader(), "notes", 0) == 2
    assert there.write(rows.to_reader(), "notes there", 0) == 2
    assert rows_of(server, "noted") == [(1, None), (2, None)]
