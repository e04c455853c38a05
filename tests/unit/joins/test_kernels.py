from collections import Counter, deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from semistream.joins import kernels, row_kernels
from semistream.joins.buckets import Buckets
from semistream.joins.hashtable import HashTable

LEAST, MOST = -(2**63), 2**63 - 1
FEW_PAIRS = [1, 2, 7, 1000]


def codes_of(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def found(table: HashTable, codes: NDArray[np.int64], is_sorted: bool) -> Counter[tuple[int, int]]:
    """Return all (index, slot) pairs of a probe."""
    pairs: Counter[tuple[int, int]] = Counter()
    for probes, slots in table.matches(codes, is_sorted):
        pairs.update(zip(probes.tolist(), slots.tolist(), strict=True))
    return pairs


@dataclass(frozen=True)
class Domain:
    """Codes to draw from, all within the range that the buckets are made for."""

    codes: list[int]

    def buckets(self, most: int, ordered: bool) -> Buckets:
        if ordered:
            return Buckets.ordered(min(self.codes), max(self.codes), most)
        return Buckets.hashed(most)


domains = st.one_of(
    st.builds(Domain, st.just(list(range(-5, 6)))),
    st.builds(Domain, st.just([LEAST, LEAST + 1, -1, 0, 1, MOST - 1, MOST])),
    st.builds(Domain, st.lists(st.integers(LEAST, MOST), min_size=1, max_size=12)),
)


@st.composite
def rounds(draw: st.DrawFn) -> tuple[Domain, list[tuple[int, list[int], list[list[int]]]]]:
    """Return a domain, and per round: how many leave, what enters, stretches that probe."""
    domain = draw(domains)
    some = st.lists(st.sampled_from(domain.codes), max_size=12)
    one = st.tuples(st.integers(0, 12), some, st.lists(some, max_size=3))
    return domain, draw(st.lists(one, max_size=15))


@settings(max_examples=200)
@given(
    work=rounds(),
    capacity=st.integers(1, 20),
    most_buckets=st.integers(2, 30),
    most_pairs=st.sampled_from(FEW_PAIRS),
    ordered=st.booleans(),
)
def test_matches_are_those_of_a_plain_loop(
    work: tuple[Domain, list[tuple[int, list[int], list[list[int]]]]],
    capacity: int,
    most_buckets: int,
    most_pairs: int,
    ordered: bool,
) -> None:
    domain, steps = work
    table = HashTable(
        domain.buckets(most_buckets, ordered),
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.int32),
        most_pairs,
    )
    inside: deque[tuple[int, int]] = deque()  # (slot, code), oldest first
    next_slot = 0
    for leaving, entering, stretches in steps:
        leaving = min(leaving, len(inside))
        table.expire(leaving)
        for _ in range(leaving):
            inside.popleft()
        entering = entering[: capacity - len(inside)]
        table.insert(codes_of(entering))
        for code in entering:
            inside.append((next_slot % capacity, code))
            next_slot += 1
        probing = [code for stretch in stretches for code in stretch]
        ascending = [code for stretch in stretches for code in sorted(stretch)]
        for codes, is_sorted in ((probing, False), (ascending, False), (ascending, True)):
            expected = Counter(
                (i, slot) for i, code in enumerate(codes) for slot, other in inside if code == other
            )
            assert found(table, codes_of(codes), is_sorted) == expected


@pytest.mark.parametrize("most_pairs", FEW_PAIRS)
@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "hashed"])
@pytest.mark.parametrize("is_sorted", [True, False], ids=["sorted", "unsorted"])
def test_more_codes_than_a_block(most_pairs: int, ordered: bool, is_sorted: bool) -> None:
    rng = np.random.default_rng(3)
    inside = rng.integers(0, 3_000, 2_500)
    probing = np.concatenate([np.sort(rng.integers(0, 3_000, 2_000)) for _ in range(2)])
    buckets = Buckets.ordered(0, 2_999, 700) if ordered else Buckets.hashed(700)
    table = HashTable(buckets, np.zeros(2_500, np.int64), np.zeros(2_500, np.int32), most_pairs)
    table.insert(inside)
    assert len(probing) > kernels.BLOCK
    by_code: dict[int, list[int]] = {}
    for slot, code in enumerate(inside.tolist()):
        by_code.setdefault(code, []).append(slot)
    expected = Counter((i, s) for i, c in enumerate(probing.tolist()) for s in by_code.get(c, []))
    assert found(table, probing, is_sorted) == expected


def test_never_more_pairs_than_asked_for() -> None:
    table = HashTable(Buckets.ordered(0, 9, 4), np.zeros(9, np.int64), np.zeros(9, np.int32), 5)
    table.insert(codes_of([3] * 9))
    for is_sorted in (True, False):
        sizes = [len(probes) for probes, _ in table.matches(codes_of([3] * 9), is_sorted)]
        assert max(sizes) <= 5
        assert sum(sizes) == 81


