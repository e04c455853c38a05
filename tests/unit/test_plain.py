"""Batches made plain: the same values, in pieces that are bounded by bytes."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream import plain
from semistream.columns import plain_array, plain_type, value_sizes
from semistream.plain import plain_batches
from tests.arrays import arrays

LONG = pa.array([f"{i:04d}" * 25 for i in range(40)])
FORMS = {
    "views": LONG.cast(pa.string_view()),
    "dictionary": LONG.dictionary_encode(),
    "runs": pc.run_end_encode(LONG),
    "list of views": pa.ListArray.from_arrays(
        pa.array(np.arange(41), pa.int32()), LONG.cast(pa.string_view())
    ),
    "list views": pa.array([[text.as_py()] for text in LONG], pa.list_view(pa.string())),
    "struct": pa.StructArray.from_arrays([LONG.cast(pa.string_view())], ["x"]),
}


@settings(max_examples=300)
@given(array=st.integers(0, 6).flatmap(arrays))
def test_every_array_becomes_plain(array: pa.Array) -> None:
    made = plain_array(array)
    made.validate(full=True)
    assert made.type == plain_type(array.type) == plain_type(made.type)
    assert repr(made.to_pylist()) == repr(array.to_pylist())
    sizes = value_sizes(array)
    assert len(sizes) == len(array)
    if not pa.types.is_null(array.type) and "union" not in str(array.type):
        # A copy of the rows takes no more, but for the last offset of each array in it.
        assert pa.concat_arrays([made]).nbytes <= sizes.sum() + 64


@pytest.mark.parametrize("form", FORMS)
def test_pieces_are_bounded_by_what_the_values_stand_for(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "PIECE_BYTES", 1_000)
    batch = pa.record_batch({"n": np.arange(40), "x": FORMS[form]})
    for rows in (batch, batch[3:30]):
        pieces = list(plain_batches(rows))
        assert all(7 <= piece.num_rows <= 9 for piece in pieces[:-1])  # of 100 bytes and a little
        assert pa.Table.from_batches(pieces).to_pylist() == rows.to_pylist()


def test_a_row_that_is_larger_than_a_piece_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "PIECE_BYTES", 10)
    pieces = list(plain_batches(pa.record_batch({"x": FORMS["views"]})))
    assert [piece.num_rows for piece in pieces] == [1] * 40


def test_plain_columns_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "PIECE_BYTES", 10)
    batch = pa.record_batch({"x": LONG})
    assert [piece.num_rows for piece in plain_batches(batch)] == [40]
    assert [piece.num_rows for piece in plain_batches(batch[:0])] == [0]


@pytest.mark.parametrize(
    ("array", "sizes"),
    [
        (pa.array(["a", None, "bcd"], pa.string_view()), [6, 5, 8]),
        (pa.array(["x", "a", None, "bcd"]).dictionary_encode()[1:], [6, 6, 8]),
        (pc.run_end_encode(pa.array(["aa", "aa", "b"]))[1:], [7, 6]),
        (pa.array([[("k", "vv")], [], None], pa.map_(pa.string(), pa.string_view())), [22, 9, 9]),
        (pa.array([["a"], ["bb", "c"]], pa.list_view(pa.string()))[1:], [22]),
        (pa.array([["a", "b"], ["c", "dd"]], pa.list_(pa.string(), 2))[1:], [14]),
        (pa.array([{"x": "abc", "y": 1}]), [18]),
        (pa.nulls(2), [1, 1]),
    ],
    ids=lambda p: str(getattr(p, "type", "")),
)
def test_what_values_stand_for(array: pa.Array, sizes: list[int]) -> None:
    assert value_sizes(array).tolist() == sizes
