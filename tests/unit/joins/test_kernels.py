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
from semistream.relation.codepages import CodeBits, Form

LEAST, MOST = -(2**63), 2**63 - 1
FEW_PAIRS = [1, 2, 7, 1000]


def codes_of(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def found(
    table: HashTable, codes: NDArray[np.int64], is_sorted: bool, are_listed: bool = False
) -> Counter[tuple[int, int]]:
    """Return all (index, slot) pairs of a probe."""
    pairs: Counter[tuple[int, int]] = Counter()
    for probes, slots in table.matches(codes, is_sorted, are_listed):
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


@settings(max_examples=200)
@given(
    first=st.sampled_from([LEAST, -20, 0, MOST - 150]),
    listed=st.sets(st.integers(0, 150)),
    steps=st.lists(st.tuples(st.integers(0, 40), st.lists(st.integers(0, 150))), max_size=10),
    capacity=st.integers(1, 40),
    most_buckets=st.integers(2, 60),
    ordered=st.booleans(),
)
def test_listed_codes_are_kept_apart(
    first: int,
    listed: set[int],
    steps: list[tuple[int, list[int]]],
    capacity: int,
    most_buckets: int,
    ordered: bool,
) -> None:
    """Each probe finds the tuples of its kind, all of them, and the others at most by chance."""
    domain = Domain([first + i for i in range(151)])
    form = Form((first, first + 150), 1, max(1, len(listed)))
    bits = CodeBits.of([codes_of([first + i for i in sorted(listed)])], form)
    slots = (np.zeros(capacity, np.int64), np.zeros(capacity, np.int32))
    table = HashTable(domain.buckets(most_buckets, ordered), *slots, 7, bits)
    kinds = {
        True: [c for c in domain.codes if c - first in listed],
        False: [c for c in domain.codes if c - first not in listed],
    }
    inside: deque[tuple[int, int]] = deque()  # (slot, code), oldest first
    next_slot = 0
    for leaving, entering in steps:
        leaving = min(leaving, len(inside))
        table.expire(leaving)
        for _ in range(leaving):
            inside.popleft()
        codes = [first + i for i in entering[: capacity - len(inside)]]
        table.insert(codes_of(codes))
        for code in codes:
            inside.append((next_slot % capacity, code))
            next_slot += 1
        for are_listed, of_kind in kinds.items():
            expected = Counter((of_kind.index(c), slot) for slot, c in inside if c in of_kind)
            for is_sorted in (True, False):
                assert found(table, codes_of(of_kind), is_sorted, are_listed) == expected


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "hashed"])
def test_a_probe_does_not_look_at_tuples_of_the_other_kind(ordered: bool) -> None:
    """That is what keeping them apart is for: probed with the wrong kind, no tuple is found."""
    codes = np.arange(1_000)
    is_listed = codes % 10 == 0
    bits = CodeBits.of([codes[is_listed]], Form((0, 999), 1, 100))
    buckets = Buckets.ordered(0, 999, 500) if ordered else Buckets.hashed(500)
    table = HashTable(buckets, np.zeros(1_000, np.int64), np.zeros(1_000, np.int32), 2_000, bits)
    table.insert(codes)
    for are_listed in (True, False):
        own, others = codes[is_listed == are_listed], codes[is_listed != are_listed]
        assert found(table, own, True, are_listed).total() == len(own)
        assert found(table, others, True, are_listed).total() == 0


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


def page_bounds(cuts: set[int], skip: int) -> NDArray[np.int64]:
    """Return the bounds of pages that are cut out of 100 rows, behind one of `skip` rows."""
    return codes_of([0, skip, *(skip + end for end in [*sorted(cuts), 100])])


cut_sets = st.sets(st.integers(1, 99), max_size=15)