def test_an_empty_table_and_no_codes() -> None:
    table = HashTable(Buckets.ordered(0, 9, 4), np.zeros(9, np.int64), np.zeros(9, np.int32), 5)
    assert found(table, codes_of([1, 2]), is_sorted=True) == Counter()
    table.insert(codes_of([1]))
    assert found(table, codes_of([]), is_sorted=True) == Counter()
    table.expire(1)
    assert found(table, codes_of([1, 2]), is_sorted=False) == Counter()


def test_expired_slots_are_not_found_after_the_ring_has_gone_round() -> None:
    table = HashTable(Buckets.ordered(0, 9, 10), np.zeros(4, np.int64), np.zeros(4, np.int32), 100)
    for code in [1, 2, 3, 4, 1, 2, 3, 4, 5]:
        if table.live == 4:
            table.expire(1)
        table.insert(codes_of([code]))
    pairs = found(table, codes_of(list(range(10))), is_sorted=True)
    assert sorted(index for index, _ in pairs) == [2, 3, 4, 5]


@given(
    values=st.lists(st.integers(LEAST, MOST), min_size=1, max_size=50),
    code=st.integers(LEAST, MOST),
)
def test_find_code(values: list[int], code: int) -> None:
    codes = np.sort(codes_of(values))
    for wanted in (code, values[0], LEAST, MOST):
        place = kernels.find_code(codes, 0, len(codes) - 1, wanted)
        assert place == np.searchsorted(codes, np.int64(wanted), "left")


row_lists = st.lists(st.integers(0, 99), max_size=30).map(sorted)


@given(
    rows=row_lists,
    cuts=st.sets(st.integers(1, 99), max_size=15),
    skip=st.integers(0, 5),
    most_gap=st.integers(0, 3),
)
def test_plan_reads(rows: list[int], cuts: set[int], skip: int, most_gap: int) -> None:
    """Pages before the range hold `skip` rows each; only touched pages are read, and short gaps."""
    ends = [*sorted(cuts), 100]
    bounds = codes_of([0, skip, *(skip + end for end in ends)])
    firsts, lasts, places = (np.zeros(101, np.int64) for _ in range(3))
    last_page = len(bounds) - 1
    pages = (bounds, 1, last_page, most_gap)
    count = row_kernels.plan_reads(codes_of(rows), *pages, firsts, lasts, places)
    runs = [range(a, b) for a, b in zip(firsts[:count], lasts[:count], strict=True)]
    touched = set((np.searchsorted(codes_of(ends), codes_of(rows), "right") + 1).tolist())
    read = [page for run in runs for page in run]
    assert touched <= set(read)
    assert all({run[0], run[-1]} <= touched for run in runs)
    assert all(b[0] - a[-1] - 1 > most_gap for a, b in pairwise(runs))
    kept = [row for page in read for row in range(bounds[page] - skip, bounds[page + 1] - skip)]
    assert [kept[place] for place in places[: len(rows)]] == rows


@given(st.lists(st.lists(st.tuples(st.integers(0, 7), st.binary(max_size=6)), max_size=8)))
def test_records_survive_squeezing(steps: list[list[tuple[int, bytes]]]) -> None:
    """Slots are dropped, used again and squeezed; what is gathered is what was put there last."""
    arena, starts = np.zeros(200, np.uint8), np.full(8, kernels.NO_SLOT, np.int64)
    held: dict[int, bytes] = {}
    cursor = 0
    for step in steps:
        new = dict(step)
        old = codes_of([slot for slot in new if slot in held])
        freed = row_kernels.drop_records(arena, starts, old)
        assert freed == sum(8 + len(held[slot]) for slot in old.tolist())
        cursor = row_kernels.squeeze_records(arena, cursor, starts)
        lengths = np.array([len(v) for v in new.values()], np.int32)
        data = np.frombuffer(b"".join(new.values()), np.uint8).copy()
        slots = codes_of(list(new))
        cursor = row_kernels.append_records(slots, lengths, data, arena, cursor, starts)
        held |= new
        assert cursor == sum(8 + len(v) for v in held.values())
        found, out = row_kernels.gather_records(arena, starts, codes_of(list(held)))
        assert found.tolist() == [len(v) for v in held.values()]
        assert bytes(out) == b"".join(held.values())


@given(st.lists(st.binary(max_size=9), max_size=20), st.data())
def test_gather_bytes(values: list[bytes], data: st.DataObject) -> None:
    picks = data.draw(
        st.lists(st.integers(0, len(values) - 1), max_size=20) if values else st.just([])
    )
    lengths = np.array([len(v) for v in values], np.int32)
    starts = np.zeros(len(values), np.int64)
    row_kernels.starts_of(lengths, starts)
    image = np.frombuffer(b"".join(values), np.uint8).copy()
    rows = codes_of(picks)
    out = row_kernels.gather_bytes(image, starts[rows], lengths[rows])
    assert bytes(out) == b"".join(values[i] for i in picks)


def test_first_matches_counts_each_slot_once() -> None:
    matched = np.zeros(5, np.uint8)
    first = kernels.first_matches(matched, codes_of([3, 1, 3, 3]))
    assert first.tolist() == [True, True, False, False]
    assert kernels.first_matches(matched, codes_of([1, 4])).tolist() == [False, True]
    assert matched.tolist() == [0, 1, 0, 1, 1]
