"""Rows taken from many batches, without ever making one array of all of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.relation import build, gather, writer
from semistream.relation.gather import Gatherer
from semistream.relation.writer import PartitionWriter

BATCHES = [
    pa.record_batch(
        {"n": np.arange(i, i + k), "t": pa.array([f"text {j}" * j for j in range(k)], pa.string())}
    )
    for i, k in ((0, 5), (5, 1), (6, 0), (6, 9))
]
WHOLE = pa.Table.from_batches(BATCHES).combine_chunks().to_batches()[0]


@pytest.mark.parametrize("merged_bytes", [0, 100, 1 << 20])
def test_rows_come_in_the_order_asked_for(
    merged_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "MERGED_BYTES", merged_bytes)
    gatherer = Gatherer(BATCHES)
    random = np.random.default_rng(1)
    for count in (0, 1, 15, 60):
        rows = random.integers(0, WHOLE.num_rows, count)
        assert gatherer.take(rows).to_pylist() == WHOLE.take(pa.array(rows)).to_pylist()


def test_a_piece_that_no_array_can_hold_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Arrow does past 2 GiB, `take` refuses here more than four rows."""

    class Limited(Gatherer):
        def take(self, rows: Any) -> pa.RecordBatch:
            if len(rows) > 4:
                raise pa.ArrowInvalid("offset overflow while concatenating arrays")
            return super().take(rows)

    order = np.arange(WHOLE.num_rows)[::-1].copy()
    pieces = list(Limited(BATCHES).pieces(order, [0, 3, 15]))
    assert [(first, last) for first, last, _ in pieces] == [
        (0, 3),
        (3, 6),
        (6, 9),
        (9, 12),
        (12, 15),
    ]
    rows = [row for _, _, batch in pieces for row in batch.to_pylist()]
    assert rows == WHOLE.to_pylist()[::-1]


def test_a_partition_is_written_in_pieces_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lets a column of more than 2 GiB be built: no step handles all of a partition."""
    limit = 5_000
    handled: list[int] = []
    write, concat = PartitionWriter.write, pa.concat_batches

    def watched_write(self: PartitionWriter, codes: Any, batch: pa.RecordBatch) -> None:
        handled.append(batch.nbytes)
        write(self, codes, batch)

    def watched_concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        handled.append(sum(batch.nbytes for batch in batches))
        return concat(batches)

    monkeypatch.setattr(PartitionWriter, "write", watched_write)
    monkeypatch.setattr(pa, "concat_batches", watched_concat)
    monkeypatch.setattr(build, "_WRITE_BYTES", limit)
    monkeypatch.setattr(gather, "MERGED_BYTES", limit)
    monkeypatch.setattr(writer, "EXTENT_BYTES", limit)
    keys = np.random.default_rng(2).permutation(2_000)
    table = pa.table({"id": keys, "text": [f"{key:04d}" * 25 for key in keys]})
    sample = pa.table({"id": np.repeat(np.arange(200), 2)})
    for name, options in (("key", {}), ("hot", {"order": "frequency", "sample": sample})):
        relation = ss.build_relation(
            table.to_reader(max_chunksize=50),
            tmp_path / name,
            key="id",
            partitions=1,
            page_size=1_000,
            **options,  # type: ignore[arg-type]
        )
        joined = pa.Table.from_batches(ss.join(table.select(["id"]), relation, how="inner"))
        assert joined.sort_by("id") == table.sort_by("id")
    assert len(handled) > 40
    assert max(handled) <= 2.2 * limit


def test_an_extent_is_written_before_it_grows_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch, of Spark for example, may alone be nearly as large as an array can be."""
    monkeypatch.setattr(writer, "MOST_BYTES", 30_000)
    keys = np.arange(300)
    table = pa.table({"id": keys, "text": ["x" * 200 for _ in keys]})
    concatenated: list[int] = []
    concat = pa.concat_batches

    def watched(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        concatenated.append(sum(batch.nbytes for batch in batches))
        return concat(batches)

    monkeypatch.setattr(writer.pa, "concat_batches", watched)
    monkeypatch.setattr(build, "_WRITE_ROWS", 100)  # 20 KB each
    relation = ss.build_relation(table, tmp_path, key="id", partitions=1)
    joined = pa.Table.from_batches(ss.join(table.select(["id"]), relation, how="inner"))
    assert joined.sort_by("id") == table
    assert max(concatenated[1:]) <= 30_000  # the first merges the source's own batch


def test_a_hot_key_that_goes_on_past_a_page_does_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are not known to be too many before they come, but are not held once they are."""
    monkeypatch.setattr(build, "_WRITE_ROWS", 1)
    waiting: list[int] = []
    monkeypatch.setattr(writer._HotRows, "sift", _watching(writer._HotRows.sift, waiting))
    keys = [1, *[2] * 30, *range(3, 400)]
    table = pa.table({"id": keys, "text": ["x" * 300] * len(keys)})
    sample = pa.table({"id": [2, 2, 3, 3]})
    relation = ss.build_relation(
        table,
        tmp_path,
        key="id",
        partitions=1,
        page_size=1_000,
        order="frequency",
        sample=sample,
    )
    joined = pa.Table.from_batches(ss.join(pa.table({"id": [1, 2, 3]}), relation, how="inner"))
    assert joined.num_rows == 32
    assert 0 < max(waiting) <= 4


def _watching(sift: Any, waiting: list[int]) -> Any:
    def watched(self: Any, codes: Any, batch: pa.RecordBatch) -> Any:
        result = sift(self, codes, batch)
        waiting.append(sum(rows.num_rows for _, rows in self._last))
        return result

    return watched
