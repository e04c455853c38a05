"""Ordered output, for every algorithm: the rows are right, and leave in the order of the stream."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.embedded import prepare
from semistream.errors import BudgetError, OptionError
from semistream.joins.orderedlookup import OrderedLookUpJoin
from semistream.joins.ordering import WaitingRows
from semistream.testing import nested_loop_join, same_rows
from tests.contract.pressure import skewed, tight
from tests.oracle import duckdb_join
from tests.scratch import new_folder
from tests.workloads import Workload

ROOM = 3 << 20  # some keys have many rows


def cases(algorithm: str) -> list[tuple[Workload, float]]:
    works = [tight(seed) for seed in (0, 1, 4, 7)]
    rows = {"cinlj": 600, "inlj": 600}.get(algorithm, 3_000)
    works.append(replace(skewed(1), stream_rows=rows))
    hows = ("left", "inner", "anti", "semi", "left")
    return [
        (replace(w, how=how, run_rows=0, condition=c), f)
        for w, how, f, c in zip(
            works,
            hows,
            (1.0, 1.1, 1.5, 3.0, 4.0),
            (None, None, "s.quantity > r.number", None, None),
            strict=True,
        )
    ]


def test_the_order_of_the_stream(algorithm: str) -> None:
    if algorithm == "offline":
        pytest.skip("it reads the whole stream before it joins")
    for workload, factor in cases(algorithm):
        stream, table = workload.tables()
        relation = workload.build(table)
        options = {"on": workload.on, "how": workload.how, "algorithm": algorithm}
        options |= {"condition": workload.condition, "ordered": "stream"}
        with pytest.raises(BudgetError) as raised:
            list(ss.join(stream, relation, memory=1, **options))
        least = raised.value.least_bytes
        assert least is not None
        batches = workload.batches(stream)
        memory = int(least * factor) + ROOM
        operator, batches = prepare(batches, relation, memory=memory, **options)
        assert operator is not None
        expected = workload.joined()
        out = pa.Table.from_batches(operator.join(batches), expected.schema)
        assert same_rows(out, expected)
        order = out["quantity"].to_numpy()  # rises from row to row of the stream
        assert (np.diff(order) >= 0).all()
        assert operator.ledger.peak_bytes <= memory
        assert operator.telemetry.memory_bytes_peak <= memory


def test_rows_wait_for_the_oldest_and_the_stream_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream is told to wait while there is no room, and goes on afterwards."""
    rng = np.random.default_rng(3)
    table = pa.table({"k": np.arange(3_000), "v": np.arange(3_000)})
    relation = ss.build_relation(table, new_folder(), key="k", partitions=2, page_size=600)
    stream = pa.table({"k": np.minimum(rng.zipf(1.2, 60_000), 3_500), "n": np.arange(60_000)})
    short = []
    is_short = WaitingRows.is_short_of_room.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(
        WaitingRows,
        "is_short_of_room",
        property(lambda rows: short.append(is_short(rows)) or short[-1]),
    )
    options = {"algorithm": "chybridjoin", "memory": 800_000, "ordered": "key"}
    out = pa.Table.from_batches(
        ss.join(stream.to_batches(max_chunksize=5_000), relation, **options)
    )
    assert out["n"].to_pylist() == list(range(60_000))
    assert out["v"].to_pylist() == [k if k < 3_000 else None for k in stream["k"].to_pylist()]
    assert any(short)


@pytest.mark.parametrize("how", ["left", "inner", "semi", "anti"])
def test_rows_that_cannot_match_have_a_turn(how: str) -> None:
    """Null keys and keys that R cannot have, among others; a null is not the key 0."""
    keys = [None, 3, 0, -7, None, 5_000, 1, 3, None]
    table = pa.table({"k": pa.array([0, 1, 2, 3, 900]), "v": pa.array([10, 11, 12, 13, 14])})
    relation = ss.build_relation(table, new_folder(), key="k", partitions=1)
    stream = pa.table({"k": pa.array(keys, pa.int64()), "n": np.arange(len(keys))})
    for batch_rows in (1, 4, 100):
        batches = stream.to_batches(max_chunksize=batch_rows)
        about = {"memory": "1MB", "how": how, "ordered": "stream", "algorithm": "lookup"}
        operator, batches = prepare(batches, relation, **about)
        assert operator is not None
        out = pa.Table.from_batches(operator.join(batches))
        assert same_rows(out, nested_loop_join(stream, table, on={"k": "k"}, how=how))
        assert (np.diff(out["n"].to_numpy()) > 0).all()
        assert operator.telemetry.missed_rows == 5
        assert operator.telemetry.null_key_rows == 3


@pytest.mark.parametrize("how", ["left", "inner"])
def test_results_that_do_not_fit(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some keys have far more rows than the average: fewer tuples are resolved at a time.

    One has more than fit at all: its rows leave as they are found.
    """
    alone = []
    resolve_alone = OrderedLookUpJoin._resolve_alone
    monkeypatch.setattr(
        OrderedLookUpJoin,
        "_resolve_alone",
        lambda join, slot: alone.append(slot) or resolve_alone(join, slot),
    )
    counts = np.array([1] * 5_000 + [300] * 10 + [30_000])
    keys = np.repeat(np.arange(len(counts)), counts)
    table = pa.table({"k": keys, "v": np.arange(len(keys)), "t": [f"{k}" for k in keys]})
    relation = ss.build_relation(table, new_folder(), key="k", partitions=1)
    rng = np.random.default_rng(5)
    asked = rng.integers(0, 5_000, 400)
    asked[::40] = 6_000
    asked[[50, 51, 52]] = 5_000, 5_010, 5_001
    asked[200:] = 5_000 + np.arange(200) % 10
    stream = pa.table({"k": asked, "n": np.arange(400)})
    about = {"memory": 600_000, "how": how, "ordered": "stream", "algorithm": "lookup"}
    operator, batches = prepare(stream, relation, **about)
    assert operator is not None
    out = pa.Table.from_batches(operator.join(batches))
    expected = duckdb_join(stream, table, on={"k": "k"}, how=how)
    assert same_rows(out, expected)
    assert (np.diff(out["n"].to_numpy()) >= 0).all()
    found = operator.telemetry
    matches = int(np.isin(asked, keys).sum())
    assert found.missed_rows == 400 - matches
    assert found.matched_pairs == int(counts[asked[asked < len(counts)]].sum())
    assert len(alone) == 1


def test_too_many_rows_wait() -> None:
    """A stream row whose own matches exceed the room is refused, not put out of order."""
    table = pa.table({"k": [1] * 60_000, "v": np.arange(60_000)})
    relation = ss.build_relation(table, new_folder(), key="k", partitions=1)
    stream = pa.table({"k": [1] * 40, "n": np.arange(40)})
    with pytest.raises(BudgetError, match="ordered output has"):
        list(ss.join(stream, relation, memory="1MB", algorithm="hybridjoin", ordered="stream"))


def test_names_of_orders() -> None:
    relation = ss.build_relation(pa.table({"k": [1]}), new_folder(), key="k")
    with pytest.raises(OptionError, match="Did you mean 'stream'"):
        ss.join(pa.table({"k": [1]}), relation, ordered="straem")
    with pytest.raises(OptionError, match="offline reads the whole stream"):
        ss.join(pa.table({"k": [1]}), relation, ordered="key", algorithm="offline")
