"""Stores of rows at rest."""

import pyarrow as pa

from semistream.joins.rows import NestedStore


def test_nested_values_are_charged_for_what_they_take() -> None:
    """Wide rows come first, so the column's average says little about them."""
    wide, narrow = [["x" * 1_000] * 100] * 10, [[]] * 990
    column = pa.array([*wide, *narrow], pa.list_(pa.string()))
    store = NestedStore(column.type, 1_000, arena_bytes=250_000)
    room = store.room(column)
    assert column[:room].nbytes <= 250_000 < column[: room + 1].nbytes
    assert store.room(column[10:]) == 990
