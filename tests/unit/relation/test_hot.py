"""Relations in order of frequency: what lies where, compared with a plain account of it."""

import json
import math
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv, parquet

import semistream as ss
from semistream.cli.main import main
from semistream.errors import (
    BuildError,
    ColumnError,
    CorruptRelationError,
    KeyTypeError,
    OptionError,
)
from semistream.relation import build, hot, layout, writer
from semistream.relation.hot import Candidates, HotKeys, count_codes, find
from semistream.relation.reader import PageReader
from semistream.testing import nested_loop_join, same_rows
from tests.unit.relation.test_relation import contents, page_sizes, read_back
from tests.unit.samples import PLAIN, column

ROW_BYTES = 8 + 8 + 1  # a code, an int64, its validity


@contextmanager
def hot_share(share: float) -> Iterator[None]:
    """Let another share of R be hot; a tenth of a small relation is next to nothing."""
    with patch.object(hot, "HOT_SHARE", share):
        yield


def by_frequency(table: pa.Table, location: Path | str, sample: Any, **options: Any) -> ss.Relation:
    """Build a relation whose key is ``id`` unless told otherwise."""
    settings = {"key": "id", "order": "frequency", **options}
    return ss.build_relation(table, location, sample=sample, **settings)


def stream(keys: Any) -> pa.Table:
    return pa.table({"id": pa.array(keys, pa.int64())})


def numbered(keys: Any) -> pa.Table:
    return pa.table({"id": pa.array(keys, pa.int64()), "n": np.arange(len(keys))})


@dataclass(frozen=True)
class Page:
    """A page as it is stored: codes, and the values of column ``n`` if there is one."""

    codes: list[int]
    values: list[int]


def pages_of(reader: PageReader) -> list[Page]:
    """Read the pages one by one, to see that each can be read alone."""
    pages = []
    for page in range(reader.page_count):
        rows = int(reader.row_bounds[page + 1] - reader.row_bounds[page])
        codes, values = np.empty(rows, np.int64), np.empty(rows, np.int64)
        assert reader.read_codes(page, page + 1, codes) == rows
        reader.read_part("1.values", page, page + 1, values.view(np.uint8))
        pages.append(Page(codes.tolist(), values.tolist()))
    return pages


def expected_hot_keys(keys: list[int], sample: list[int], share: float, page: int) -> list[int]:
    """Return the hot keys of R by frequency, from the definition."""
    rows, seen = Counter(keys), Counter(sample)
    able = [k for k, n in seen.items() if n >= 2 and 0 < rows[k] * ROW_BYTES <= page]
    chosen: list[int] = []
    left = math.ceil(share * len(keys))
    for key in sorted(able, key=lambda k: (-seen[k], k)):
        left -= rows[key]
        if left < 0:
            break
        chosen.append(key)
    return chosen


def expected_hot_pages(hot_keys: list[int], keys: list[int], page: int) -> list[list[int]]:
    """Return the codes of the hot pages of a partition."""
    rows = Counter(keys)
    pages: list[list[int]] = []
    for key in hot_keys:
        if not pages or (len(pages[-1]) + rows[key]) * ROW_BYTES > page:
            pages.append([])
        pages[-1] += [key] * rows[key]
    return [sorted(codes) for codes in pages]


@dataclass(frozen=True)
class Case:
    keys: list[int]
    sample: list[int]
    partitions: int
    page_bytes: int
    share: float
    write_rows: int
    extent_bytes: int

    @contextmanager
    def built(self) -> Iterator[ss.Relation]:
        with (
            hot_share(self.share),
            patch.object(build, "_WRITE_ROWS", self.write_rows),
            patch.object(writer, "EXTENT_BYTES", self.extent_bytes),
            tempfile.TemporaryDirectory() as folder,
        ):
            options = {"partitions": self.partitions, "page_size": self.page_bytes}
            yield by_frequency(numbered(self.keys), folder, stream(self.sample), **options)


@st.composite
def cases(draw: Any) -> Case:
    key = st.integers(-3, 25)
    if draw(st.booleans()):
        key |= st.sampled_from([-(2**63), 2**63 - 1, -(2**40), 2**40])
    return Case(
        keys=draw(st.lists(key, min_size=1, max_size=80)),
        sample=draw(st.lists(key, max_size=80)),
        partitions=draw(st.sampled_from([1, 2, 5])),
        page_bytes=draw(st.sampled_from([1, ROW_BYTES, 60, 150, 4_096])),
        share=draw(st.sampled_from([0.1, 0.4, 1.0])),
        write_rows=draw(st.sampled_from([1, 7, 1_000])),
        extent_bytes=draw(st.sampled_from([1, 200, 1 << 20])),
    )


