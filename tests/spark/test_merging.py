"""Small pieces of output become batches of the usual size, within their memory."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import semistream as ss
from semistream.joins.telemetry import Telemetry
from semistream.spark.failures import ERROR_COLUMN
from semistream.spark.merging import Merging
from semistream.spark.metrics import TELEMETRY_COLUMN
from semistream.spark.parallelism import Cores
from semistream.spark.routing import Given, choose_route
from semistream.spark.tasks import Step, Task
from semistream.spec import resolve
from semistream.testing import nested_loop_join, same_rows

ROW_BYTES = 8


def pieces(*counts: int) -> list[pa.RecordBatch]:
    """Pieces of these numbers of rows; the values go on from piece to piece."""
    first, made = 0, []
    for count in counts:
        made.append(pa.record_batch({"n": pa.array(range(first, first + count), pa.int64())}))
        first += count
    return made


def rows(batches: list[pa.RecordBatch]) -> list[int]:
    return [batch.num_rows for batch in batches]


def test_small_pieces_become_batches_of_the_usual_rows() -> None:
    given = pieces(*[7] * 300)
    merged = list(Merging(1 << 20, most_rows=1_000).merge(given))
    assert rows(merged) == [994, 994, 112]
    assert same_rows(pa.Table.from_batches(merged), pa.Table.from_batches(given))


def test_large_pieces_are_passed_on_as_they_are() -> None:
    given = pieces(10, 600, 10, 500, 3)
    merged = list(Merging(1 << 20, most_rows=1_000).merge(given))
    assert rows(merged) == [600, 500, 23]
    assert merged[0] is given[1]
    assert merged[1] is given[3]


def test_what_waits_and_its_copy_fit_the_memory() -> None:
    merging = Merging(2 * 100 * ROW_BYTES)
    merged = list(merging.merge(pieces(*[30] * 10)))
    assert rows(merged) == [90, 90, 90, 30]
    assert merging.peak_bytes == 2 * 90 * ROW_BYTES


def test_a_slice_is_as_large_as_what_it_keeps_in_memory() -> None:
    whole = pieces(1_000)[0]
    given = [whole[i : i + 10] for i in range(0, 1_000, 10)]
    merging = Merging(2 * 100 * ROW_BYTES)
    assert len(list(merging.merge(given))) == 100
    assert merging.peak_bytes == 0


@pytest.mark.parametrize("size_bytes", [0, 1])
def test_without_memory_all_pieces_are_passed_on(size_bytes: int) -> None:
    merging = Merging(size_bytes)
    assert rows(list(merging.merge(pieces(1, 2, 3)))) == [1, 2, 3]
    assert merging.peak_bytes == 0


def test_nothing_comes_of_nothing() -> None:
    assert list(Merging(1_000).merge([])) == []


@pytest.mark.parametrize(("memory_bytes", "most"), [(60_000, 50), (8_000_000, 1)])
def test_a_task_returns_few_batches(tmp_path: Path, memory_bytes: int, most: int) -> None:
    """Index nested loops emit a piece for each row of the stream; all memory is counted."""
    table = pa.table({"k": range(3_000), "v": [f"v{i}" for i in range(3_000)]})
    relation = ss.build_relation(table, tmp_path / "r", key="k", partitions=2, page_size=512)
    stream = pa.record_batch({"k": [i * 7 % 4_000 for i in range(4_000)]})
    spec = resolve(relation, stream.schema)
    about = ("inlj", relation, spec, Given(memory_bytes, None), Cores(1))
    route = choose_route("local", *about)
    counts, peaks = [], []
    for merged_bytes in (0, route.merged_bytes):
        task = Task((Step(relation, spec, "inlj", replace(route, merged_bytes=merged_bytes)),))
        *batches, last = task(iter([stream]))
        joined = pa.Table.from_batches(batches).drop_columns([TELEMETRY_COLUMN, ERROR_COLUMN])
        assert same_rows(joined, nested_loop_join(pa.table(stream), table, on="k"))
        counters = last[TELEMETRY_COLUMN][0].as_py()
        counts.append(len(batches))
        peaks.append(counters[Telemetry.names().index("memory_bytes_peak")])
    assert counts[0] > 3_000
    assert counts[1] <= most
    assert max(peaks) <= memory_bytes
