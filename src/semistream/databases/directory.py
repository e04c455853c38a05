"""The pages of a table in a database: ranges of its key, counted once when the table is opened.

::

    keys        │ … 118 │ 120 … 251 │ 252 … 390 │ 391 …
    pages           0         1           2         3          n rows each, duplicates together
    bounds                120         252         391

The rows of the database's own order are cut every n rows; the key at each cut is a bound. A page
ends where the next begins, the first has no lower bound and the last no upper one, so every key has
a page, also one that is inserted later. How many rows a page has, and how many bytes its texts
have, is counted, and some room is added for rows to come (`_SLACK`): joins lay out their memory by
it. A page that outgrows its room is an error (`TableChangedError`): the table has to be opened, and
counted, again.

Opening costs the database one pass over the table: it counts; only bounds and counts are sent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.arrowtypes import is_bytes
from semistream.columns import width_bytes
from semistream.databases.database import Database
from semistream.keys import canonical_type

_SLACK = 0.125  # of the rows and bytes of a page
_LEAST_SLACK_ROWS = 4
_LEAST_SLACK_BYTES = 1024
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Directory:
    """What was counted of a table when it was opened."""

    bounds: pa.Table  # the first key of each page but the first, in canonical types
    row_counts: Ints  # of each page
    room_rows: Ints  # by page: the most rows that it may come to have
    room_bytes: dict[str, Ints]  # by column of texts, by page: the same in bytes

    @property
    def page_count(self) -> int:
        """The number of pages; a table without rows has one."""
        return len(self.row_counts)


def count_pages(
    database: Database,
    table: str,
    key: Sequence[str],
    schema: pa.Schema,
    page_bytes: int,
    where: str = "",
) -> Directory:
    """Cut a table, or the rows `where` a condition holds, into pages of about a size, by key."""
    texts = [f for f in schema if is_bytes(f.type)]
    sizes = [database.size(f.name, f.type) for f in texts]
    fixed_bytes = 8 + sum(width_bytes(f.type) for f in schema if f not in texts)
    found = f"{database.table(table)}{_where(database, key)}{where}"
    rows_per_page = max(1, int(page_bytes / _row_bytes(database, found, sizes, fixed_bytes)))
    ordered = ", ".join(database.ordered(k, schema.field(k).type) for k in key)
    named = ", ".join(database.quote(k) for k in key)
    pages = f"FLOOR((RANK() OVER (ORDER BY {ordered}) - 1) / {rows_per_page})"
    if database.address.kind == "sqlite":  # divides integers as such; FLOOR is not in every build
        pages = f"(RANK() OVER (ORDER BY {ordered}) - 1) / {rows_per_page}"
    sized = "".join(f", {size} AS t{i}" for i, size in enumerate(sizes))
    ranked = f"SELECT {named}, {pages} AS page_{sized} FROM {found}"
    before = f"LAG(page_) OVER (ORDER BY {ordered})"
    cuts = database.fetch(
        f"SELECT {named} FROM (SELECT {named}, page_, {before} AS before_ FROM ({ranked}) a) b "
        f"WHERE before_ <> page_ ORDER BY {ordered}",
        pa.schema([schema.field(name) for name in key]),
    )
    sums = "".join(f", SUM(t{i}) AS s{i}" for i in range(len(texts)))
    counted = database.fetch(
        f"SELECT COUNT(*) AS n{sums} FROM ({ranked}) a GROUP BY page_ ORDER BY page_"
    )
    columns = [_integers(counted.column(i)) for i in range(counted.num_columns)]
    counts = columns[0] if len(columns[0]) else np.zeros(1, np.int64)
    types = [canonical_type(schema.field(name).type, name) for name in key]
    bounds = pa.table([cuts.column(i).cast(t) for i, t in enumerate(types)], names=list(key))
    room = _with_slack(counts, _LEAST_SLACK_ROWS)
    room[-1] += rows_per_page  # new keys are often the greatest
    counted_bytes = columns[1:] if counted.num_rows else [np.zeros(1, np.int64)] * len(texts)
    room_bytes = {
        f.name: _room_bytes(total, counts, room)
        for f, total in zip(texts, counted_bytes, strict=True)
    }
    return Directory(bounds, counts, room, room_bytes)


def _row_bytes(database: Database, found: str, sizes: Sequence[str], fixed_bytes: int) -> float:
    """Return the size of a row, averaged over all."""
    sums = "".join(f", SUM({size}) AS s{i}" for i, size in enumerate(sizes))
    counted = database.fetch(f"SELECT COUNT(*) AS n{sums} FROM {found}")
    totals = [int(_integers(counted.column(i))[0]) for i in range(counted.num_columns)]
    return fixed_bytes + sum(totals[1:]) / max(1, totals[0])


def _where(database: Database, key: Sequence[str]) -> str:
    """Rows without a key match nothing."""
    return " WHERE " + " AND ".join(f"{database.quote(name)} IS NOT NULL" for name in key)


def _integers(column: pa.ChunkedArray) -> Ints:
    """Return sums and counts, which come as integers, decimals or texts, as integers."""
    values: list[Any] = column.to_pylist()
    return np.array(
        [int(float(v)) if isinstance(v, str) else int(v or 0) for v in values], np.int64
    )


def _with_slack(counted: Ints, least: int) -> Ints:
    slack = np.maximum(np.ceil(_SLACK * counted).astype(np.int64), least)
    return np.asarray(counted + slack, np.int64)


def _room_bytes(counted: Ints, rows: Ints, room_rows: Ints) -> Ints:
    """Return the room of each page's texts: more in proportion where rows have more room."""
    grown = np.ceil(counted * (room_rows / np.maximum(1, rows))).astype(np.int64)
    average = math.ceil(counted.sum() / max(1, int(rows.sum())))
    # A row more than were counted is as wide as others.
    return np.asarray(
        np.maximum(grown, counted + average * (room_rows - rows)) + _LEAST_SLACK_BYTES, np.int64
    )


def page_range(
    database: Database, directory: Directory, schema: pa.Schema, first: int, last: int
) -> str:
    """Return the condition for the rows of pages ``first … last - 1``."""
    conditions = []
    if first > 0:
        conditions.append(_compared(database, directory, schema, first - 1, ">"))
    if last < directory.page_count:
        conditions.append(_compared(database, directory, schema, last - 1, "<"))
    if first == 0:
        names = directory.bounds.column_names
        conditions.append(" AND ".join(f"{database.quote(n)} IS NOT NULL" for n in names))
    return " AND ".join(conditions)


def _compared(
    database: Database, directory: Directory, schema: pa.Schema, bound: int, sign: str
) -> str:
    """Return ``key >= bound`` or ``key < bound``, column by column for keys of several."""
    names = directory.bounds.column_names
    columns = [database.ordered(n, schema.field(n).type) for n in names]
    values = [database.literal(directory.bounds.column(n)[bound].as_py()) for n in names]
    last = f"{columns[-1]} {'>=' if sign == '>' else '<'} {values[-1]}"
    if len(columns) == 1:
        return last
    # k1 > a OR (k1 = a AND k2 >= b); the first part alone lets every database use its index.
    terms = []
    for i in range(len(columns)):
        same = [f"{columns[j]} = {values[j]}" for j in range(i)]
        tail = last if i == len(columns) - 1 else f"{columns[i]} {sign} {values[i]}"
        terms.append("(" + " AND ".join([*same, tail]) + ")")
    return f"{columns[0]} {sign}= {values[0]} AND ({' OR '.join(terms)})"