@given(cases())
def test_every_page_holds_what_it_should(case: Case) -> None:
    hot_keys = expected_hot_keys(case.keys, case.sample, case.share, case.page_bytes)
    with case.built() as relation:
        for p, info in enumerate(relation.manifest.partitions):
            ours = [k for k in case.keys if k % case.partitions == p]
            pages = pages_of(relation.reader(["n"], p))
            hot_pages, clustered = pages[: info.hot_pages], pages[info.hot_pages :]
            wanted = [k for k in hot_keys if k % case.partitions == p]
            wanted_pages = expected_hot_pages(wanted, ours, case.page_bytes)
            assert [page.codes for page in hot_pages] == wanted_pages
            rest = [code for page in clustered for code in page.codes]
            assert rest == sorted(k for k in ours if k not in wanted)


@given(cases())
def test_every_row_is_stored_once_with_its_values(case: Case) -> None:
    with case.built() as relation:
        pages = pages_of(relation.reader(["n"]))
        stored = [(c, v) for page in pages for c, v in zip(page.codes, page.values, strict=True)]
        assert sorted(stored) == sorted((k, n) for n, k in enumerate(case.keys))


@given(cases())
def test_the_index_finds_every_hot_row_and_the_bounds_all_others(case: Case) -> None:
    hot_keys = expected_hot_keys(case.keys, case.sample, case.share, case.page_bytes)
    with case.built() as relation:
        reader = relation.reader(["n"])
        pages = pages_of(reader)
        assert reader.hot_codes.tolist() == sorted(hot_keys)
        assert (reader.hot_codes.dtype, reader.hot_pages.dtype) == (np.int64, np.int32)
        home = dict(zip(reader.hot_codes.tolist(), reader.hot_pages.tolist(), strict=True))
        bounds = reader.partition_page_bounds()
        for number, page in enumerate(pages):
            assert reader.first_codes[number] == min(page.codes)
            for code in page.codes:
                first, last = bounds[code % case.partitions]
                assert home[code] == number if code in home else first <= number < last
        for first, last in bounds:
            assert (np.diff(reader.first_codes[first:last].astype(object)) >= 0).all()


@given(cases())
def test_reading_many_pages_is_reading_each(case: Case) -> None:
    """Hot pages lie elsewhere in the files than next to the clustered ones."""
    with case.built() as relation:
        reader = relation.reader(["n"])
        pages = pages_of(relation.reader(["n"]))
        for first in range(0, reader.page_count, 3):
            for last in range(first + 1, reader.page_count + 1, 2):
                rows = int(reader.row_bounds[last] - reader.row_bounds[first])
                codes, values = np.empty(rows, np.int64), np.empty(rows, np.int64)
                assert reader.read_codes(first, last, codes) == rows
                reader.read_part("1.values", first, last, values.view(np.uint8))
                assert codes.tolist() == [c for p in pages[first:last] for c in p.codes]
                assert values.tolist() == [v for p in pages[first:last] for v in p.values]


@given(cases())
def test_statistics_are_those_of_all_rows(case: Case) -> None:
    with case.built() as relation, tempfile.TemporaryDirectory() as folder:
        by_key = ss.build_relation(
            numbered(case.keys), folder, key="id", partitions=case.partitions
        )
        both = zip(relation.manifest.partitions, by_key.manifest.partitions, strict=True)
        for ours, theirs in both:
            for name in ("row_count", "size_bytes", "distinct_codes", "most_duplicates"):
                assert getattr(ours, name) == getattr(theirs, name)
            assert ours.squared_loads == theirs.squared_loads
            assert (ours.first_code, ours.last_code) == (theirs.first_code, theirs.last_code)
        reader, other = relation.reader([]), by_key.reader([])
        codes = np.array([*case.keys, *case.sample, -1, 26], np.int64)
        assert reader.code_range == other.code_range
        assert reader.may_hold(codes).tolist() == other.may_hold(codes).tolist()
        assert reader.may_hold(np.array(case.keys, np.int64)).all()


# Which keys are hot


