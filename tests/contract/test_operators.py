"""The contract that every algorithm of the registry keeps."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.embedded import prepare
from semistream.errors import BudgetError
from semistream.relation.device import EmulatedDevice, Reading
from semistream.testing import nested_loop_join, same_rows
from tests.contract.pressure import expected_of, least_budget, seen, workloads_of
from tests.workloads import Workload, check_against_oracle, run, workloads

TYPICAL = Workload(
    seed=7,
    key_kinds=("int64",),
    relation_rows=250,
    stream_rows=200,
    domain=300,
    skew=1.0,
    null_share=0.1,
    unique=False,
    partitions=2,
    page_bytes=300,
    batch_rows=64,
    how="left",
    with_nested=False,
)


@settings(max_examples=20)
@given(workload=workloads(), factor=st.sampled_from([1, 1.05, 1.3, 2, 5, 40]))
def test_oracle_generated(algorithm: str, workload: Workload, factor: float) -> None:
    _, table = workload.tables()
    relation = workload.build(table)
    least = least_budget(algorithm, workload, relation)
    memory = "1MB" if least is None else int(least * factor)
    check_against_oracle(workload, relation, algorithm, memory)


def test_oracle_when_memory_is_short(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several reads, windows, evictions, retunings: the result is exact, and each of them occurs.

    The same workloads in every run, so that what occurs is the same, too.
    """
    # `auto` looks at the demand that often; on an emulated device it does not watch the clock.
    monkeypatch.setattr("semistream.advice.sampling.SAMPLE_ROWS", 512)
    monkeypatch.setattr("semistream.advice.sampling._ROWS_PER_BATCH", 128)
    occurred: Counter[str] = Counter()
    for workload, factor in workloads_of(algorithm):
        _, table = workload.tables()
        relation = workload.build(table).read_by(Reading(EmulatedDevice.named("ssd")))
        least = least_budget(algorithm, workload, relation)
        assert least is not None
        operator = check_against_oracle(workload, relation, algorithm, int(least * factor))
        occurred.update(seen(operator, relation, workload))
    assert expected_of(algorithm) <= set(occurred), occurred


@settings(max_examples=5)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["int64", "string", "clumped"]),
    page_bytes=st.sampled_from([64, 300, 4096]),
    nested=st.booleans(),
)
def test_budgets_from_the_least_upward(
    algorithm: str, seed: int, kind: str, page_bytes: int, nested: bool
) -> None:
    workload = replace(
        TYPICAL,
        seed=seed,
        relation_rows=90,
        stream_rows=60,
        key_kinds=(kind,),
        page_bytes=page_bytes,
        with_nested=nested,
    )
    _, table = workload.tables()
    relation = workload.build(table)
    least = least_budget(algorithm, workload, relation)
    assert least is not None
    for budget in (least, least + 1, least * 5 // 4, least * 2, least * 10):
        operator = check_against_oracle(workload, relation, algorithm, budget)
        assert operator.ledger.budget_bytes == budget


def test_budget_one_below_the_least_fails(algorithm: str) -> None:
    _, table = TYPICAL.tables()
    relation = TYPICAL.build(table)
    least = least_budget(algorithm, TYPICAL, relation)
    assert least is not None
    with pytest.raises(BudgetError, match="Raise memory"):
        check_against_oracle(TYPICAL, relation, algorithm, least - 1)


@pytest.mark.parametrize("batch_rows", [1, 3, 100_000])
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_batch_sizes_do_not_matter(algorithm: str, batch_rows: int, how: str) -> None:
    workload = replace(TYPICAL, batch_rows=batch_rows, how=how)
    _, table = workload.tables()
    check_against_oracle(workload, workload.build(table), algorithm, "2MB")


def test_intermittent_input(algorithm: str) -> None:
    """Empty batches mean that nothing has arrived; they change nothing in the result."""
    stream, table = TYPICAL.tables()
    relation = TYPICAL.build(table)
    empty = pa.RecordBatch.from_pylist([], stream.schema)
    batches = [empty]
    for batch in stream.to_batches(max_chunksize=9):
        batches += [batch, empty, empty]
    operator, batches = prepare(batches, relation, on=TYPICAL.on, memory="2MB", algorithm=algorithm)
    assert operator is not None
    actual = run(operator, batches)
    assert actual is not None
    assert same_rows(actual, nested_loop_join(stream, table, on=TYPICAL.on))


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_many_to_many_explodes_within_the_budget(algorithm: str, how: str) -> None:
    """One key on both sides: every row meets every row, in output batches of bounded size."""
    stream = pa.table({"s0": pa.array([1] * 150), "quantity": np.arange(150)})
    table = pa.table({"r0": pa.array([1] * 400), "number": np.arange(400)})
    workload = replace(TYPICAL, partitions=1, page_bytes=200, how=how)
    relation = workload.build(table)
    operator, batches = prepare(
        stream.to_batches(), relation, on=workload.on, how=how, memory="2MB", algorithm=algorithm
    )
    assert operator is not None
    out = list(operator.join(batches))
    expected = nested_loop_join(stream, table, on=workload.on, how=how)
    assert max((b.num_rows for b in out), default=0) <= 16_384
    assert same_rows(pa.Table.from_batches(out, expected.schema), expected)


def test_no_stream_rows(algorithm: str) -> None:
    stream, table = replace(TYPICAL, stream_rows=0).tables()
    relation = TYPICAL.build(table)
    reader = stream.to_reader()
    assert list(ss.join(reader, relation, on=TYPICAL.on, memory="2MB", algorithm=algorithm)) == []


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_no_relation_rows(algorithm: str, how: str) -> None:
    workload = replace(TYPICAL, relation_rows=0, how=how)
    _, table = workload.tables()
    check_against_oracle(workload, workload.build(table), algorithm, "2MB")


def test_dictionary_encoded_stream(algorithm: str) -> None:
    workload = replace(TYPICAL, key_kinds=("string",))
    stream, table = workload.tables()
    relation = workload.build(table)
    encoded = stream.set_column(0, "s0", stream["s0"].dictionary_encode())
    operator, batches = prepare(
        encoded.to_batches(max_chunksize=50),
        relation,
        on=workload.on,
        memory="2MB",
        algorithm=algorithm,
    )
    assert operator is not None
    actual = run(operator, batches)
    assert actual is not None
    assert same_rows(actual, nested_loop_join(stream, table, on=workload.on))
