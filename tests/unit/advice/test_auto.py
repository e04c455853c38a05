"""`auto`: exact whatever is chosen, by what is known of the stream, and clear about why."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.advice.auto import SelfTuningJoin
from semistream.advice.history import History
from semistream.advice.tuner import Tuner
from semistream.budget.split import Split
from semistream.cost.factors import CostFactors
from semistream.cost.models import Model
from semistream.embedded import prepare
from semistream.errors import BudgetError, OptionError
from semistream.joins.indexjoin import IndexJoin
from semistream.relation.device import EmulatedDevice, Reading
from semistream.relation.reader import PageReader
from semistream.spec import resolve
from semistream.workload.zipf import scatter, zipf_ranks
from tests.oracle import duckdb_join
from tests.retunings import Choice, RetunedJoin

ROWS = 60_000
DISK = CostFactors.of_device(*EmulatedDevice.named("hdd-2007").costs)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(1)
    return pa.table(
        {
            "k": rng.permutation(ROWS),
            "a": rng.integers(0, 2**40, ROWS),
            "b": rng.integers(0, 2**40, ROWS),
            "name": [f"name {i}" for i in range(ROWS)],
        }
    )


@pytest.fixture(scope="module")
def relation(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    folder = tmp_path_factory.mktemp("auto")
    return ss.build_relation(table, folder / "r.rel", key="k", partitions=2, page_size="8KiB")


def stream(exponent: float, rows: int, seed: int = 1) -> pa.Table:
    ranks = zipf_ranks(np.random.default_rng(seed), rows, ROWS + 5_000, exponent)
    keys = scatter(ranks, ROWS + 5_000)  # some of them R does not have
    return pa.table({"k": keys, "n": np.arange(rows)})


def check_left_join(
    out: Iterable[pa.RecordBatch], stream: pa.Table, table: pa.Table, columns: list[str]
) -> None:
    """Compare all rows of a left join with DuckDB's; `n` numbers the stream's rows."""
    actual = pa.Table.from_batches(out)
    actual.validate(full=True)
    expected = duckdb_join(stream, table, on="k", columns=columns)
    assert 0 < expected[columns[0]].null_count < len(stream) / 2
    assert actual.sort_by("n").equals(expected.sort_by("n"))


def emulated(relation: ss.Relation) -> ss.Relation:
    return relation.read_by(Reading(EmulatedDevice.named("hdd-2007")))


def test_changes_lose_nothing(relation: ss.Relation, table: pa.Table) -> None:
    """A stream that changes twice."""
    parts = [stream(0.0, 150_000, 1), stream(1.2, 250_000, 2), stream(0.0, 150_000, 3)]
    whole = pa.concat_tables(parts)
    whole = whole.set_column(1, "n", pa.array(np.arange(len(whole))))
    spec = resolve(relation, whole.schema, how="left", columns=["a", "name"])
    join = SelfTuningJoin(emulated(relation), spec, 400_000, factors=DISK)
    out = join.join(whole.to_batches(max_chunksize=4_000))
    check_left_join(out, whole, table, ["a", "name"])
    assert join.telemetry.retunings >= 2
    assert [c.at_row for c in join.changes] == sorted({c.at_row for c in join.changes})
    assert all(c.reason and c.option is not None for c in join.changes)
    assert join.telemetry.stream_rows == join.telemetry.output_rows == len(whole)
    assert join.telemetry.memory_bytes_peak <= 400_000


def drifting(*skews: float) -> pa.Table:
    """Return a stream whose skew changes after every 100,000 rows."""
    whole = pa.concat_tables([stream(skew, 100_000, seed) for seed, skew in enumerate(skews)])
    return whole.set_column(1, "n", pa.array(np.arange(len(whole))))


def retuned(
    relation: ss.Relation, table: pa.Table, sales: pa.Table, choices: Sequence[Choice]
) -> tuple[RetunedJoin, float]:
    """Make these choices in turns, every 100,000 rows; return the join and its device time."""
    spec = resolve(relation, sales.schema, how="left", columns=["a", "name"])
    read = emulated(relation)
    join = RetunedJoin.with_choices(choices, 25)(read, spec, 400_000, factors=DISK)
    check_left_join(join.join(sales.to_batches(max_chunksize=4_000)), sales, table, ["a", "name"])
    assert join.telemetry.retunings == len(sales) // 100_000 - 1
    assert not any(join.alive), "the memory of a join is free when the next one begins"
    assert join.telemetry.memory_bytes_peak <= 400_000
    assert read.reading.device is not None
    return join, read.reading.device.now_s


def test_the_front_stage_is_handed_over(
    relation: ss.Relation, table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a stream whose skew drifts, hits and counted device time are better for it."""
    choices = [("chybridjoin", Split()), ("chybridjoin", Split(front_bytes=100_000))]
    found = {}
    for hands_over in (False, True):
        monkeypatch.setattr("semistream.advice.auto.HANDS_OVER", hands_over)
        join, device_s = retuned(relation, table, drifting(0.8, 1.3, 0.8), choices)
        found[hands_over] = (join.telemetry.front_hits, device_s)
    assert found[True][0] > 1.02 * found[False][0]
    assert found[True][1] < 0.97 * found[False][1]