def test_the_choice_of_hot_keys() -> None:
    codes = np.arange(6)
    seen = np.array([4, 9, 9, 2, 30, 50])
    rows = np.array([2, 3, 1, 1, 0, 99])  # 4 is not in R; 5 has more rows than a page
    candidates = Candidates(codes, seen, rows)

    def by_rank(row_count: int) -> list[int]:
        chosen = candidates.choose(row_count, most_rows=10)
        assert sorted(chosen.codes.tolist()) == chosen.codes.tolist()
        return chosen.codes[np.argsort(chosen.ranks)].tolist()

    assert by_rank(1_000) == [1, 2, 0, 3]  # equally frequent ones by code
    assert by_rank(60) == [1, 2, 0]
    assert by_rank(50) == [1, 2]  # 0 would exceed a tenth, and ends the list
    assert by_rank(20) == []
    assert by_rank(0) == []


def test_a_tenth_of_the_rows_may_be_hot() -> None:
    assert [hot.most_hot_rows(n) for n in (0, 1, 10, 11, 1_000)] == [0, 1, 1, 2, 100]


@given(st.lists(st.lists(st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1))))
def test_counting_codes(batches: list[list[int]]) -> None:
    counter = Counter(code for batch in batches for code in batch)
    with patch.object(hot, "_FOLD_ROWS", 4):
        codes, counts = count_codes(np.array(batch, np.int64) for batch in batches)
    assert dict(zip(codes.tolist(), counts.tolist(), strict=True)) == dict(counter)
    assert codes.tolist() == sorted(counter)


def test_finding_codes_among_none() -> None:
    assert find(np.zeros(0, np.int64), np.array([1, 2])).tolist() == [-1, -1]
    assert HotKeys.none().holds(np.array([1])).tolist() == [False]


@pytest.mark.parametrize(
    "keys",
    [[], [None, None, None], [1, 2, 3], [1_000, 1_000, -7, -7]],
    ids=["empty", "nulls", "each once", "missing from R"],
)
def test_a_sample_that_says_nothing(tmp_path: Path, keys: list[int | None]) -> None:
    table = numbered(range(30))
    relation = by_frequency(table, tmp_path / "a", stream(keys), page_size=100)
    by_key = ss.build_relation(table, tmp_path / "b", key="id", page_size=100)
    assert relation.order == "frequency"
    assert (relation.hot_page_count, len(relation.reader([]).hot_codes)) == (0, 0)
    assert relation.manifest.partitions == by_key.manifest.partitions
    assert contents(relation) == contents(by_key)


def test_keys_that_r_lacks_take_no_room(tmp_path: Path) -> None:
    sample = stream([1_000] * 50 + [-7] * 40 + [3, 3, 4, 4, 5])
    relation = by_frequency(numbered(range(20)), tmp_path, sample, partitions=3)
    assert relation.reader([]).hot_codes.tolist() == [3, 4]


def test_no_rows(tmp_path: Path) -> None:
    relation = by_frequency(numbered([]), tmp_path, stream([1, 1]))
    assert (relation.row_count, relation.page_count, relation.hot_page_count) == (0, 0, 0)
    assert not relation.reader(["n"]).may_hold(np.array([1])).any()


@pytest.mark.parametrize("partitions", [1, 4])
def test_everything_is_hot(tmp_path: Path, partitions: int) -> None:
    table = numbered(range(40))
    sample = stream([k for k in range(40) for _ in range(k + 2)])
    with hot_share(1.0):
        relation = by_frequency(table, tmp_path, sample, partitions=partitions, page_size=100)
    assert relation.hot_page_count == relation.page_count >= 8
    reader = relation.reader(["n"])
    assert (np.diff(reader.partition_page_bounds(), axis=1) == 0).all()
    assert reader.code_range == (0, 39)
    assert reader.may_hold(np.arange(-1, 41)).tolist() == [False, *[True] * 40, False]
    assert pages_of(relation.reader(["n"], 0))[0].codes[-1] == 40 - partitions
    assert same_rows(read_back(relation), table)


def test_one_row_is_hot(tmp_path: Path) -> None:
    relation = by_frequency(numbered([5]), tmp_path, stream([5, 5]), partitions=3)
    assert (relation.page_count, relation.hot_page_count) == (1, 1)
    reader = relation.reader(["n"], 5 % 3)
    assert reader.may_hold(np.array([2, 5, 8])).tolist() == [False, True, False]


# Wide rows, many rows, other types


