"""Operating parameters of a named algorithm."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.embedded import prepare
from semistream.errors import BudgetError, OptionError

STREAM = pa.table({"k": np.arange(3_000) % 900})


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    table = pa.table({"k": np.arange(20_000), "v": np.arange(20_000)})
    place = tmp_path_factory.mktemp("settings") / "r.rel"
    return ss.build_relation(table, place, key="k", partitions=1, page_size="4KB")


def plan(relation: ss.Relation, **options: Any) -> Any:
    operator: Any
    operator, batches = prepare(STREAM, relation, memory="400KB", **options)
    out = pa.Table.from_batches(operator.join(batches))
    assert sorted(out["k"].to_pylist()) == sorted(STREAM["k"].to_pylist())
    assert out["v"] == out["k"]
    assert operator.ledger.peak_bytes <= operator.ledger.budget_bytes
    return operator.plan


def test_disk_buffer(relation: ss.Relation) -> None:
    for pages in (1, 7, 20):
        settings = {"disk_buffer": 4_000 * pages}
        for algorithm in ("meshjoin", "hybridjoin", "cmeshjoin"):
            about = plan(relation, algorithm=algorithm, settings=settings)
            assert about.settings.pages_per_read == pages


def test_the_papers_default(tmp_path: Path) -> None:
    table = pa.table({"k": np.arange(40_000), "v": ["x" * 200] * 40_000})
    relation = ss.build_relation(table, tmp_path / "r.rel", key="k", partitions=1, page_size="64KB")
    operator: Any
    operator, batches = prepare(
        STREAM, relation, memory="4MB", algorithm="meshjoin", settings="papers"
    )
    list(operator.join(batches))
    assert operator.plan.settings.pages_per_read == round(930_000 / 64_000)


def test_tuples_per_read(relation: ss.Relation) -> None:
    settings = {"disk_buffer": 40_000, "tuples_per_read": 33}
    about = plan(relation, algorithm="meshjoin", settings=settings)
    assert about.settings.tuples_per_read == 33
    with pytest.raises(BudgetError, match="Lower tuples_per_read"):
        plan(relation, algorithm="meshjoin", settings={"tuples_per_read": 10**6})


def test_pinned_pages_and_front_stage(relation: ss.Relation) -> None:
    about = plan(relation, algorithm="xhybridjoin", settings={"pinned_pages": 3})
    assert about.settings.pinned_pages == 3
    few = plan(relation, algorithm="meshjoin", front_stage=True, settings={"front_stage": 20_000})
    many = plan(relation, algorithm="cmeshjoin", settings={"front_stage": 80_000})
    assert 0 < few.cached_rows < many.cached_rows


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"settings": {"disk_buffer": 1}}, "for a named algorithm"),
        ({"algorithm": "meshjoin", "settings": {"disk_bufer": 1}}, "Did you mean 'disk_buffer'"),
        ({"algorithm": "hybridjoin", "settings": {"tuples_per_read": 1}}, "has no setting"),
        ({"algorithm": "meshjoin", "settings": {"disk_buffer": "1GB"}}, "all memory is"),
        ({"algorithm": "meshjoin", "settings": {"disk_buffer": 0}}, "must be positive"),
        ({"algorithm": "meshjoin", "settings": "paper"}, "'papers' or a mapping"),
        ({"algorithm": "xhybridjoin", "front_stage": True}, "front_stage=True is for"),
        (
            {"algorithm": "meshjoin", "settings": {"disk_buffer": 9_000}, "ordered": "key"},
            "cannot go together",
        ),
    ],
)
def test_what_cannot_be(relation: ss.Relation, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        prepare(STREAM, relation, memory="400KB", **options)