def test_waiting_tuples_are_handed_over(
    relation: ss.Relation, table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes less device time than to drain the window, if only the split changes or more."""
    for name, split in (("chybridjoin", Split(pages_per_read=12)), ("hybridjoin", Split())):
        choices = [("chybridjoin", Split()), (name, split)]
        found = {}
        for drains in (True, False):
            with monkeypatch.context() as patched:
                if drains:
                    patched.setattr(IndexJoin, "_can_hand_over", lambda _: False)
                join, found[drains] = retuned(relation, table, drifting(0.8, 1.3, 0.8), choices)
            assert [taken > 1_000 for taken in join.handed_over] == [False, *2 * [not drains]]
        assert found[False] < 0.98 * found[True]


def test_the_same_choice_again_is_no_change(
    relation: ss.Relation, table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream of unknown length goes on: the model is asked again, and what runs is best."""
    sales = drifting(0.8, 0.8, 0.8)
    spec = resolve(relation, sales.schema, columns=["a", "name"])
    join = SelfTuningJoin(emulated(relation), spec, 400_000, factors=DISK, history=History())
    asked = count_calls(monkeypatch, Tuner, "best")
    out = join.join(iter(sales.to_batches(max_chunksize=4_000)))
    check_left_join(out, sales, table, ["a", "name"])
    assert len(asked) == 2, "at the start, and after half as many rows again as were expected"
    assert [change.reason for change in join.changes] == ["at the start"]


def test_a_steady_stream_is_left_alone(relation: ss.Relation, table: pa.Table) -> None:
    sales = stream(0.9, 400_000)
    spec = resolve(relation, sales.schema, columns=["a"])
    about = (emulated(relation), spec, 400_000)
    join = SelfTuningJoin(*about, factors=DISK, stream_rows=len(sales))
    check_left_join(join.join(sales.to_batches(max_chunksize=5_000)), sales, table, ["a"])
    assert join.telemetry.retunings == 0
    assert [c.reason for c in join.changes] == ["at the start"]


def test_pauses_and_empty_batches(relation: ss.Relation, table: pa.Table) -> None:
    sales = stream(1.0, 30_000)
    batches = sales.to_batches(max_chunksize=700)
    empty = batches[0][:0]

    def source() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield empty
            yield batch
        yield empty

    spec = resolve(relation, sales.schema, columns=["a"])
    join = SelfTuningJoin(emulated(relation), spec, 400_000, factors=DISK)
    check_left_join(join.join(source()), sales, table, ["a"])


def test_with_a_rate_less_memory_is_taken(relation: ss.Relation, table: pa.Table) -> None:
    sales = stream(0.0, 60_000)
    spec = resolve(relation, sales.schema, columns=["a"])
    peaks = []
    for rate in (200.0, None):
        join = SelfTuningJoin(emulated(relation), spec, 1_500_000, factors=DISK, rate=rate)
        check_left_join(join.join([*sales.to_batches()]), sales, table, ["a"])
        peaks.append(join.changes[0].budget_bytes)
    assert peaks[0] < peaks[1] / 2
    assert peaks[1] == 1_500_000


@pytest.mark.parametrize(("rows", "expected"), [(100, "lookup"), (100_000, "resident")])
def test_resident_where_it_fits(relation: ss.Relation, rows: int, expected: str) -> None:
    """But for a few rows: to look them up takes less time than to load R."""
    operator, batches = prepare(stream(1.0, rows).to_batches(), relation, memory="64MB")
    assert operator is not None
    list(operator.join(batches))
    assert isinstance(operator, SelfTuningJoin)
    assert operator.changes[0].algorithm == expected


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[None]:
    """Return a list that grows with each call of a method."""
    calls: list[None] = []
    original = getattr(owner, name)

    def counted(*positional: object, **named: object) -> object:
        calls.append(None)
        return original(*positional, **named)

    monkeypatch.setattr(owner, name, counted)
    return calls


def test_choices_are_remembered(relation: ss.Relation, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next micro-batch asks the model for nothing, unless its keys or its length are others."""
    asked = count_calls(monkeypatch, Tuner, "best")
    history, counts = History(), []
    # The second is expected to be as long as the first was; the third is like it.
    for exponent in (1.0, 1.0, 1.0, 0.0):
        table = stream(exponent, 20_000)
        spec = resolve(relation, table.schema, columns=["b"])
        join = SelfTuningJoin(relation, spec, 500_000, factors=DISK, history=history)
        list(join.join(table.to_batches()))
        counts.append(len(asked))
    assert counts == [1, 2, 2, 3]


def expected_rows(join: SelfTuningJoin) -> int | None:
    """Return the length of the stream that the first choice was made for."""
    option = join.changes[0].option
    assert option is not None
    return option.tuned.prediction.stream_rows


@pytest.mark.parametrize(("rows", "as_list"), [(12_345, True), (13_456, False)])
def test_the_length_of_a_table_or_a_list_is_known(
    relation: ss.Relation, rows: int, as_list: bool
) -> None:
    sales = stream(0.0, rows)
    source = sales.to_batches(max_chunksize=1_000) if as_list else sales
    operator, batches = prepare(source, relation, memory="400KB", columns=["a"])
    assert isinstance(operator, SelfTuningJoin)
    list(operator.join(batches))
    assert expected_rows(operator) == rows


def test_other_streams_are_expected_to_be_like_the_last(relation: ss.Relation) -> None:
    """And the first one of a kind to be short."""
    history, expected = History(), []
    for rows in (7_000, 9_000, 100):
        sales = stream(0.0, rows)
        spec = resolve(relation, sales.schema, columns=["a"])
        join = SelfTuningJoin(relation, spec, 400_000, factors=DISK, history=history)
        list(join.join(iter(sales.to_batches())))
        expected.append(expected_rows(join))
    assert expected == [100_000, 7_000, 9_000]


def test_few_rows_are_looked_up_and_many_wait_in_a_window(
    relation: ss.Relation, table: pa.Table
) -> None:
    chosen = {}
    for rows in (60, 300_000):
        sales = stream(1.0, rows)
        spec = resolve(relation, sales.schema, columns=["a", "b"])
        about = (emulated(relation), spec, 900_000)
        join = SelfTuningJoin(*about, factors=DISK, stream_rows=rows, history=History())
        check_left_join(join.join(sales.to_batches(max_chunksize=4_000)), sales, table, ["a", "b"])
        chosen[rows] = [change.algorithm for change in join.changes]
    assert chosen[60] == ["lookup"]
    assert "lookup" not in chosen[300_000]


def test_choosing_for_few_rows_costs_little(
    relation: ss.Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No demand is computed and no model is run; for many rows both is done."""
    demands = count_calls(monkeypatch, Tuner, "demand")
    predictions = count_calls(monkeypatch, Model, "predict")
    for rows, is_modelled in ((60, False), (20_000, True)):
        sales = stream(1.0, rows)
        spec = resolve(relation, sales.schema, columns=["a"])
        join = SelfTuningJoin(
            relation, spec, 400_000, factors=DISK, stream_rows=rows, history=History()
        )
        list(join.join(sales.to_batches()))
        assert len(join.changes) == 1
        assert bool(demands) == bool(predictions) == is_modelled, rows


def test_a_stream_that_goes_on_gets_another_choice(relation: ss.Relation, table: pa.Table) -> None:
    """Streams of its kind were short, so it is taken for short until it is not."""
    history, algorithms = History(), []
    for rows in (60, 400_000):
        sales = stream(1.1, rows)
        spec = resolve(relation, sales.schema, columns=["a", "b"])
        join = SelfTuningJoin(emulated(relation), spec, 900_000, factors=DISK, history=history)
        out = join.join(iter(sales.to_batches(max_chunksize=4_000)))
        check_left_join(out, sales, table, ["a", "b"])
        algorithms.append([change.algorithm for change in join.changes])
    assert algorithms[1][0] == "lookup", "60 rows are expected"
    assert algorithms[1][1] != "lookup"
    assert "the stream goes on after" in join.changes[1].reason
    assert "60 were expected" in join.changes[1].reason
    assert join.telemetry.stream_rows == join.telemetry.output_rows == 400_000


def test_rate_is_for_auto(relation: ss.Relation) -> None:
    batches = stream(0.0, 10).to_batches()
    with pytest.raises(OptionError, match=r"rate is a positive number.*got -1"):
        ss.join(batches, relation, rate=-1)
    with pytest.raises(OptionError, match="for algorithm='auto'"):
        ss.join(batches, relation, rate=5, algorithm="meshjoin")
    with pytest.raises(OptionError, match="Did you mean 'meshjoin'"):
        ss.join(batches, relation, algorithm="meshjion")


def test_too_small_for_anything(relation: ss.Relation) -> None:
    with pytest.raises(BudgetError, match="it needs at least") as error:
        list(ss.join(stream(0.0, 10).to_batches(), relation, memory=1_000))
    assert error.value.least_bytes is not None
    list(ss.join(stream(0.0, 10).to_batches(), relation, memory=error.value.least_bytes))


@pytest.mark.parametrize(
    ("memory_bytes", "share", "is_modelled"),
    [(1 << 40, 1.0, False), (1, 0.0, False), (1, 1.0, True)],
    ids=["R will stay in the page cache", "it is there now", "neither"],
)
def test_look_ups_of_some_rows_a_page_are_compared_with_others_where_they_read_from_the_disk(
    relation: ss.Relation,
    table: pa.Table,
    monkeypatch: pytest.MonkeyPatch,
    memory_bytes: int,
    share: float,
    is_modelled: bool,
) -> None:
    """In the page cache nothing is as fast as they are; elsewhere a request is expensive."""
    monkeypatch.setattr("semistream.memory.host_memory", lambda: (0, memory_bytes))
    monkeypatch.setattr(PageReader, "uncached_share", lambda *_: share)
    demands = count_calls(monkeypatch, Tuner, "demand")
    rows = 4 * relation.reader([]).page_count
    few = stream(0.0, rows)
    spec = resolve(relation, few.schema, on="k", columns=["a"])
    join = SelfTuningJoin(relation, spec, 400_000, stream_rows=rows, history=History())
    check_left_join(join.join(few.to_batches()), few, table, ["a"])
    assert bool(demands) is is_modelled


def test_a_choice_for_narrow_rows_is_not_taken_for_wide_ones(
    relation: ss.Relation, table: pa.Table
) -> None:
    """With a rate a choice has the least memory; wider rows need more, and there is more."""
    history, narrow = History(), stream(0.5, 4_000)
    widths = [("short", 4_000), ("short", 4_000), ("x" * 30_000, 4_000)]
    budgets = []
    for text, rows in widths:
        texts = pa.array([text, *["short"] * (rows - 1)])
        some = narrow[:rows].append_column("t", texts)
        spec = resolve(relation, some.schema, how="left", columns=["a"])
        join = SelfTuningJoin(
            emulated(relation), spec, 900_000, factors=DISK, rate=50.0, history=history
        )
        check_left_join(join.join(some.to_batches()), some, table, ["a"])
        budgets.append(join.changes[0].budget_bytes)
    assert budgets[1] < budgets[2]