@given(rows=row_lists, cuts=cut_sets, skip=st.integers(0, 5))
def test_pages_of_rows(rows: list[int], cuts: set[int], skip: int) -> None:
    bounds = page_bounds(cuts, skip)
    pages = np.zeros(len(bounds), np.int64)
    count = row_kernels.pages_of_rows(codes_of(rows[::-1]), bounds, 1, len(bounds) - 1, pages)
    touched = np.searchsorted(bounds, codes_of(rows) + skip, "right") - 1
    assert pages[:count].tolist() == np.unique(touched).tolist()


@given(
    cuts=cut_sets,
    skip=st.integers(0, 5),
    chosen=st.sets(st.integers(0, 15)),
    stretch=st.integers(1, 16),
    most_gap=st.integers(0, 40),
    unit=st.sampled_from([1, 8]),
)
def test_plan_in_place(
    cuts: set[int], skip: int, chosen: set[int], stretch: int, most_gap: int, unit: int
) -> None:
    """Requested pages come to their places; short gaps are read as well, others are left out."""
    bounds = page_bounds(cuts, skip)
    page_count = len(bounds) - 1
    pages = codes_of(sorted(p for p in chosen if 1 <= p < page_count))
    # Every `stretch` pages, something else lies in the file.
    offsets = bounds[:-1] * unit + np.arange(page_count) // stretch * 1000
    file = np.full(int(bounds[-1]) * unit + 1000 * page_count, 255, np.uint8)
    image = np.arange((bounds[-1] - skip) * unit) % 251
    for page in range(1, page_count):
        a, b = (bounds[page : page + 2] - skip) * unit
        file[offsets[page] : offsets[page] + b - a] = image[a:b]
    starts, requests = np.zeros(len(pages), np.int64), np.zeros((3, len(pages)), np.int64)
    about = (offsets, bounds, unit, most_gap)
    count = row_kernels.plan_in_place(pages, 1, *about, starts, requests)
    read = np.full(len(image), 254, np.uint8)
    for offset, size, place in requests[:, :count].T.tolist():
        read[place : place + size] = file[offset : offset + size]
    gaps = []
    for page, start in zip(pages.tolist(), starts.tolist(), strict=True):
        a, b = (bounds[page : page + 2] - skip) * unit
        assert start == a
        assert (read[a:b] == image[a:b]).all()
    for (_, size, place), (_, _, following) in pairwise(requests[:, :count].T.tolist()):
        gaps.append(following - place - size)
    if stretch == 16:  # no break in the file: only long gaps are left out
        assert all(gap > most_gap for gap in gaps)
    skipped = sum(int((bounds[b] - bounds[a + 1]) * unit) for a, b in pairwise(pages.tolist()))
    requested = int((bounds[pages + 1] - bounds[pages]).sum()) * unit
    assert requests[1, :count].sum() == requested + skipped - sum(gaps)
    check_ends(bounds, skip, requests[1:, :count] * (8 // unit))


def check_ends(bounds: NDArray[np.int64], skip: int, requests: NDArray[np.int64]) -> None:
    """Of each page it is known how far its codes go, and they do not seem to go on behind."""
    codes = np.full(100, 7)
    ends = np.full(len(bounds) - 2, -1)
    last_page = len(bounds) - 1
    found = row_kernels.end_runs(requests, bounds, 1, last_page, codes, ends)
    is_read = np.zeros(101, np.bool_)
    for size, place in requests.T.tolist():
        is_read[place // 8 : (place + size) // 8] = True
    first_rows = (bounds[1:-1] - skip).tolist()
    expected = [int(row + np.argmin(is_read[row:])) if is_read[row] else 0 for row in first_rows]
    assert ends.tolist() == expected
    assert found == np.count_nonzero(ends)
    assert all(codes[end] != codes[end - 1] for end in ends.tolist() if 0 < end < 100)


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
    # Two pages, of which both are requested.
    cut = len(values) // 2
    bounds = codes_of([0, cut, len(values)])
    ends = codes_of([0, int(lengths[:cut].sum()), int(lengths.sum())])
    row_kernels.starts_of(lengths, codes_of([0, 1]), 0, bounds, ends, 1, starts)
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
