"""The join without Spark: what its arguments may be."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import semistream as ss
from semistream.embedded import prepare
from semistream.errors import OptionError, RelationNotFoundError

SALES = pa.table({"k": [1, 2, 7]})


@pytest.fixture
def location(tmp_path: Path) -> Path:
    table = pa.table({"k": range(5_000), "v": range(5_000)})
    ss.build_relation(table, tmp_path / "r.rel", key="k", partitions=1)
    return tmp_path / "r.rel"


@pytest.mark.parametrize("as_text", [True, False])
def test_a_relation_is_given_by_its_path(location: Path, as_text: bool) -> None:
    joined = pa.Table.from_batches(ss.join(SALES, str(location) if as_text else location))
    assert joined.sort_by("k").to_pydict() == {"k": [1, 2, 7], "v": [1, 2, 7]}


def test_a_path_without_a_relation(tmp_path: Path) -> None:
    with pytest.raises(RelationNotFoundError, match="is not a relation"):
        ss.join(SALES, tmp_path / "none.rel")


@pytest.mark.parametrize("wrong", [SALES, SALES.to_pandas(), {"k": [1]}, None], ids=type)
def test_a_table_is_not_a_relation_yet(wrong: Any) -> None:
    with pytest.raises(OptionError, match=r"the relation must be .*Build one first: build_rel"):
        ss.join(SALES, wrong)


def test_memory_as_a_share_of_the_relation(location: Path) -> None:
    relation = ss.Relation.open(location)
    operator, _ = prepare(SALES, relation, memory="50%", algorithm="meshjoin")
    assert operator is not None
    assert operator.ledger.budget_bytes == relation.size_bytes // 2
    with pytest.raises(OptionError, match="a share of the relation"):
        prepare(SALES, relation, memory="half")
