"""A budget is refused before the stream has a row if, and only if, no task could run in it."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.advice.auto import AUTO, make_join
from semistream.advice.feasible import task_budget
from semistream.errors import BudgetError, OptionError
from semistream.joins.registry import ALGORITHMS
from semistream.spec import JoinSpec, resolve

every_algorithm = pytest.mark.parametrize("algorithm", [AUTO, *ALGORITHMS])
PARTITIONS = 4
BIG = 3  # the partition that has most of the rows


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    """A relation with one row in each partition, but for one, which has thousands."""
    keys = np.concatenate([np.arange(PARTITIONS), PARTITIONS * np.arange(1, 4000) + BIG])
    table = pa.table({"id": keys, "name": [f"product {k}" for k in keys]})
    place = tmp_path_factory.mktemp("feasible") / "p.rel"
    return ss.build_relation(table, place, key="id", partitions=PARTITIONS, page_size="2KiB")


def spec_of(relation: ss.Relation, *columns: pa.Field) -> JoinSpec:
    return resolve(relation, pa.schema([pa.field("id", pa.int64()), *columns]))


def least(algorithm: str, relation: ss.Relation, spec: JoinSpec) -> int:
    """Return the memory that the error for one byte asks for."""
    with pytest.raises(BudgetError, match="the total for all 4 tasks") as error:
        task_budget(algorithm, relation, spec, 1)
    assert error.value.least_bytes is not None
    return error.value.least_bytes


def run(algorithm: str, relation: ss.Relation, spec: JoinSpec, budget_bytes: int) -> int:
    """Join the largest partition as a task would; return how many rows come out."""
    keys = pa.array(PARTITIONS * np.arange(500) + BIG)
    others = [pa.array(["x" * 10] * 500) for _ in spec.stream_schema.names[1:]]
    batch = pa.RecordBatch.from_arrays([keys, *others], schema=spec.stream_schema)
    join = make_join(algorithm, relation, spec, budget_bytes, BIG)
    return sum(b.num_rows for b in join.join([batch]))


@every_algorithm
def test_the_memory_that_is_asked_for_is_enough_and_no_less_is(
    products: ss.Relation, algorithm: str
) -> None:
    spec = spec_of(products)
    memory = least(algorithm, products, spec)
    share = task_budget(algorithm, products, spec, memory)
    assert share == memory // PARTITIONS
    assert run(algorithm, products, spec, share) == 500
    with pytest.raises(BudgetError):
        task_budget(algorithm, products, spec, memory - 1)
    if algorithm != "resident":
        with pytest.raises(BudgetError):
            run(algorithm, products, spec, share - 1)


@every_algorithm
def test_texts_of_the_stream_count_too(products: ss.Relation, algorithm: str) -> None:
    spec = spec_of(products, pa.field("note", pa.string()))
    memory = least(algorithm, products, spec)
    assert run(algorithm, products, spec, memory // PARTITIONS) == 500


def test_only_what_no_stream_could_do_with_is_refused(products: ss.Relation) -> None:
    """The advice allows for texts of some width; a stream whose texts are empty needs less."""
    spec = spec_of(products, pa.field("note", pa.string()))
    advised = least("hybridjoin", products, spec)
    accepted = task_budget("hybridjoin", products, spec, advised - PARTITIONS)
    assert accepted == advised // PARTITIONS - 1


def test_partitions_are_not_advised_where_they_would_need_more(tmp_path: Path) -> None:
    table = pa.table({"id": range(2000), "name": ["x" * 40] * 2000})
    needs = {}
    for count in (2, 8):
        relation = ss.build_relation(table, tmp_path / f"{count}.rel", key="id", partitions=count)
        with pytest.raises(BudgetError, match=r"with fewer partitions$") as error:
            task_budget(AUTO, relation, spec_of(relation), 1)
        needs[count] = error.value.least_bytes or 0
    assert needs[2] < needs[8]


@every_algorithm
def test_an_empty_relation_needs_nothing(tmp_path: Path, algorithm: str) -> None:
    table = pa.table({"id": pa.array([], pa.int64()), "name": pa.array([], pa.string())})
    relation = ss.build_relation(table, tmp_path / "r", key="id", partitions=2)
    assert task_budget(algorithm, relation, spec_of(relation), 4_000_000) == 2_000_000


def test_an_unknown_algorithm(products: ss.Relation) -> None:
    with pytest.raises(OptionError, match="Did you mean 'meshjoin'"):
        task_budget("meshjion", products, spec_of(products), 1_000_000)
