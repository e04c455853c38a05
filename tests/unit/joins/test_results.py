"""Results that wait with tuples: which leaves when, and what there is no room for."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semistream.budget.resultsizes import ResultColumns
from semistream.budget.rowsizes import Widths
from semistream.joins.results import Results, ResultsFullError

SCHEMA = pa.schema([("n", pa.int64()), ("t", pa.string())])


def results(tuples: int, *, per_tuple: float = 1.0, adds_nulls: bool = False) -> Results:
    columns = ResultColumns(SCHEMA, Widths.equal([8, 4]), per_tuple, adds_nulls)
    return Results(columns, tuples)


def add(kept: Results, slots: list[int], first: int = 0) -> None:
    numbers = range(first, first + len(slots))
    columns = [pa.array(numbers, pa.int64()), pa.array([f"{n:04d}" for n in numbers], pa.string())]
    kept.add(np.array(slots, np.int64), columns)


@given(st.lists(st.integers(3, 12), max_size=40), st.integers(0, 40), st.booleans())
def test_slot_after_slot(slots: list[int], cut: int, with_misses: bool) -> None:
    """Results of a slot stay in the order in which they came; misses have nulls."""
    kept = results(50, adds_nulls=with_misses)
    for _ in range(2):  # the second time, the places have been used before
        kept.clear()
        add(kept, slots[:cut])
        add(kept, slots[cut:], first=min(cut, len(slots)))
        of_slots, places = kept.in_turn(3, 13, with_misses=with_misses)
        expected = sorted((slot, n) for n, slot in enumerate(slots))
        if with_misses:
            missing = set(range(3, 13)) - set(slots)
            expected = sorted([*expected, *((slot, -1) for slot in missing)])
        numbers, texts = kept.gather(places)
        assert of_slots.tolist() == [slot for slot, _ in expected]
        assert numbers.to_pylist() == [None if n < 0 else n for _, n in expected]
        assert texts.to_pylist() == [None if n < 0 else f"{n:04d}" for _, n in expected]


def test_no_room_for_more_rows_or_for_wider_ones() -> None:
    kept = results(4, per_tuple=1.5)
    add(kept, [0, 1, 2, 3])
    add(kept, [0, 1])
    with pytest.raises(ResultsFullError):
        add(kept, [2])
    kept.clear()
    with pytest.raises(ResultsFullError):
        kept.add(np.array([0]), [pa.array([1]), pa.array(["x" * 100_000])])
    add(kept, [3])
    assert kept.in_turn(0, 4, with_misses=False)[0].tolist() == [3]
