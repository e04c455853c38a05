"""What is remembered of earlier streams: limited, and only in the history that was passed in."""

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.advice import tuner
from semistream.advice.auto import make_join
from semistream.advice.history import History
from semistream.spec import resolve


def test_the_kind_that_was_stored_longest_ago_is_dropped() -> None:
    history = History(most=2)
    for kind, rows in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        history.row_counts.put(kind, rows)
    assert [history.row_counts.get(kind) for kind in "abc"] == [3, None, 4]


def test_histories_share_nothing() -> None:
    one, other = History(), History()
    one.row_counts.put("a", 1)
    assert other.row_counts.get("a") is None


def test_what_a_choice_remembers_does_not_grow_with_the_relation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written to a file after each micro-batch, and spares the next one the model."""
    table = pa.table({"k": np.arange(200_000), "v": np.arange(200_000)})
    relation = ss.build_relation(table, tmp_path / "r.rel", key="k", page_size="1KiB", partitions=1)
    assert relation.page_count > 3_000
    rng, history = np.random.default_rng(1), History()
    spec = resolve(relation, pa.schema([("k", pa.int64())]), on="k")
    asked = []

    def join() -> None:
        stream = pa.table({"k": rng.integers(0, 200_000, 50_000)})
        batches = stream.to_batches(max_chunksize=10_000)
        operator = make_join("auto", relation, spec, 1_500_000, history=history)
        assert sum(batch.num_rows for batch in operator.join(iter(batches))) == 50_000

    best = tuner.Tuner.best
    monkeypatch.setattr(tuner.Tuner, "best", lambda *about: (asked.append(1), best(*about))[1])
    join()
    join()
    after_two = len(asked)
    notes = pickle.dumps(history)
    assert len(notes) < 10_000
    history = pickle.loads(notes)
    join()
    assert len(asked) == after_two > 0
