"""The benchmarks' fingerprint: any wrong value changes it, another order does not."""

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.data import fingerprint, paper_workload, shuffled_relation, stream_table
from benchmarks.engine import answer_to

from tests.oracle import duckdb_join

RELATION = shuffled_relation(paper_workload(500))
STREAM = stream_table(paper_workload(500), 2_000)
JOINED = duckdb_join(STREAM, RELATION, on="k", how="inner", columns=["c0", "c1"])
PLAIN = fingerprint(JOINED.to_batches())


def test_the_answer_is_that_of_duckdb() -> None:
    assert answer_to(RELATION, STREAM) == PLAIN
    assert PLAIN[0] == len(STREAM)
    assert len(PLAIN[2]) == 5


def test_the_order_of_rows_columns_and_batches_does_not_matter() -> None:
    shuffled = JOINED.take(np.random.default_rng(1).permutation(len(JOINED)))
    assert fingerprint(shuffled.select(sorted(JOINED.column_names)).to_batches(97)) == PLAIN


@pytest.mark.parametrize("name", JOINED.column_names)
def test_one_wrong_value_in_any_column_is_noticed(name: str) -> None:
    values = JOINED[name].to_numpy().copy()
    values[17] += 1
    at = JOINED.column_names.index(name)
    wrong = JOINED.set_column(at, name, pa.array(values, JOINED[name].type))
    assert fingerprint(wrong.to_batches()) != PLAIN


@pytest.mark.parametrize("name", JOINED.column_names)
def test_values_on_other_rows_are_noticed(name: str) -> None:
    at = JOINED.column_names.index(name)
    wrong = JOINED.set_column(at, name, pa.array(np.roll(JOINED[name].to_numpy(), 1)))
    assert fingerprint(wrong.to_batches()) != PLAIN


def test_lost_rows_and_columns_and_other_types_are_noticed() -> None:
    assert fingerprint(JOINED[1:].to_batches()) != PLAIN
    assert fingerprint(JOINED.drop_columns(["c1"]).to_batches()) != PLAIN
    wider = JOINED.set_column(1, "quantity", JOINED["quantity"].cast(pa.int64()))
    assert fingerprint(wider.to_batches()) != PLAIN
