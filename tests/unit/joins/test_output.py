"""The output buffer: pieces that fit, whatever the widths."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semistream import columns
from semistream.columns import join_bytes
from semistream.errors import BudgetError
from semistream.joins import output
from semistream.joins.output import OutputBuffer


@given(
    st.lists(st.integers(0, 60), max_size=50),
    st.lists(st.integers(0, 60), max_size=50),
    st.integers(1, 12),
    st.integers(150, 400),
)
def test_pieces_cover_all_rows_and_fit(
    ours: list[int], theirs: list[int], rows: int, size_bytes: int
) -> None:
    count = min(len(ours), len(theirs))
    sizes = (np.array(ours[:count], np.int64), np.array(theirs[:count], np.int64))
    buffer = OutputBuffer(rows, size_bytes, row_bytes=10)
    pieces = list(buffer.pieces(count, *sizes))
    bounds = [(piece.start, piece.stop) for piece in pieces]
    assert [i for a, b in bounds for i in range(a, b)] == list(range(count))
    for a, b in bounds:
        assert 0 < b - a <= rows
        assert sum(ours[a:b]) + sum(theirs[a:b]) + 10 * (b - a) <= size_bytes
    if buffer.holds(count, *sizes):
        assert len(pieces) <= 1


def test_rows_of_one_width_are_cut_by_their_number_alone() -> None:
    buffer = OutputBuffer(rows=4, size_bytes=1, row_bytes=10)
    assert [(p.start, p.stop) for p in buffer.pieces(9, None, None)] == [(0, 4), (4, 8), (8, 9)]
    assert buffer.holds(4, None)
    assert not buffer.holds(5, None)


def test_a_row_that_is_wider_than_the_buffer_is_refused() -> None:
    buffer = OutputBuffer(rows=4, size_bytes=100, row_bytes=10)
    with pytest.raises(BudgetError, match=r"a joined row takes 191 B.* has 100 B") as error:
        list(OutputBuffer(4, 100, 10).pieces(2, np.array([5, 81 + 100])))
    assert error.value.least_bytes is None
    assert [p.stop for p in buffer.pieces(1, np.array([90]))] == [1]


def test_no_piece_passes_what_offsets_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the buffer is, a column's values must fit 32-bit offsets."""
    monkeypatch.setattr(output, "MOST_DATA_BYTES", 1_000)
    buffer = OutputBuffer(rows=100, size_bytes=1 << 40, row_bytes=0)
    sizes = np.full(10, 300)
    assert not buffer.holds(10, sizes)
    assert [p.stop - p.start for p in buffer.pieces(10, sizes)] == [3, 3, 3, 1]


def test_an_array_that_would_wrap_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MOST_DATA_BYTES", 5)
    lengths, data = np.array([3, 3], np.int32), np.frombuffer(b"abcdef", np.uint8)
    with pytest.raises(OverflowError, match="6 bytes do not fit"):
        join_bytes(pa.string(), lengths, data, None)
    assert join_bytes(pa.large_string(), lengths, data, None).to_pylist() == ["abc", "def"]
