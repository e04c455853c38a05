from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.columns import (
    Encoding,
    concatenate,
    encoding_of,
    join_bytes,
    join_fixed,
    nested_from_message,
    nested_to_message,
    numpy_dtype,
    plain_array,
    plain_batch,
    plain_type,
    split_bytes,
    split_fixed,
    split_validity,
    total_bytes,
    value_sizes,
    width_bytes,
)
from tests.arrays import arrays, unions
from tests.unit.samples import PLAIN, column

every_type = pytest.mark.parametrize("dtype", PLAIN, ids=str)


def there_and_back(array: pa.Array) -> pa.Array:
    """Take a column apart and put it together again."""
    encoding = encoding_of(array.type)
    if encoding is Encoding.FIXED:
        back = join_fixed(array.type, *split_fixed(array))
    elif encoding is Encoding.BYTES:
        back = join_bytes(array.type, *split_bytes(array))
    else:
        back = nested_from_message(array.type, nested_to_message(array))
    back.validate(full=True)
    return back


@every_type
@pytest.mark.parametrize("with_nulls", [True, False], ids=["nulls", "no nulls"])
def test_round_trip(dtype: pa.DataType, with_nulls: bool) -> None:
    array = column(dtype, 50, with_nulls)
    assert there_and_back(array).equals(array)


@every_type
@pytest.mark.parametrize(("first", "last"), [(1, 50), (7, 9), (8, 8), (13, 31), (50, 50)])
def test_round_trip_of_a_slice(dtype: pa.DataType, first: int, last: int) -> None:
    array = column(dtype, 50)[first:last]
    assert there_and_back(array).equals(array)


@every_type
def test_round_trip_of_a_slice_of_a_slice(dtype: pa.DataType) -> None:
    array = column(dtype, 50)[5:40][6:]
    assert there_and_back(array).equals(array)


@every_type
def test_round_trip_of_nothing(dtype: pa.DataType) -> None:
    assert there_and_back(pa.array([], dtype)).equals(pa.array([], dtype))


@every_type
def test_round_trip_of_nulls_only(dtype: pa.DataType) -> None:
    array = pa.nulls(9, dtype)
    assert there_and_back(array).equals(array)


@every_type
def test_plain_types_stay_as_they_are(dtype: pa.DataType) -> None:
    array = column(dtype, 5)
    assert plain_type(dtype) == dtype
    assert plain_array(array) is array


@pytest.mark.parametrize("dtype", [pa.uuid(), pa.json_()], ids=str)
def test_round_trip_of_an_extension_type(dtype: pa.DataType) -> None:
    values = [b"0123456789abcdef", None] if dtype == pa.uuid() else ["{}", None]
    storage = pa.array(values, dtype.storage_type)
    array = pa.ExtensionArray.from_storage(dtype, storage)[1:]
    assert there_and_back(array).equals(array)


LISTS = [[1, 2], None, [], [3]]
NOT_PLAIN: dict[str, tuple[pa.Array, pa.DataType]] = {
    "dictionary": (pa.array(["a", None, "a"]).dictionary_encode(), pa.string()),
    "dictionary of integers": (pa.array([5, None, 5]).dictionary_encode(), pa.int64()),
    "dictionary with a null among its values": (
        pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None])),
        pa.string(),
    ),
    "dictionary of lists": (
        pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array([[1]])),
        pa.list_(pa.int64()),
    ),
    "string view": (pa.array(["a", None, "x" * 99], pa.string_view()), pa.string()),
    "binary view": (pa.array([b"a", None, b"x" * 99], pa.binary_view()), pa.binary()),
    "run ends": (pc.run_end_encode(pa.array(["a", "a", None])), pa.string()),
    "list view": (pa.array(LISTS, pa.list_view(pa.int64())), pa.list_(pa.int64())),
    "large list view": (
        pa.array(LISTS, pa.large_list_view(pa.int64())),
        pa.large_list(pa.int64()),
    ),
    "list of views": (
        pa.array([["a"], None], pa.list_(pa.string_view())),
        pa.list_(pa.string()),
    ),
    "list of dictionaries": (
        pa.array([["a"], None], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        pa.list_(pa.string()),
    ),
    "map to views": (
        pa.array([[("a", "b")], None], pa.map_(pa.string(), pa.string_view())),
        pa.map_(pa.string(), pa.string()),
    ),
    "struct of views": (
        pa.array([{"x": "a"}, None], pa.struct([("x", pa.string_view())])),
        pa.struct([("x", pa.string())]),
    ),
}


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_other_types_become_plain(name: str) -> None:
    array, wanted = NOT_PLAIN[name]
    plain = plain_array(array)
    plain.validate(full=True)
    assert plain.type == plain_type(array.type) == wanted
    assert plain.to_pylist() == array.to_pylist()
    assert there_and_back(plain).to_pylist() == array.to_pylist()


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_slices_of_other_types_become_plain(name: str) -> None:
    array = NOT_PLAIN[name][0][1:]
    assert there_and_back(plain_array(array)).to_pylist() == array.to_pylist()


def test_plain_batch_keeps_names_and_nullability() -> None:
    schema = pa.schema(
        [
            pa.field("a", pa.dictionary(pa.int8(), pa.string()), nullable=False),
            pa.field("b", pa.int64()),
        ]
    )
    batch = pa.RecordBatch.from_pylist([{"a": "x", "b": 1}], schema)
    wanted = pa.schema([pa.field("a", pa.string(), nullable=False), pa.field("b", pa.int64())])
    assert plain_batch(batch).schema == wanted


