"""Rows that the read plan fetches: every kind of column, through a buffer of a few pages."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.joins.plannedrows import PlannedColumns
from semistream.relation.readplan import PlannedReads

ROWS = 600


def columns() -> dict[str, pa.Array]:
    """Return columns of each encoding, with nulls in some stretches of rows only."""
    numbers = list(range(ROWS))
    kinds = pa.array([n % 2 for n in numbers], pa.int8())
    offsets = pa.array([n // 2 for n in numbers], pa.int32())
    children = [pa.array(numbers[::2]), pa.array([f"text {n}" for n in numbers[1::2]])]
    return {
        "fixed": pa.array(numbers),
        "nullable": pa.array([None if 200 < n < 300 else n for n in numbers]),
        "texts": pa.array([None if n % 97 == 0 else "x" * (n % 11) for n in numbers]),
        "flags": pa.array([n % 3 == 0 for n in numbers]),
        "lists": pa.array([[n] * (n % 4) for n in numbers]),
        "unions": pa.UnionArray.from_dense(kinds, offsets, children),
    }


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    table = pa.table({"k": np.arange(ROWS), **columns()})
    folder: Path = tmp_path_factory.mktemp("plannedrows") / "r.rel"
    return ss.build_relation(table, folder, key="k", partitions=2, page_size=1_024)


@pytest.mark.parametrize("every", [1, 7, 150])
@pytest.mark.parametrize("name", columns())
def test_rows_are_those_of_the_table(relation: ss.Relation, name: str, every: int) -> None:
    """Also where the rows of a column come in several views."""
    reader = relation.reader(["k", name])
    buffer_bytes = 2 * max(reader.page_sizes())
    rows = np.arange(0, ROWS, every)
    found = []
    views = 0
    for column in ("k", name):
        reads = PlannedReads(reader, int(buffer_bytes))
        (values,) = PlannedColumns(reader, [column], reads).locate(rows).gather()
        found.append(values.to_pylist())
        views = max(views, reads.bytes_read // int(buffer_bytes))
    keys, values = found
    expected = columns()[name].to_pylist()
    assert sorted(keys) == sorted(set(keys))
    assert len(keys) == len(rows)
    assert values == [expected[key] for key in keys]
    if every == 1:
        assert views > 1


def test_sizes_of_nested_values_are_those_of_each_row(relation: ss.Relation) -> None:
    """A longer list is wider; the order of rows is kept over several views."""
    reader = relation.reader(["lists"])
    reads = PlannedReads(reader, int(2 * max(reader.page_sizes())))
    planned = PlannedColumns(reader, ["lists"], reads).locate(np.arange(ROWS))
    sizes = planned.sizes
    assert sizes is not None
    (values,) = planned.gather()
    lengths = np.array([len(value) for value in values.to_pylist()])
    for length in range(3):
        assert sizes[lengths == length].max() < sizes[lengths == length + 1].min()
