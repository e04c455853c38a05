"""The test kit itself: what it calls the same, and the oracles against each other."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from semistream.testing import nested_loop_join, same_rows
from tests.oracle import duckdb_join
from tests.workloads import Workload, workloads

INTEGERS = pa.table({"k": [1, 2, 2], "v": ["a", "b", None]})


def of_type(dtype: pa.DataType, values: list[object]) -> pa.Table:
    return pa.table({"x": pa.array(values, dtype)})


def test_the_order_of_rows_does_not_matter_but_their_number_does() -> None:
    assert same_rows(INTEGERS, INTEGERS.take([2, 0, 1]))
    assert not same_rows(INTEGERS, INTEGERS.take([0, 0, 1]))
    assert not same_rows(INTEGERS, INTEGERS[:2])


def test_names_and_their_order_matter() -> None:
    assert not same_rows(INTEGERS, INTEGERS.select(["v", "k"]))
    assert not same_rows(INTEGERS, INTEGERS.rename_columns(["k", "w"]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.int32(), pa.int64()),
        (pa.string(), pa.large_string()),
        (pa.timestamp("us"), pa.timestamp("ms")),
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin")),
        (pa.list_(pa.int32()), pa.list_(pa.int64())),
        (pa.struct([("y", pa.int32())]), pa.struct([("y", pa.int64())])),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64())),
    ],
    ids=str,
)
def test_types_matter_even_without_rows(one: pa.DataType, other: pa.DataType) -> None:
    assert same_rows(of_type(one, [None]), of_type(one, [None]))
    assert not same_rows(of_type(one, [None]), of_type(other, [None]))
    assert not same_rows(of_type(one, []), of_type(other, []))


def test_nullability_and_metadata_do_not_matter() -> None:
    inner = pa.list_(pa.field("item", pa.int64(), nullable=False))
    schema = pa.schema([pa.field("x", inner, nullable=False, metadata={"a": "b"})])
    strict = pa.Table.from_arrays([pa.array([[1]], inner)], schema=schema)
    assert same_rows(strict, of_type(pa.list_(pa.int64()), [[1]]))


def test_nan_equals_nan_and_no_number() -> None:
    nan = float("nan")
    assert same_rows(of_type(pa.float64(), [nan, 1.0]), of_type(pa.float64(), [1.0, nan]))
    assert same_rows(
        of_type(pa.list_(pa.float32()), [[nan]]), of_type(pa.list_(pa.float32()), [[nan]])
    )
    assert not same_rows(of_type(pa.float64(), [nan]), of_type(pa.float64(), [None]))
    assert not same_rows(of_type(pa.float64(), [0.0]), of_type(pa.float64(), [-0.0]))


@pytest.mark.parametrize("side", ["left", "right"])
def test_offsets_that_have_wrapped_are_an_error(side: str) -> None:
    offsets = pa.py_buffer(np.array([0, 9, 3, 11], np.int32))
    data = pa.py_buffer(b"hello world")
    wrapped = pa.table({"x": pa.Array.from_buffers(pa.string(), 3, [None, offsets, data])})
    sound = of_type(pa.string(), ["hello", "wor", "ld"])
    with pytest.raises(pa.ArrowInvalid, match=r"offset|Offset"):
        same_rows(*((wrapped, sound) if side == "left" else (sound, wrapped)))


@settings(max_examples=60)
@given(workload=workloads())
def test_the_oracles_agree(workload: Workload) -> None:
    stream, table = workload.tables()
    options = {"on": workload.on, "how": workload.how}
    assert same_rows(
        duckdb_join(stream, table, **options), nested_loop_join(stream, table, **options)
    )
