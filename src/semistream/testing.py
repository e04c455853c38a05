"""A test kit: the join computed the obvious way, and comparison of results as multisets.

Use it to check a pipeline of your own on small data::

    from semistream.testing import nested_loop_join, same_rows
    assert same_rows(output, nested_loop_join(sales, products, on={"id": "product_id"}))
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

Row: TypeAlias = Mapping[str, Any]


def nested_loop_join(
    stream: pa.Table,
    relation: pa.Table,
    *,
    on: str | Sequence[str] | Mapping[str, str],
    how: str = "left",
    columns: Sequence[str] | None = None,
    condition: Callable[[Row, Row], bool] | None = None,
) -> pa.Table:
    """Compare every stream row with every relation row; the oracle for every operator.

    Rows match if their keys are equal and the `condition`, a function of the stream's row and the
    relation's row, is true. ``on=[]`` compares no keys.

    >>> sales = pa.table({"id": [1, 2, None]})
    >>> products = pa.table({"id": [1, 1], "name": ["pen", "ink"]})
    >>> nested_loop_join(sales, products, on="id", how="inner").to_pylist()
    [{'id': 1, 'name': 'pen'}, {'id': 1, 'name': 'ink'}]
    """
    pairs = _key_pairs(on)
    if columns is None:
        columns = [c for c in relation.schema.names if c not in pairs.values()]
    added = list(columns) if how in ("inner", "left") else []
    right = [(_key(r, pairs.values()), [r[c] for c in added], r) for r in relation.to_pylist()]
    rows = []
    for row in stream.to_pylist():
        key = _key(row, pairs.keys())
        matches = [
            values
            for other, values, their in right
            if key is not None and key == other and (condition is None or condition(row, their))
        ]
        rows += _joined(list(row.values()), matches, how, len(added))
    fields = [*stream.schema, *(relation.schema.field(c).with_nullable(True) for c in added)]
    arrays = [pa.array([row[i] for row in rows], f.type) for i, f in enumerate(fields)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _key_pairs(on: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    if isinstance(on, Mapping):
        return dict(on)
    return {name: name for name in ([on] if isinstance(on, str) else on)}


def _key(row: Mapping[str, Any], names: Iterable[str]) -> tuple[Any, ...] | None:
    key = tuple(row[name] for name in names)
    return None if any(part is None for part in key) else key


def _joined(row: list[Any], matches: list[list[Any]], how: str, added: int) -> list[list[Any]]:
    if how == "semi":
        return [row] if matches else []
    if how == "anti":
        return [] if matches else [row]
    if how == "left" and not matches:
        return [row + [None] * added]
    return [row + values for values in matches]


def same_rows(left: pa.Table, right: pa.Table) -> bool:
    """Whether two tables have the same columns, and the same rows the same number of times.

    The order of rows does not matter; names, order and types of columns do. Whether a field is
    nullable and its metadata do not: a join makes columns nullable, which changes no value.
    Values are equal if they print alike, so NaN equals NaN and 0.0 is not -0.0.
    Both tables are validated in full first, which raises `pyarrow.ArrowInvalid` for one whose
    offsets or encodings are broken.

    >>> ones = pa.table({"id": [1, 1, 2]})
    >>> same_rows(ones, pa.table({"id": [2, 1, 1]}))
    True
    >>> same_rows(ones, ones.cast(pa.schema([("id", pa.int32())])))
    False
    """
    for table in (left, right):
        table.validate(full=True)
    if _columns(left) != _columns(right):
        return False
    return _counted(left) == _counted(right)


def _columns(table: pa.Table) -> list[tuple[str, pa.DataType]]:
    return [(field.name, _nullable(field.type)) for field in table.schema]


def _nullable(dtype: pa.DataType) -> pa.DataType:
    """Return the type with all inner fields nullable and without metadata."""
    if pa.types.is_struct(dtype):
        return pa.struct([(field.name, _nullable(field.type)) for field in dtype.fields])
    if pa.types.is_map(dtype):
        return pa.map_(_nullable(dtype.key_type), _nullable(dtype.item_type), dtype.keys_sorted)
    if pa.types.is_fixed_size_list(dtype):
        return pa.list_(_nullable(dtype.value_type), dtype.list_size)
    if pa.types.is_list(dtype):
        return pa.list_(_nullable(dtype.value_type))
    if pa.types.is_large_list(dtype):
        return pa.large_list(_nullable(dtype.value_type))
    return dtype


def _counted(table: pa.Table) -> Counter[str]:
    columns = [column.to_pylist() for column in table.columns]
    return Counter(repr(row) for row in zip(*columns, strict=True))