def texts(widths: list[tuple[int, int]]) -> pa.Table:
    """Return a table of (key, width of its text)."""
    return pa.table({"id": [k for k, _ in widths], "text": ["x" * n for _, n in widths]})


@pytest.mark.parametrize("write_rows", [1, 2, 1_000])
def test_a_key_that_does_not_fit_a_page_is_not_hot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_rows: int
) -> None:
    """Whether its one row is wide or it has many, and wherever batches part them."""
    monkeypatch.setattr(build, "_WRITE_ROWS", write_rows)
    table = texts([(1, 300), (2, 5), (3, 60), (3, 60), (3, 60), (4, 30), (4, 30), (5, 0)])
    with hot_share(1.0):
        sample = stream([1, 1, 2, 2, 3, 3, 4, 4])
        relation = by_frequency(table, tmp_path, sample, partitions=1, page_size=120)
    assert relation.reader([]).hot_codes.tolist() == [2, 4]
    assert relation.hot_page_count == 1
    assert same_rows(read_back(relation), table)


def test_only_keys_that_do_not_fit(tmp_path: Path) -> None:
    table = texts([(1, 300), (2, 300), (3, 3)])
    with hot_share(1.0):
        relation = by_frequency(table, tmp_path, stream([1, 1, 2, 2]), partitions=1, page_size=99)
    assert relation.hot_page_count == 0
    assert not list(tmp_path.rglob("*.hot"))
    assert same_rows(read_back(relation), table)


@pytest.mark.parametrize("page_bytes", [64, 500, 4_096])
def test_pages_keep_to_their_size(tmp_path: Path, page_bytes: int) -> None:
    rng = np.random.default_rng(3)
    count = 1_000
    table = pa.table(
        {
            "id": rng.integers(0, 500, count),
            "n": pa.array(rng.integers(0, 9, count), mask=rng.random(count) < 0.02),
            "s": ["x" * n for n in rng.integers(0, 100, count)],
        }
    )
    with hot_share(0.5):
        sample = stream(rng.zipf(1.3, 3_000) % 500)
        relation = by_frequency(table, tmp_path, sample, partitions=2, page_size=page_bytes)
    sizes = page_sizes(relation)
    assert all(size <= page_bytes or rows == 1 for rows, size in sizes)
    assert sum(size for _, size in sizes) == relation.size_bytes
    assert same_rows(read_back(relation), table)


@pytest.mark.parametrize("with_nulls", [True, False], ids=["nulls", "no nulls"])
@pytest.mark.parametrize("dtype", PLAIN, ids=str)
def test_every_type_comes_back(tmp_path: Path, dtype: pa.DataType, with_nulls: bool) -> None:
    table = pa.table({"id": np.arange(200) % 150, "c": column(dtype, 200, with_nulls)})
    sample = stream([k for k in range(0, 150, 2) for _ in range(2 + k % 7)])
    with hot_share(0.4):
        relation = by_frequency(table, tmp_path, sample, partitions=3, page_size=900)
    assert relation.hot_page_count >= 3
    assert same_rows(read_back(relation), table)


@pytest.mark.parametrize("null_rows", [range(10), range(90, 100)], ids=["hot", "clustered"])
def test_nulls_in_some_extents_only(tmp_path: Path, null_rows: range) -> None:
    numbers = [None if i in null_rows else i for i in range(100)]
    table = pa.table({"id": np.arange(100), "n": numbers, "s": pa.array(numbers).cast(pa.string())})
    relation = by_frequency(table, tmp_path, stream([*range(10)] * 2), page_size=200)
    assert len(relation.reader([]).hot_codes) == 10
    assert same_rows(read_back(relation), table)


