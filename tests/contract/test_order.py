"""Ordered output, for every algorithm: the rows are right, and leave in the order of the stream."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.embedded import prepare
from semistream.errors import BudgetError, OptionError
from semistream.joins.ordering import WaitingRows
from semistream.testing import same_rows
from tests.contract.pressure import skewed, tight
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
