"""The stream buffer takes large batches apart, and loses no row by it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import semistream as ss
from semistream.joins.stopwatch import Stopwatch
from semistream.joins.stream import StreamBuffer, Tuples, rows_within
from semistream.spec import resolve


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    folder: Path = tmp_path_factory.mktemp("r")
    return ss.build_relation(pa.table({"k": np.arange(100), "v": np.arange(100)}), folder, key="k")


def rows_of(stream: StreamBuffer, most: int) -> Iterator[tuple[int, bool]]:
    """Yield the number of each row, and whether it may match."""
    while not stream.is_exhausted:
        if stream.pull():
            stream.let_wait(stream.take_arrived())
        while stream.has_waiting:
            some = stream.waiting_rows(most)
            assert some.num_rows == len(stream.take_waiting(some.num_rows))
            yield from ((n, True) for n in some.column("n").to_pylist())
        for tuples in stream.take_unmatchable():
            yield from ((n, False) for n in tuples.rows(1 << 20, 1 << 40).column("n").to_pylist())


@given(
    keys=st.lists(st.one_of(st.integers(0, 99), st.none(), st.integers(100, 300)), max_size=80),
    limit=st.sampled_from([1, 40, 200, 100_000]),
    batch_rows=st.sampled_from([1, 7, 100]),
    encoded=st.booleans(),
)
def test_every_row_comes_out_once(
    relation: ss.Relation, keys: list[int | None], limit: int, batch_rows: int, encoded: bool
) -> None:
    numbers = np.arange(len(keys))
    texts = pa.array(["x" * (n % 50) for n in range(len(keys))], pa.string())
    note = texts.dictionary_encode() if encoded else texts
    table = pa.table({"k": pa.array(keys, pa.int64()), "n": numbers, "note": note})
    spec = resolve(relation, table.schema)
    reader = relation.reader(["v"])
    batches = table.to_batches(max_chunksize=batch_rows)
    about = (spec, relation.coder, reader.may_hold, None, Stopwatch(), limit)
    found = sorted(rows_of(StreamBuffer(batches, *about), 9))
    assert found == [(n, k is not None and k < 100) for n, k in enumerate(keys)]
    reader.close()


def test_slices_are_bounded_by_bytes() -> None:
    texts = pa.array(["x" * 100] * 50)
    assert rows_within([texts], 15, 1_200) == 10  # 105 bytes with offset and validity, 15 besides
    assert rows_within([texts.dictionary_encode()], 15, 1_200) == 10
    assert rows_within([texts], 15, 1) == 1
    assert rows_within([pa.array(np.arange(50))], 12, 200) == 10


def test_chosen_rows_are_copied_few_at_a_time() -> None:
    batch = pa.record_batch({"n": np.arange(100), "note": ["x" * 91] * 100})
    tuples = Tuples(batch, np.arange(100)).only(np.arange(100) % 2 == 0)
    some = tuples.rows(40, 1_000)
    assert some.column("n").to_pylist() == [0, 2, 4, 6, 8, 10, 12, 14, 16]
    assert tuples.rows(2, 1_000_000).column("n").to_pylist() == [0, 2]
    assert tuples.rows(40, 1).num_rows == 1