KEYS = {
    "string": ["a"],
    "composite": ["a", "b"],
    "integers": ["b", "c"],
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_hashed_keys_with_nulls_and_duplicates(tmp_path: Path, key: list[str]) -> None:
    rng = np.random.default_rng(4)
    count = 600
    ids = rng.integers(0, 250, count)
    table = pa.table(
        {
            "a": pa.array([f"key {i}" for i in ids], mask=rng.random(count) < 0.1),
            "b": pa.array(ids // 2, pa.int32(), mask=rng.random(count) < 0.1),
            "c": ids,
            "n": np.arange(count),
        }
    )
    picked = table.take(np.minimum(rng.zipf(1.5, 400), count) - 1).select(key[::-1])
    sample = picked.append_column("other", pa.nulls(400))
    relation = by_frequency(table, tmp_path, sample, key=key, partitions=3, page_size=300)
    kept = table.filter(pa.array(~np.any([table[k].is_null().to_numpy() for k in key], axis=0)))
    assert relation.manifest.null_keys_dropped == count - kept.num_rows > 0
    assert relation.hot_page_count > 1
    assert same_rows(read_back(relation), kept)

    coder = relation.coder
    seen = Counter(codes_of(coder, sample.select(key).drop_null(), key))
    frequencies: dict[int, list[int]] = defaultdict(list)
    reader = relation.reader([])
    for code, page in zip(reader.hot_codes.tolist(), reader.hot_pages.tolist(), strict=True):
        frequencies[page].append(seen[code])
    for info in relation.manifest.partitions:
        first = sum(i.page_count for i in relation.manifest.partitions[: info.index])
        hot_pages = range(first, first + info.hot_pages)
        assert all(min(frequencies[a]) >= max(frequencies[b]) for a, b in pairwise(hot_pages))


def codes_of(coder: Any, table: pa.Table, key: list[str]) -> list[int]:
    return coder.codes([table[k].combine_chunks() for k in key])[0].tolist()


def test_keys_of_another_width_in_the_sample(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array(range(30), pa.int16())})
    sample = pa.table({"id": pa.array([7, 7, None], pa.uint32())})
    assert by_frequency(table, tmp_path, sample).reader([]).hot_codes.tolist() == [7]


def parquet_sample(folder: Path, table: pa.Table) -> Path:
    parquet.write_table(table, folder / "s.parquet")
    return folder / "s.parquet"


def csv_sample(folder: Path, table: pa.Table) -> str:
    csv.write_csv(table, folder / "s.csv")
    return str(folder / "s.csv")


SAMPLES: dict[str, Any] = {
    "table": lambda _, table: table,
    "reader": lambda _, table: table.to_reader(max_chunksize=1),
    "batch": lambda _, table: table.to_batches()[0],
    "parquet": parquet_sample,
    "csv": csv_sample,
    "polars": lambda _, table: pl.from_arrow(table),
    "dictionary": lambda _, table: pa.table({"id": table["id"].dictionary_encode()}),
}


@pytest.mark.parametrize("kind", SAMPLES)
def test_samples(tmp_path: Path, kind: str) -> None:
    sample = SAMPLES[kind](tmp_path, stream([9, 4, 9, 4, 9, 8]))
    relation = by_frequency(numbered(range(30)), tmp_path / "r", sample, partitions=1)
    assert relation.reader([]).hot_codes.tolist() == [4, 9]


def test_spooling_gives_the_same_relation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    table = numbered(rng.integers(0, 3_000, 5_000))
    sample = stream(rng.zipf(1.2, 5_000) % 3_000)
    in_memory = by_frequency(table.to_reader(100), tmp_path / "a", sample, page_size=900)
    monkeypatch.setattr(build, "SPOOL_BYTES", 5_000)
    spooled = by_frequency(table.to_reader(100), tmp_path / "b", sample, page_size=900)
    assert spooled.hot_page_count > 8
    assert spooled.manifest.partitions == in_memory.manifest.partitions
    assert contents(spooled) == contents(in_memory)


def test_the_index_is_counted(tmp_path: Path) -> None:
    table = numbered(range(1_000))
    by_key = ss.build_relation(table, tmp_path / "a", key="id", partitions=1)
    relation = by_frequency(table, tmp_path / "b", stream([*range(60)] * 2), partitions=1)
    more_pages = relation.page_count - by_key.page_count
    a_page = (
        by_key.reader([]).table_bytes
        - ss.build_relation(table[:0], tmp_path / "c", key="id").reader([]).table_bytes
    )
    extra = relation.reader([]).table_bytes - by_key.reader([]).table_bytes
    assert extra == 60 * (8 + 4) + more_pages * a_page
    assert len(by_key.reader([]).hot_codes) == len(by_key.reader([]).hot_pages) == 0


@pytest.mark.parametrize(("algorithm", "memory"), [("meshjoin", "300KB"), ("resident", "2MB")])
def test_joins_that_read_all_of_r(tmp_path: Path, algorithm: str, memory: str) -> None:
    rng = np.random.default_rng(6)
    table = numbered(rng.integers(0, 400, 1_000))
    tuples = stream(rng.zipf(1.2, 500) % 450)
    relation = by_frequency(table, tmp_path, tuples, partitions=3, page_size=300)
    assert relation.hot_page_count > 3
    out = ss.join(tuples.to_batches(), relation, memory=memory, algorithm=algorithm)
    assert same_rows(pa.Table.from_batches(out), nested_loop_join(tuples, table, on="id"))


# Files and manifests


@pytest.fixture
def relation(tmp_path: Path) -> ss.Relation:
    sample = stream([k for k in range(40) for _ in range(2 + k % 5)])
    table = numbered(range(400))
    return by_frequency(table, tmp_path / "r.rel", sample, partitions=2, page_size=120)


def folder_of(relation: ss.Relation) -> Path:
    return Path(relation.location) / "snapshots" / relation.snapshot


def index_file(relation: ss.Relation, partition: int = 1) -> Path:
    return folder_of(relation) / f"{relation.manifest.partitions[partition].files}.hot"


def report(relation: ss.Relation) -> str:
    """Return what opening a reader says, after checking that it says what to do."""
    with pytest.raises(CorruptRelationError) as error:
        relation.reader(["n"])
    assert f"rebuild snapshot {relation.snapshot}" in str(error.value)
    return str(error.value)


def test_undamaged(relation: ss.Relation) -> None:
    assert all(info.hot_pages > 2 for info in relation.manifest.partitions)
    assert len(relation.reader(["n"]).hot_codes) == 40


def test_any_flipped_bit_of_the_index_is_noticed(relation: ss.Relation) -> None:
    file = index_file(relation)
    sound = file.read_bytes()
    for at in range(len(sound)):
        damaged = bytearray(sound)
        damaged[at] ^= 1 << at % 8
        file.write_bytes(damaged)
        assert f"the hot index {file} cannot be read" in report(relation)


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_truncated_index(relation: ss.Relation, kept: float) -> None:
    content = index_file(relation).read_bytes()
    index_file(relation).write_bytes(content[: int(kept * len(content))])
    assert str(index_file(relation)) in report(relation)


def test_a_missing_index(relation: ss.Relation) -> None:
    index_file(relation).unlink()
    assert str(index_file(relation)) in report(relation)
    relation.reader(["n"], 0)  # the other partition does not need it


def test_indexes_that_are_swapped(relation: ss.Relation) -> None:
    first, second = index_file(relation, 0), index_file(relation, 1)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    assert str(first) in report(relation)


def test_damage_on_a_hot_page_names_the_page(relation: ss.Relation) -> None:
    """Its codes lie behind those of the clustered pages."""
    info = relation.manifest.partitions[1]
    file = folder_of(relation) / f"{info.files}.codes"
    reader = relation.reader(["n"], 1)
    first_hot = 8 * int(reader.row_count - reader.row_bounds[info.hot_pages])
    content = bytearray(file.read_bytes())
    content[first_hot + 8 * int(reader.row_bounds[1])] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptRelationError, match="page 1 of partition 1 is damaged"):
        pages_of(reader)


