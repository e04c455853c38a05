"""Operating parameters of a named algorithm."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.embedded import prepare
from semistream.errors import BudgetError, OptionError
from semistream.relation.device import EmulatedDevice, Reading

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


@pytest.mark.parametrize("skew", [0.0, 1.0])
def test_which_page_is_next(relation: ss.Relation, skew: float) -> None:
    """By counted device time urgent pages win with skew, and without it lose nothing."""
    rng = np.random.default_rng(3)
    shares = 1 / np.arange(1, 20_001) ** skew
    keys = rng.choice(20_000, 60_000, p=shares / shares.sum())
    seconds = {}
    for rule in ("oldest", "urgent"):
        device = EmulatedDevice.named("hdd-one-cost")
        read = relation.read_by(Reading(device, whole_pages=True))
        options = {"algorithm": "hybridjoin", "settings": {"disk_buffer": 8_000, "next_page": rule}}
        out = ss.join(pa.table({"k": keys}), read, memory="100KB", **options)
        joined = pa.Table.from_batches(out)
        assert np.array_equal(np.sort(joined["k"].to_numpy()), np.sort(keys))
        assert joined["v"] == joined["k"]
        seconds[rule] = device.now_s
    assert seconds["urgent"] < (0.85 if skew else 1.02) * seconds["oldest"]
    with pytest.raises(OptionError, match="Did you mean 'oldest'"):
        ss.join(STREAM, relation, algorithm="hybridjoin", settings={"next_page": "oldset"})


def test_x_hybridjoin_untuned(relation: ss.Relation) -> None:
    """Both parts of the disk buffer have one size, as in section 4 of its paper."""
    about = plan(relation, algorithm="xhybridjoin-untuned")
    assert about.settings.pinned_pages == about.settings.pages_per_read > 1
    about = plan(relation, algorithm="xhybridjoin-untuned", settings={"disk_buffer": 12_000})
    assert about.settings.pinned_pages == about.settings.pages_per_read == 3
    with pytest.raises(OptionError, match="Did you mean 'xhybridjoin-untuned'"):
        ss.join(STREAM, relation, algorithm="xhybridjoin-untund")


def test_cache_policy(relation: ss.Relation) -> None:
    ours = plan(relation, algorithm="cmeshjoin", settings={"cache_policy": "competing"})
    papers = plan(relation, algorithm="cmeshjoin", settings={"cache_policy": "paper"})
    assert 0 < papers.cached_rows < ours.cached_rows  # the frequency recorder takes memory
    assert ours == plan(relation, algorithm="cmeshjoin")


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
        ({"algorithm": "meshjoin", "settings": {"cache_policy": "paper"}}, "has no setting"),
        ({"algorithm": "cmeshjoin", "settings": {"cache_policy": "papr"}}, "Did you mean 'paper'"),
        (
            {"algorithm": "meshjoin", "settings": {"disk_buffer": 9_000}, "ordered": "key"},
            "cannot go together",
        ),
    ],
)
def test_what_cannot_be(relation: ss.Relation, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        prepare(STREAM, relation, memory="400KB", **options)
