"""`latency`: held by the choice and by the join, with little memory, or a warning says why not."""

import logging
from collections.abc import Iterator
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.advice.auto import SelfTuningJoin
from semistream.advice.choice import Advisor
from semistream.advice.history import History
from semistream.advice.situation import reader_for, stream_widths
from semistream.advice.tuner import Chosen, Tuner
from semistream.cost.demand import Demand
from semistream.cost.factors import CostFactors
from semistream.errors import OptionError
from semistream.relation.device import EmulatedDevice, Reading
from semistream.spec import resolve
from semistream.workload.zipf import scatter, zipf_ranks
from tests.oracle import duckdb_join

ROWS = 60_000
BUDGET = 1_000_000
RATE = 2_000.0
DISK = CostFactors.of_device(*EmulatedDevice.named("hdd-2007").costs)
TARGETS_S = (10.0, 1.0, 0.3, 0.1)  # that can be held


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(1)
    return pa.table({"k": rng.permutation(ROWS), "a": rng.integers(0, 2**40, ROWS)})


@pytest.fixture(scope="module")
def relation(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    folder = tmp_path_factory.mktemp("latency")
    return ss.build_relation(table, folder / "r.rel", key="k", partitions=1, page_size="8KiB")


def emulated(relation: ss.Relation) -> tuple[ss.Relation, EmulatedDevice]:
    device = EmulatedDevice.named("hdd-2007")
    return relation.read_by(Reading(device)), device


def stream(exponent: float, rows: int, seed: int = 1) -> pa.Table:
    ranks = zipf_ranks(np.random.default_rng(seed), rows, ROWS + 5_000, exponent)
    keys = scatter(ranks, ROWS + 5_000)  # some of them R does not have
    return pa.table({"k": keys, "n": np.arange(rows)})


def best(
    relation: ss.Relation, latency_s: float | None, exponent: float = 0.0, rate: float = RATE
) -> Chosen:
    """Return what the tuner chooses on the emulated disk."""
    read, _ = emulated(relation)
    spec = resolve(read, stream(0.0, 1).schema, columns=["a"])
    advisor = Advisor(read, spec, stream_widths(read, spec, None))
    about = (advisor, reader_for(read, spec, None), ("k", "a"), BUDGET, DISK, latency_s)
    return Tuner(*about).best(Demand.zipf(exponent, ROWS), rate)


def latency_s_of(chosen: Chosen) -> float:
    return chosen.option.tuned.prediction.latency_at_s(RATE)


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_a_choice_holds_rate_and_latency(relation: ss.Relation, exponent: float) -> None:
    """The tighter the latency, the smaller the window, or the more memory."""
    chosen = [best(relation, target_s, exponent) for target_s in TARGETS_S]
    for target_s, each in zip(TARGETS_S, chosen, strict=True):
        assert latency_s_of(each) <= target_s
        assert each.option.rate >= RATE
        assert each.budget_bytes < BUDGET
        assert not each.missed_text(target_s)
    for looser, tighter in pairwise(chosen):
        windows = [each.option.tuned.settings.places for each in (looser, tighter)]
        is_same = tighter.is_like(looser)  # that was within the tighter one as well
        assert is_same or windows[1] < windows[0] or tighter.budget_bytes > looser.budget_bytes
    assert chosen[-1].budget_bytes > 1.2 * chosen[0].budget_bytes
    assert latency_s_of(best(relation, None, exponent)) > TARGETS_S[-1], "without a target"


def test_what_comes_closest(relation: ss.Relation) -> None:
    """Where nothing holds the latency, the rate is held with the least that is predicted."""
    closest = best(relation, 1e-6)
    assert closest.option.rate >= RATE
    assert latency_s_of(closest) < TARGETS_S[-1]
    assert latency_s_of(closest) <= 1.01 * min(latency_s_of(best(relation, t)) for t in TARGETS_S)
    text = closest.missed_text(1e-6)
    assert text.startswith("latency=0.001 ms is not held: ")
    assert "ms at 2,000 rows/s. Raise memory" in text


def arriving(sales: pa.Table, rate: float, device: EmulatedDevice) -> Iterator[pa.RecordBatch]:
    """Yield the rows that have arrived by the device's clock; an empty batch if there are none.

    If rows are requested again before anything was read, time passes until the next arrives.
    """
    (whole,) = sales.combine_chunks().to_batches()
    row, empty_s = 0, -1.0
    while row < len(whole):
        due = min(len(whole), int(device.now_s * rate)) - row
        if due == 0 and device.now_s == empty_s:
            device.idle(1 / rate)
            continue
        empty_s = device.now_s if due == 0 else empty_s
        yield whole[row : row + due]
        row += due


def latencies_s(
    join: SelfTuningJoin, sales: pa.Table, rate: float, device: EmulatedDevice
) -> np.ndarray:
    """Join rows that arrive one after the other; return the latency of each, after checking all."""
    found = np.full(len(sales), np.nan)
    for batch in join.join(arriving(sales, rate, device)):
        numbers = batch.column("n").to_numpy()
        found[numbers] = device.now_s - numbers / rate
    assert not np.isnan(found).any(), "a row is lost"
    return found


@pytest.mark.parametrize("exponent", [0.0, 1.0])
@pytest.mark.parametrize("target_s", TARGETS_S)
def test_a_join_holds_the_latency(
    relation: ss.Relation, target_s: float, exponent: float, caplog: pytest.LogCaptureFixture
) -> None:
    """On the clock of an emulated disk, the first third aside, and with a quarter more allowed."""
    sales = stream(exponent, 60_000)
    read, device = emulated(relation)
    spec = resolve(read, sales.schema, columns=["a"])
    about = (read, spec, BUDGET, None, DISK, RATE, None, target_s)
    join = SelfTuningJoin(*about, history=History())
    found = latencies_s(join, sales, RATE, device)
    assert found[len(found) // 3 :].mean() <= 1.25 * target_s
    assert max(change.budget_bytes for change in join.changes) < BUDGET / 4
    assert not caplog.records


@pytest.mark.parametrize("target_s", [0.1, 1e-6])
def test_another_choice_keeps_the_latency(
    relation: ss.Relation,
    target_s: float,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Twice as many rows arrive as expected, later with another skew; a warning comes once.

    After a change it is late for a while: a front stage has to learn its rows.
    """
    made: list[Chosen] = []
    original = Tuner.best

    def noted(*about: Any) -> Chosen:
        made.append(original(*about))
        return made[-1]

    monkeypatch.setattr(Tuner, "best", noted)
    sales = pa.concat_tables([stream(0.0, 80_000, 2), stream(1.2, 80_000, 3)])
    sales = sales.set_column(1, "n", pa.array(np.arange(len(sales))))
    read, device = emulated(relation)
    spec = resolve(read, sales.schema, columns=["a"])
    about = (read, spec, BUDGET, None, DISK, RATE / 2, None, target_s)
    join = SelfTuningJoin(*about, history=History())
    with caplog.at_level(logging.WARNING, logger="semistream"):
        found = latencies_s(join, sales, RATE, device)
    rates = {chosen.rate for chosen in made}
    assert len(rates - {inf}) >= 2, "the rate is twice what was expected"
    late = [chosen for chosen in made if chosen.missed_text(target_s)]
    if target_s == 1e-6:
        assert len(late) >= 2
        assert len(caplog.records) == 1
        return
    assert not late
    assert not caplog.records
    assert found[-20_000:].mean() <= 1.25 * target_s


def test_more_arrivals_than_can_be_served(relation: ss.Relation) -> None:
    """Until their rate is known, the fastest join catches up, with all of the memory."""
    chosen = best(relation, 0.05, rate=inf)
    assert chosen.budget_bytes == BUDGET
    assert chosen.is_like(best(relation, None, rate=inf))
    assert not chosen.missed_text(0.05), "nothing is known to be late"


def test_less_memory_where_more_would_wait(relation: ss.Relation) -> None:
    """At a low rate a large window takes long to fill: less than all of the memory holds it."""
    chosen = best(relation, 0.05, rate=20.0)
    assert not chosen.missed_text(0.05)
    assert chosen.budget_bytes < BUDGET / 4


@pytest.mark.parametrize("latency", ["10s", "50ms", 1e-6])
def test_every_row_is_joined(
    relation: ss.Relation, table: pa.Table, latency: str | float, caplog: pytest.LogCaptureFixture
) -> None:
    """Also with a latency that nothing holds: then there is one warning, however long it runs."""
    sales = stream(1.0, 200_000)
    read, _ = emulated(relation)
    options = {"memory": BUDGET, "columns": ["a"], "rate": RATE, "latency": latency}
    with caplog.at_level(logging.WARNING, logger="semistream"):
        batches = ss.join(iter(sales.to_batches(max_chunksize=4_000)), read, **options)
        joined = pa.Table.from_batches(batches)
    expected = duckdb_join(sales, table, on="k", columns=["a"])
    assert joined.sort_by("n").equals(expected.sort_by("n"))
    said = [record.message for record in caplog.records]
    assert ["is not held" in text for text in said] == ([True] if latency == 1e-6 else [])


def test_a_choice_is_not_kept_for_another_latency(relation: ss.Relation) -> None:
    history, sales = History(), stream(0.0, 2_000)
    spec = resolve(relation, sales.schema, columns=["a"])
    budgets = []
    for latency_s in (10.0, 0.1, 10.0):
        read, _ = emulated(relation)
        about = (read, spec, BUDGET, None, DISK, RATE, len(sales), latency_s)
        join = SelfTuningJoin(*about, history=history)
        list(join.join(sales.to_batches()))
        budgets.append(join.changes[0].budget_bytes)
    assert budgets[1] > 1.5 * budgets[0]
    assert budgets[2] == budgets[0]


def test_a_rate_that_nothing_holds(relation: ss.Relation) -> None:
    """The warning says so, and all of the memory is used."""
    chosen = best(relation, 0.1, rate=1e9)
    assert chosen.budget_bytes == BUDGET
    text = chosen.missed_text(0.1)
    assert "rows/s of the 1,000,000,000 that arrive, so rows will wait ever longer" in text


def test_what_is_wrong_with_a_latency(relation: ss.Relation) -> None:
    batches = stream(0.0, 10).to_batches()
    with pytest.raises(OptionError, match=r"latency needs rate, .* got rate=None and 'auto'"):
        ss.join(batches, relation, latency="50ms")
    with pytest.raises(OptionError, match="algorithm='auto'; got rate=5 and 'meshjoin'"):
        ss.join(batches, relation, latency="50ms", rate=5, algorithm="meshjoin")
    with pytest.raises(OptionError, match=r"such as '50ms'.*got 'soon'"):
        ss.join(batches, relation, latency="soon", rate=5)
    with pytest.raises(OptionError, match="a duration must be positive; got 0"):
        ss.join(batches, relation, latency=0, rate=5)
    with pytest.raises(OptionError, match="latency and ordered cannot go together"):
        ss.join(batches, relation, latency=1, rate=5, ordered="stream")