def test_prune(relation: ss.Relation) -> None:
    again = by_frequency(numbered([1, 1]), relation.location, stream([1, 1]))
    by_key = ss.build_relation(numbered([1]), relation.location, key="id")
    assert by_key.prune(keep=2, grace=0).removed == [relation.snapshot]
    assert not folder_of(relation).exists()
    assert ss.Relation.open(relation.location, again.snapshot) == again
    assert (again.order, by_key.order) == ("frequency", "key")


def test_a_rebuild_may_change_the_order(relation: ss.Relation) -> None:
    ss.build_relation(numbered([1, 2]), relation.location, key="id")
    assert ss.Relation.open(relation.location).order == "key"
    assert ss.Relation.open(relation.location, relation.snapshot) == relation


def manifest_of(relation: ss.Relation) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((folder_of(relation) / "manifest.json").read_text())
    return body


def rewrite_manifest(relation: ss.Relation, body: dict[str, Any]) -> None:
    body = {name: value for name, value in body.items() if name != "checksum"}
    checksum = layout._checksum(body)
    text = json.dumps({**body, "checksum": checksum})
    (folder_of(relation) / "manifest.json").write_text(text)


def test_only_relations_by_frequency_have_the_new_format(relation: ss.Relation) -> None:
    assert manifest_of(relation)["format_version"] == layout.FORMAT_VERSIONS["frequency"] == 2
    by_key = ss.build_relation(numbered([1, 2]), relation.location, key="id")
    body = manifest_of(by_key)
    assert body["format_version"] == 1
    known_to_version_1 = {
        *("index", "files", "row_count", "page_count", "size_bytes", "distinct_codes"),
        *("most_duplicates", "first_code", "last_code", "squared_loads", "page_table_checksum"),
    }
    assert all(set(info) == known_to_version_1 for info in body["partitions"])
    new = {"hot_pages", "hot_index_checksum", "home", "delta"}
    assert set(asdict(by_key.manifest.partitions[0])) == known_to_version_1 | new


