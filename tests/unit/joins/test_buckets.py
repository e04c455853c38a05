from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import semistream as ss
from semistream.joins.buckets import Buckets

LEAST, MOST = -(2**63), 2**63 - 1
longs = st.integers(LEAST, MOST)


def bucket(buckets: Buckets, code: int) -> int:
    """Compute in Python's integers what the kernels compute in 64-bit words."""
    factor, base, shift = (int(n) for n in buckets.function)
    return ((code % 2**64 * factor - base) % 2**64) >> shift


def choose(folder: Path, column: pa.Array, most: int, partitions: int = 1) -> Buckets:
    table = pa.table({"k": column})
    relation = ss.build_relation(table, folder, key="k", partitions=partitions)
    return Buckets.choose(relation.reader([]), most)


@given(
    bounds=st.tuples(longs, longs),
    most=st.integers(1, 2**31 - 1),
    places=st.lists(st.floats(0, 1), max_size=20),
)
@example(bounds=(LEAST, MOST), most=1, places=[0.5])
@example(bounds=(LEAST, MOST), most=2, places=[0.5])
@example(bounds=(LEAST, MOST), most=2**31 - 1, places=[0.5])
@example(bounds=(MOST, MOST), most=1, places=[0.0])
@example(bounds=(LEAST, LEAST + 1), most=2, places=[])
def test_ordered_buckets_cover_the_range(
    bounds: tuple[int, int], most: int, places: list[float]
) -> None:
    first, last = sorted(bounds)
    buckets = Buckets.ordered(first, last, most)
    assert 1 <= buckets.count <= max(2, most)
    codes = sorted({first, last, *(first + int((last - first) * p) for p in places)})
    found = [bucket(buckets, min(code, last)) for code in codes]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0, buckets.count - 1)


@given(bounds=st.tuples(longs, longs), most=st.integers(1, 2**31 - 1))
def test_ordered_buckets_are_more_than_half_as_many(bounds: tuple[int, int], most: int) -> None:
    first, last = sorted(bounds)
    count = Buckets.ordered(first, last, most).count
    assert count > most // 2 or count == last - first + 1


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_word_is_never_shifted_by_its_whole_width(most: int) -> None:
    """The machine would not shift at all then, and the bucket would lie outside the table."""
    assert int(Buckets.ordered(LEAST, MOST, most).shift) < 64


@given(code=longs, most=st.integers(1, 2**31 - 1))
@example(code=LEAST, most=1)
@example(code=MOST, most=2)
def test_hashed_buckets_cover_every_code(code: int, most: int) -> None:
    buckets = Buckets.hashed(most)
    assert buckets.count <= max(2, most) < 4 * buckets.count
    assert 0 <= bucket(buckets, code) < buckets.count
    assert not buckets.is_ordered


@pytest.mark.parametrize("partitions", [1, 8])
@pytest.mark.parametrize("most", [2, 100, 1_000, 10_000])
def test_dense_integers_are_ordered(tmp_path: Path, most: int, partitions: int) -> None:
    dense = pa.array(np.arange(-2_000, 3_000))
    assert choose(tmp_path, dense, most, partitions).is_ordered


@pytest.mark.parametrize("partitions", [1, 8])
def test_dense_integers_with_duplicates_are_ordered(tmp_path: Path, partitions: int) -> None:
    assert choose(tmp_path, pa.array(np.arange(5_000) // 50), 100, partitions).is_ordered


@pytest.mark.parametrize("partitions", [1, 8])
@pytest.mark.parametrize("most", [2, 100, 1_000, 10_000])
def test_hashes_are_ordered(tmp_path: Path, most: int, partitions: int) -> None:
    texts = pa.array([f"key {i}" for i in range(5_000)])
    assert choose(tmp_path, texts, most, partitions).is_ordered


@pytest.mark.parametrize("partitions", [1, 8])
def test_clumped_integers_are_hashed(tmp_path: Path, partitions: int) -> None:
    clumps = np.concatenate([np.arange(2_500), 2**60 + np.arange(2_500)])
    assert not choose(tmp_path, pa.array(clumps), 1_000, partitions).is_ordered


def test_one_far_outlier_is_enough_to_hash(tmp_path: Path) -> None:
    codes = np.concatenate([np.arange(5_000), [2**62]])
    assert not choose(tmp_path, pa.array(codes), 1_000).is_ordered


def test_no_rows(tmp_path: Path) -> None:
    buckets = choose(tmp_path, pa.array([], pa.int64()), 1_000)
    assert buckets.count >= 1


@pytest.mark.parametrize("most", [1, 2])
def test_few_buckets(tmp_path: Path, most: int) -> None:
    buckets = choose(tmp_path, pa.array([LEAST, 0, MOST]), most)
    assert all(0 <= bucket(buckets, code) < buckets.count for code in (LEAST, -1, 0, MOST))
