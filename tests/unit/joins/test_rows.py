"""Stores of rows at rest."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from semistream.budget.rowsizes import Widths, record_dtype
from semistream.joins.rows import NestedStore, RowStore


def test_nested_values_are_charged_for_what_they_take() -> None:
    """Wide rows come first, so the column's average says little about them."""
    wide, narrow = [["x" * 1_000] * 100] * 10, [[]] * 990
    column = pa.array([*wide, *narrow], pa.list_(pa.string()))
    store = NestedStore(column.type, 1_000, arena_bytes=250_000)
    room = store.room(column)
    assert column[:room].nbytes <= 250_000 < column[: room + 1].nbytes
    assert store.room(column[10:]) == 990


FIXED = pa.schema(
    [
        ("long", pa.int64()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("price", pa.decimal128(20, 2)),
        ("small", pa.int16()),
        ("id", pa.uuid()),
        ("text", pa.string()),
    ]
)
ROWS = 1_000


def stored() -> tuple[RowStore, pa.Table]:
    """Return a store of rows with nulls, and a table of them by slot."""
    rng = np.random.default_rng(5)
    numbers = rng.integers(-(2**15), 2**15, ROWS)
    columns = {
        "long": pa.array(numbers, mask=rng.random(ROWS) < 0.2),
        "flag": pa.array(numbers % 2 == 0, mask=rng.random(ROWS) < 0.2),
        "day": pa.array(numbers.astype(np.int32), pa.date32()),
        "price": pa.array([Decimal(n) for n in numbers.tolist()], pa.decimal128(20, 2)),
        "small": pa.array(numbers.astype(np.int16)),
        "id": pa.array([rng.bytes(16) for _ in numbers], pa.uuid()),
        "text": pa.array([f"{n}" for n in numbers.tolist()]),
    }
    table = pa.table(columns, FIXED)
    rows = RowStore(FIXED, np.zeros(ROWS, record_dtype(FIXED)), Widths.equal([8.0] * 7))
    rows.put(np.arange(ROWS), [column.combine_chunks() for column in table.columns])
    return rows, table


@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 700])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    "columns", [None, [0], [4, 0], [1, 3, 5], [6, 2, 1], [6]], ids=lambda c: str(c)
)
def test_rows_are_gathered_at_any_slots(columns: list[int] | None, dtype: type, count: int) -> None:
    rows, table = stored()
    slots = np.random.default_rng(count).integers(0, ROWS, 2 * count).astype(dtype)[::2]
    found = rows.gather(slots, columns)
    expected = table.select(range(7) if columns is None else columns).take(pa.array(slots))
    assert found == [column.combine_chunks() for column in expected.columns]
    for column in found:
        column.validate(full=True)
