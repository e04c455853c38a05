"""A front stage that outlives joins: a micro-batch begins with what the one before has learned."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import semistream as ss
from semistream.advice.auto import make_join
from semistream.advice.history import History
from semistream.embedded import JoinOptions
from semistream.joins.keptfront import CacheShape, KeptFront, Saved
from semistream.joins.telemetry import Telemetry
from semistream.relation.device import EmulatedDevice, Reading
from semistream.relation.differences import changed_codes
from semistream.testing import nested_loop_join, same_rows
from tests.oracle import duckdb_join

FRONT_BYTES = 100_000
LEARNING = ("auto", "lookup", "chybridjoin", "cmeshjoin")


@dataclass
class MicroBatches:
    """Joins one micro-batch after the other, with a front stage that outlives them."""

    relation: ss.Relation
    algorithm: str = "lookup"
    how: str = "left"
    front_bytes: int = FRONT_BYTES
    budget_bytes: int = 90_000
    saved: Saved | None = None
    ordered: str | None = None

    def __post_init__(self) -> None:
        self.history = History()

    def join(self, batch: pa.RecordBatch, **options: object) -> tuple[pa.Table, Telemetry]:
        spec = JoinOptions(how=self.how, **options).spec(self.relation, batch.schema)
        front = KeptFront(self.front_bytes, self.saved)
        about = (self.relation, spec, self.budget_bytes)
        options = {"front": front, "history": self.history, "ordered": self.ordered}
        operator = make_join(self.algorithm, *about, **options)
        joined = pa.Table.from_batches(operator.join([batch]), spec.output_schema)
        front.end_stream()
        saved = front.saved
        # As a file would be: the next cache may not share memory with this one.
        self.saved = saved and Saved(
            saved.snapshot,
            CacheShape.parse(saved.shape.text),
            [array.copy() for array in saved.arrays],
        )
        return joined, operator.telemetry


def texts(rows: int) -> pa.Table:
    """Unique string keys; values of all kinds, with nulls."""
    rng = np.random.default_rng(7)
    return pa.table(
        {
            "k": [f"key-{i}" for i in range(rows)],
            "n": pa.array(np.arange(rows), pa.int32(), mask=rng.random(rows) < 0.2),
            "t": pa.array(["x" * (i % 40) for i in range(rows)], mask=rng.random(rows) < 0.2),
        }
    )


def numbers(rows: int) -> pa.Table:
    return pa.table({"k": np.arange(rows) * 2, "v": np.arange(rows) * 7})


def duplicates(rows: int) -> pa.Table:
    keys = np.repeat(np.arange(rows), np.arange(rows) % 5 + 1)[:rows]
    return pa.table({"k": keys * 2, "v": np.arange(rows)})


TABLES = {"texts": texts, "numbers": numbers, "duplicates": duplicates}


def stream(table: pa.Table, seed: int, rows: int = 600) -> pa.RecordBatch:
    """Skewed keys of a table, keys that it does not have, and nulls."""
    rng = np.random.default_rng(seed)
    ranks = (len(table) ** rng.random(rows)).astype(int) - 1
    keys = table["k"].combine_chunks().take(pa.array(ranks))
    missing = pa.array(["none", "void"]) if pa.types.is_string(keys.type) else pa.array([1, 3])
    which = np.where(rng.random(rows) < 0.2, len(keys) + rng.integers(0, 2, rows), np.arange(rows))
    with_missing = pa.concat_arrays([keys, missing])
    picked = with_missing.take(pa.array(which, mask=rng.random(rows) < 0.05))
    return pa.record_batch({"k": picked, "q": np.arange(rows) + 1000 * seed})


@pytest.mark.parametrize("algorithm", LEARNING)
@pytest.mark.parametrize("kind", TABLES)
def test_micro_batches_agree_with_the_oracles(
    kind: str, algorithm: str, tmp_path: pytest.TempPathFactory
) -> None:
    table = TABLES[kind](3_000)
    relation = ss.build_relation(table, tmp_path, key="k", partitions=1, page_size=2_000)
    hits = warm = 0
    for how in ("left", "inner", "anti", "semi"):
        batches = MicroBatches(relation, algorithm, how)
        for seed in range(3):
            batch = stream(table, seed)
            joined, counted = batches.join(batch)
            expected = pa.Table.from_batches([batch])
            oracle = nested_loop_join if seed else duckdb_join
            assert same_rows(joined, oracle(expected, table, on="k", how=how))
            hits, warm = hits + counted.front_hits, warm + counted.warm_rows
    if algorithm != "auto":  # which may take one without a front stage for so few rows
        assert hits > 500
        assert warm > 10


@pytest.mark.parametrize("kind", TABLES)
def test_hits_wait_for_their_turn(kind: str, tmp_path: pytest.TempPathFactory) -> None:
    table = TABLES[kind](3_000)
    relation = ss.build_relation(table, tmp_path, key="k", partitions=1, page_size=2_000)
    hits = 0
    for how in ("left", "inner", "anti", "semi"):
        batches = MicroBatches(relation, how=how, ordered="stream")
        for seed in range(3):
            batch = stream(table, seed)
            joined, counted = batches.join(batch)
            expected = pa.Table.from_batches([batch])
            assert same_rows(joined, duckdb_join(expected, table, on="k", how=how))
            assert (np.diff(joined["q"].to_numpy()) >= 0).all()
            hits += counted.front_hits
    assert hits > 500


def test_a_cache_continues_where_the_last_one_ended(tmp_path: pytest.TempPathFactory) -> None:
    table = numbers(5_000)
    relation = ss.build_relation(table, tmp_path, key="k", partitions=1, page_size=2_000)
    batches = MicroBatches(relation, budget_bytes=400_000)  # all rows are in one window
    batch = pa.record_batch({"k": np.arange(800), "q": np.arange(800)})
    _, first = batches.join(batch)
    assert (first.front_hits, first.warm_rows) == (0, 0)
    assert first.front_admissions > 700
    _, second = batches.join(batch)
    assert second.warm_rows == first.front_admissions
    assert second.front_hits >= 0.9 * second.warm_rows
    assert second.bytes_read < first.bytes_read


@pytest.mark.parametrize("change", ["columns", "size", "snapshot"])
def test_what_was_saved_of_something_else_is_not_used(
    change: str, tmp_path: pytest.TempPathFactory
) -> None:
    table = numbers(5_000).append_column("w", pa.array(np.arange(5_000)))
    relation = ss.build_relation(table, tmp_path, key="k", partitions=1)
    batch = stream(table, 1)
    batches = MicroBatches(relation)
    batches.join(batch, columns=["v"])
    columns = ["v"]
    if change == "columns":
        columns = ["w"]
    elif change == "size":
        batches.front_bytes = FRONT_BYTES // 2
    else:
        table = table.set_column(1, "v", pa.array(np.arange(5_000) * 11))
        batches.relation = ss.build_relation(table, tmp_path, key="k", partitions=1)
    joined, counted = batches.join(batch, columns=columns)
    assert counted.warm_rows == 0
    expected = nested_loop_join(
        pa.Table.from_batches([batch]), table.select(["k", *columns]), on="k"
    )
    assert same_rows(joined, expected)
    assert batches.join(batch, columns=columns)[1].warm_rows > 0


@pytest.mark.parametrize("kind", ["numbers", "texts", "duplicates"])
def test_rows_that_did_not_change_are_kept_for_the_next_snapshot(
    kind: str, tmp_path: pytest.TempPathFactory
) -> None:
    """Some cached keys get other rows, some lose theirs, and a missing one comes."""
    table = TABLES[kind](3_000)
    relation = ss.build_relation(table, tmp_path, key="k", partitions=1, page_size=2_000)
    batches = MicroBatches(relation, "chybridjoin")
    for seed in range(3):
        _, counted = batches.join(stream(table, seed))
    keys = table["k"].combine_chunks().slice(0, 30).unique()
    missing = "none" if pa.types.is_string(keys.type) else 1
    keys = pa.concat_arrays([keys, pa.array([missing], keys.type)])
    first = table.schema.names[1]
    values = pa.array(np.arange(len(keys)) + 90_000, table.schema.field(first).type)
    columns = {
        name: pa.nulls(len(keys), table.schema.field(name).type) for name in table.schema.names
    }
    changes = pa.table(columns | {"k": keys, first: values})
    gone = pa.array(np.arange(len(keys)) % 10 == 1)
    newer = relation.upsert(changes.append_column("gone", gone), deletes="gone")
    changed = changed_codes(relation, newer, 0)
    assert batches.saved is not None
    assert changed is not None
    batches.relation, batches.saved = newer, batches.saved.taken_up(newer.snapshot, changed)
    batch = stream(table, 7)
    joined, counted = batches.join(batch)
    kept = table.filter(pc.invert(pc.is_in(table["k"], keys)))
    expected = pa.concat_tables([kept, changes.filter(pc.invert(gone))])
    assert same_rows(joined, duckdb_join(pa.Table.from_batches([batch]), expected, on="k"))
    assert counted.warm_rows > 20


def test_rows_with_nested_values_are_not_kept(tmp_path: pytest.TempPathFactory) -> None:
    table = pa.table({"k": np.arange(500), "v": [[i] for i in range(500)]})
    batches = MicroBatches(ss.build_relation(table, tmp_path, key="k", partitions=1))
    batch = stream(table, 1)
    for _ in range(2):
        joined, counted = batches.join(batch)
        assert joined.num_rows == batch.num_rows
        assert (counted.warm_rows, batches.saved) == (0, None)


def test_warm_micro_batches_need_a_third_of_the_requests(tmp_path: pytest.TempPathFactory) -> None:
    """Zipf 1 over an emulated object store, to scale, after a backlog of large micro-batches.

    Micro-batches are so small that rows between two requested ones are not read as well.
    """
    rows, rng = 100_000, np.random.default_rng(5)
    keys = rng.permutation(rows)
    table = pa.table({"k": keys, "v": keys * 3, "w": keys * 5, "x": keys, "y": keys})
    built = ss.build_relation(table, tmp_path, key="k", partitions=1, page_size=16_384)
    weights = 1 / np.arange(1, rows + 1)
    shares = np.cumsum(weights) / weights.sum()

    def batch(size: int) -> pa.RecordBatch:
        picked = keys[np.searchsorted(shares, rng.random(size))]
        return pa.record_batch({"k": picked, "q": np.arange(size)})

    micro_batches = MicroBatches(built, front_bytes=700_000, budget_bytes=1_000_000)
    for _ in range(8):
        micro_batches.join(batch(60_000), columns=["v", "w"])
    warm, requests = micro_batches.saved, {True: 0, False: 0}
    for rows_in in [batch(40) for _ in range(20)]:
        for is_warm in (True, False):
            device = EmulatedDevice.named("object-store").shrunk(500)
            micro_batches.relation = built.read_by(Reading(device=device))
            micro_batches.saved = warm if is_warm else None
            joined, _ = micro_batches.join(rows_in, columns=["v", "w"])
            assert joined.num_rows == 40
            assert (joined["v"].to_numpy() == joined["k"].to_numpy() * 3).all()
            requests[is_warm] += device.requests
    assert requests[False] > 500
    assert requests[True] * 3 <= requests[False]
