"""The sampled source: every batch is handed on once, the sample has the latest keys."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.advice import sampling
from semistream.advice.sampling import SampledSource
from semistream.spec import resolve

SCHEMA = pa.schema([("k", pa.int64())])


class Clock:
    """A clock that only the stream moves."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def batch_of(keys: list[int | None]) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(keys, pa.int64())})


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    folder: Path = tmp_path_factory.mktemp("sampling")
    table = pa.table({"k": np.arange(100), "v": np.arange(100)})
    return ss.build_relation(table, folder / "r.rel", key="k")


def source_of(relation: ss.Relation, batches: list[pa.RecordBatch], clock: Clock) -> SampledSource:
    def arrive() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            clock.now_s += 2.0
            yield batch

    return SampledSource(arrive(), resolve(relation, SCHEMA), relation.coder, clock)


def test_a_batch_that_is_put_back_comes_next(relation: ss.Relation) -> None:
    clock = Clock()
    source = source_of(relation, [batch_of([]), batch_of([1, 2]), batch_of([3])], clock)
    assert source.has_rows(), "the empty batch is skipped"
    first = source.take()
    assert first is not None
    source.put_back(first)
    assert source.take() is first
    source.note(first)
    last = source.take()
    assert last is not None
    assert last.column("k").to_pylist() == [3]
    assert source.take() is None
    assert not source.has_rows()
    assert source.row_count == 2, "only what was noted counts"
    assert source.waited_s == 6.0
    assert source.empty_batches == 1


def test_the_sample_has_the_latest_keys(
    relation: ss.Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "SAMPLE_ROWS", 3)
    source = source_of(relation, [], Clock())
    for keys in ([1, 2], [3, None], [4, 5]):
        source.note(batch_of([*keys]))
    codes, _ = relation.coder.codes([pa.array([3, 4, 5])])
    assert source.sample().tolist() == codes.tolist(), "no null, and not the first batch"
    source.put_back(batch_of([6]))
    assert len(source.sample()) == 4, "what comes next is known, too"
    source.forget_sample()
    assert len(source.sample()) == 1
