"""The join by DuckDB: an oracle for tables that the nested loop would take too long for.

DuckDB finds which rows belong together; Arrow then takes them out of the very tables that were
joined, so that values and types are exactly those of the nested loop. Nothing of it is ours.
"""

from collections.abc import Mapping, Sequence

import duckdb
import numpy as np
import pyarrow as pa

_QUERIES = {
    "inner": "SELECT s.row_s, r.row_r FROM s JOIN r ON {same}",
    "left": "SELECT s.row_s, r.row_r FROM s LEFT JOIN r ON {same}",
    "semi": "SELECT s.row_s FROM s WHERE EXISTS (SELECT 1 FROM r WHERE {same})",
    "anti": "SELECT s.row_s FROM s WHERE NOT EXISTS (SELECT 1 FROM r WHERE {same})",
}


def duckdb_join(
    stream: pa.Table,
    relation: pa.Table,
    *,
    on: str | Mapping[str, str],
    how: str = "left",
    columns: Sequence[str] | None = None,
    condition: str = "TRUE",
) -> pa.Table:
    """Return what `nested_loop_join` does; a condition is DuckDB's SQL over `s` and `r`."""
    pairs = {on: on} if isinstance(on, str) else dict(on)
    if columns is None:
        columns = [c for c in relation.schema.names if c not in pairs.values()]
    same = " AND ".join([f"({condition})", *(f"s.k{i} = r.k{i}" for i in range(len(pairs)))])
    found = _matches(
        _keys(stream, list(pairs), "row_s"),
        _keys(relation, list(pairs.values()), "row_r"),
        how,
        same,
    )
    joined = stream.take(found["row_s"])
    for name in columns if how in ("inner", "left") else ():
        joined = joined.append_column(name, relation[name].take(found["row_r"]))
    return joined


def _keys(table: pa.Table, names: Sequence[str], row: str) -> pa.Table:
    """Return the key columns, numbered, all columns that are not nested, and each row's number."""
    keys = {f"k{i}": table[name] for i, name in enumerate(names)}
    plain = {f.name: table[f.name] for f in table.schema if not pa.types.is_nested(f.type)}
    return pa.table({**keys, **plain, row: np.arange(table.num_rows)})


def _matches(stream: pa.Table, relation: pa.Table, how: str, same: str) -> pa.Table:
    with duckdb.connect() as db:
        db.execute("SET threads = 1")
        db.register("s", stream)
        db.register("r", relation)
        return db.sql(_QUERIES[how].format(same=same)).to_arrow_table()