@pytest.mark.parametrize(
    ("dtype", "encoding"),
    [
        (pa.int64(), Encoding.FIXED),
        (pa.bool_(), Encoding.FIXED),
        (pa.decimal128(38, 2), Encoding.FIXED),
        (pa.binary(3), Encoding.FIXED),
        (pa.string(), Encoding.BYTES),
        (pa.large_binary(), Encoding.BYTES),
        (pa.list_(pa.int64()), Encoding.NESTED),
        (pa.list_(pa.int64(), 2), Encoding.NESTED),
        (pa.null(), Encoding.NESTED),
    ],
    ids=str,
)
def test_encodings(dtype: pa.DataType, encoding: Encoding) -> None:
    assert encoding_of(dtype) is encoding


@pytest.mark.parametrize(
    ("dtype", "width"),
    [
        (pa.bool_(), 1),
        (pa.int8(), 1),
        (pa.date32(), 4),
        (pa.timestamp("us"), 8),
        (pa.decimal128(5, 2), 16),
        (pa.binary(3), 3),
        (pa.uuid(), 16),
    ],
    ids=str,
)
def test_widths(dtype: pa.DataType, width: int) -> None:
    assert width_bytes(dtype) == numpy_dtype(dtype).itemsize == width


def test_validity_is_left_out_without_nulls() -> None:
    array = pa.array([None, 1, 2])
    assert split_validity(array[1:]) is None
    assert split_fixed(array[1:])[1] is None
    validity = split_validity(array)
    assert validity is not None
    assert validity.tolist() == [0, 1, 1]


def test_values_are_views() -> None:
    array = pa.array([1, 2, 3, 4])[1:]
    values, _ = split_fixed(array)
    assert values.tolist() == [2, 3, 4]
    assert values.__array_interface__["data"][0] == array.buffers()[1].address + 8


def test_bytes_of_nulls_are_not_stored() -> None:
    """A null may have bytes behind it; they are not carried along."""
    bitmap = pa.py_buffer(bytes([0b101]))
    offsets = pa.py_buffer(np.array([0, 1, 4, 5], np.int32))
    array = pa.Array.from_buffers(pa.string(), 3, [bitmap, offsets, pa.py_buffer(b"axxxb")])
    lengths, data, _ = split_bytes(array)
    assert lengths.tolist() == [1, 0, 1]
    assert bytes(data) == b"ab"
    assert there_and_back(array).to_pylist() == ["a", None, "b"]


@given(
    values=st.lists(st.none() | st.text() | st.just("\x00"), max_size=30),
    cut=st.tuples(st.integers(0, 30), st.integers(0, 30)),
    dtype=st.sampled_from([pa.string(), pa.large_string()]),
)
def test_round_trip_of_any_text(
    values: list[str | None], cut: tuple[int, int], dtype: pa.DataType
) -> None:
    array = pa.array(values, dtype)[slice(*sorted(cut))]
    assert there_and_back(array).equals(array)


leaves = st.none() | st.integers(-(2**63), 2**63 - 1)
rows = st.none() | st.fixed_dictionaries(
    {"x": leaves, "y": st.none() | st.lists(st.none() | st.lists(leaves, max_size=3), max_size=3)}
)


@given(values=st.lists(rows, max_size=20), cut=st.tuples(st.integers(0, 20), st.integers(0, 20)))
def test_round_trip_of_any_nesting(values: list[Any], cut: tuple[int, int]) -> None:
    dtype = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.list_(pa.int64())))])
    array = pa.array(values, dtype)[slice(*sorted(cut))]
    assert there_and_back(array).equals(array)


@settings(max_examples=300)
@given(unions(7, 2))
def test_sizes_of_unions(array: pa.Array) -> None:
    """Arrow's own count ends the process for some of them, once they were read from a message."""
    plain = plain_batch(pa.record_batch({"c": array})).column(0)
    for first in range(7):
        one = nested_from_message(plain.type, nested_to_message(plain[first : first + 1]))
        # What lies under a null may be gone.
        assert 0 < value_sizes(one)[0] <= value_sizes(plain)[first]
        assert total_bytes([one]) == value_sizes(one).sum()


@given(arrays(5))
def test_sizes_of_slices_add_up(array: pa.Array) -> None:
    sizes = value_sizes(array)
    assert len(sizes) == 5
    assert (sizes > 0).all()
    assert sizes.tolist() == [*value_sizes(array[:2]), *value_sizes(array[2:])]


def test_a_slice_of_unions_is_stored_without_the_rest() -> None:
    texts = pa.array(["x" * n for n in range(200)])
    rows = pa.array(range(200), pa.int32())
    union = pa.UnionArray.from_dense(pa.array([0, 1] * 100, pa.int8()), rows, [texts, rows])
    assert value_sizes(union[4:6]).tolist() == [1 + 4 + 5 + 4, 1 + 4 + 5]
    assert nested_to_message(union[4:6]).size < 1000
    assert concatenate([union[4:6]]).get_total_buffer_size() < 1000
    assert concatenate([union[4:6]]).to_pylist() == ["xxxx", 5]
