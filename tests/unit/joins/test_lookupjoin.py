"""Look-ups in the order of R: what is read for how many tuples, and exact in odd cases."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.embedded import prepare
from semistream.joins import lookup_kernels as kernels
from semistream.joins.telemetry import Telemetry
from semistream.testing import nested_loop_join, same_rows


def counted(stream: pa.Table, relation: ss.Relation, **options: Any) -> Telemetry:
    """Run look-ups; return what they counted."""
    operator, batches = prepare(stream, relation, on="k", algorithm="lookup", **options)
    assert operator is not None
    rows = sum(batch.num_rows for batch in operator.join(batches))
    assert rows == operator.telemetry.output_rows
    return operator.telemetry


def test_what_is_read_depends_on_the_tuples_not_on_the_relation(tmp_path: Path) -> None:
    """Ten times as large an R costs the same bytes and pages."""
    read = []
    for rows in (20_000, 200_000):
        table = pa.table({"k": np.arange(rows), "v": np.arange(rows)})
        relation = ss.build_relation(table, tmp_path / str(rows), key="k", page_size=4_096)
        stream = pa.table({"k": np.linspace(0, rows - 1, 20).astype(np.int64)})
        for _ in range(2):  # the second time, checksums are known
            found = counted(stream, relation, how="inner", memory="1MB")
        read.append((found.pages_scanned, found.bytes_read))
    assert read[0][0] == read[1][0] == 20
    assert read[1][1] <= 1.1 * read[0][1]


def test_a_stream_longer_than_the_window_takes_several_iterations(tmp_path: Path) -> None:
    """Each window is resolved as a whole before the next tuples enter."""
    table = pa.table({"k": np.arange(5_000), "v": np.arange(5_000)})
    relation = ss.build_relation(table, tmp_path / "r.rel", key="k", page_size=4_096)
    found = counted(pa.table({"k": np.arange(5_000)}), relation, how="inner", memory=150_000)
    assert found.iterations > 1
    assert found.window_rows_peak < 5_000
    assert found.matched_pairs == 5_000


@pytest.mark.parametrize("how", ["left", "inner", "semi", "anti"])
@pytest.mark.parametrize("memory", [80_000, 200_000])
def test_runs_of_duplicates_longer_than_a_page_and_than_the_output(
    tmp_path: Path, how: str, memory: int
) -> None:
    """Every key has between one row and hundreds."""
    keys = np.repeat(np.arange(12), [1, 2, 3, 50, 51, 52, 200, 201, 1, 300, 301, 1])
    table = pa.table({"k": keys, "v": [f"row {i}" for i in range(len(keys))]})
    relation = ss.build_relation(table, tmp_path / "r.rel", key="k", page_size=1_024, partitions=2)
    stream = pa.table({"k": [*range(-1, 14), 6, 6, 9], "n": list(range(18))})
    options: dict[str, Any] = {"on": "k", "how": how}
    found = list(ss.join(stream, relation, algorithm="lookup", memory=memory, **options))
    assert same_rows(pa.Table.from_batches(found), nested_loop_join(stream, table, **options))


@settings(max_examples=40, deadline=None)
@given(
    keys=st.lists(st.integers(0, 12), min_size=1, max_size=400),
    requested=st.lists(st.one_of(st.none(), st.integers(-2, 15)), max_size=60),
    how=st.sampled_from(["left", "inner", "semi", "anti"]),
    memory=st.sampled_from([80_000, 200_000]),
)
def test_duplicates_that_run_over_pages(
    tmp_path_factory: pytest.TempPathFactory,
    keys: list[int],
    requested: list[int | None],
    how: str,
    memory: int,
) -> None:
    """Few keys, many rows of each, tiny pages: runs are longer than a page and than the output."""
    table = pa.table({"k": pa.array(keys, pa.int64()), "v": [f"row {i}" for i in range(len(keys))]})
    folder = tmp_path_factory.mktemp("lookup") / "r.rel"
    relation = ss.build_relation(table, folder, key="k", page_size=1_024, partitions=2)
    stream = pa.table({"k": pa.array(requested, pa.int64()), "n": list(range(len(requested)))})
    options: dict[str, Any] = {"on": "k", "how": how}
    found = list(ss.join(stream, relation, algorithm="lookup", memory=memory, **options))
    expected = nested_loop_join(stream, table, **options)
    joined = pa.Table.from_batches(found, expected.schema) if found else expected.slice(0, 0)
    assert same_rows(joined, expected)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=60),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20),
)
@settings(deadline=None)
def test_find_in_page_is_a_lower_bound(codes: list[int], others: list[int]) -> None:
    """For codes that are spread evenly, in clumps, twice, and at the ends of what a code can be."""
    ordered = np.sort(np.array([*codes, *codes[::3]], np.int64))
    for code in [*codes, *others]:
        expected = int(np.searchsorted(ordered, code))
        found = kernels.find_in_page(ordered, 0, len(ordered) - 1, np.int64(code))
        assert found == expected


@given(st.lists(st.integers(0, 9_999), max_size=300))
@settings(deadline=None)
def test_sort_by_page_is_stable(pages: list[int]) -> None:
    """Pages ascend, and tuples of a page stay in the order of arrival."""
    found = np.array(pages, np.int32)
    order, other = np.empty((2, len(pages)), np.int32)
    ordered = kernels.sort_by_page(found, 10_000, order, other)
    assert ordered.tolist() == np.argsort(found, kind="stable").tolist()