def test_a_manifest_of_version_1_opens(tmp_path: Path) -> None:
    relation = ss.build_relation(numbered(range(9)), tmp_path, key="id")
    body = manifest_of(relation)
    del body["order"]  # version 1 did not know of it
    rewrite_manifest(relation, body)
    opened = ss.Relation.open(tmp_path)
    assert (opened, opened.order) == (relation, "key")
    assert same_rows(read_back(opened), numbered(range(9)))


def test_an_unknown_order_is_refused(relation: ss.Relation) -> None:
    rewrite_manifest(relation, manifest_of(relation) | {"order": "colour"})
    with pytest.raises(CorruptRelationError, match="its order is 'colour'"):
        ss.Relation.open(relation.location)


# What users get wrong


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "frequency"}, r"needs a sample of the stream.*sample=… \(--sample\)"),
        ({"sample": stream([1])}, "only with order='frequency'.*leave the sample out"),
        ({"order": "key", "sample": stream([1])}, "only with order='frequency'"),
        ({"order": "frequncy", "sample": stream([1])}, "key, frequency; got 'frequncy'. Did you"),
        ({"order": None}, "got None"),
        ({"order": "frequency", "sample": 7}, "the sample of a relation must be.*got int"),
    ],
)
def test_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ss.build_relation(numbered([1]), tmp_path, key="id", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_sample_without_the_key(tmp_path: Path) -> None:
    with pytest.raises(ColumnError, match=r"key \(id\), but none of its columns k, n are named"):
        by_frequency(numbered([1]), tmp_path, pa.table({"k": [1], "n": [2]}))
    twice = pa.Table.from_arrays([pa.array([1])] * 2, names=["id", "id"])
    with pytest.raises(ColumnError, match="2 of its columns"):
        by_frequency(numbered([1]), tmp_path, twice)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("keys", [["1"], [1.0], [[1]]], ids=["string", "float", "list"])
def test_a_sample_with_keys_of_another_type(tmp_path: Path, keys: list[Any]) -> None:
    with pytest.raises(KeyTypeError, match="'id'"):
        by_frequency(numbered([1]), tmp_path, pa.table({"id": keys}))
    assert list(tmp_path.iterdir()) == []


def test_a_sample_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"none\.parquet' does not exist"):
        by_frequency(numbered([1]), tmp_path / "r", tmp_path / "none.parquet")
    assert list(tmp_path.iterdir()) == []


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, sample = tmp_path / "r.parquet", tmp_path / "s.csv"
    parquet.write_table(numbered(range(50)), source)
    sample.write_text("when,id\n1,3\n2,7\n3,3\n")
    command = ["build", str(source), str(tmp_path / "r.rel"), "--key", "id"]
    assert main([*command, "--order", "frequency", "--sample", str(sample)]) == 0
    assert "1 of them hot" in " ".join(capsys.readouterr().out.split())
    opened = ss.Relation.open(tmp_path / "r.rel")
    assert (opened.order, opened.reader([]).hot_codes.tolist()) == ("frequency", [3])

    assert main([*command, "--order", "frequency"]) == 2
    assert "--sample" in capsys.readouterr().err
    assert main([*command, "--sample", str(sample)]) == 2
    assert "--order frequency" in capsys.readouterr().err
    assert main([*command, "--order", "keys"]) == 2
    assert "Did you mean 'key'?" in capsys.readouterr().err
    sample.write_text("when,key\n1,3\n")
    assert main([*command, "--order", "frequency", "--sample", str(sample)]) == 2
    assert "rename its key columns" in capsys.readouterr().err
    assert ss.Relation.open(tmp_path / "r.rel") == opened


def test_help_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["build", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    assert "--order {key,frequency}" in out
    assert "frequency needs --sample" in out
