"""What `explain` says of conditions, versions, ordered output and shedding."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.cli.main import main
from semistream.cost.options import IN_ORDER_S
from semistream.errors import BudgetError, OptionError

SAMPLE = pa.table({"k": np.arange(2_000) % 900, "q": np.arange(2_000)})


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    keys = np.arange(20_000)
    table = pa.table({"k": keys, "v": keys, "least": keys, "name": [f"{k:030d}" for k in keys]})
    place = tmp_path_factory.mktemp("explained") / "r.rel"
    return ss.build_relation(table, place, key="k", partitions=1, page_size="4KB")


def test_each_option_has_its_cost(relation: ss.Relation) -> None:
    asked: dict[str, Any] = {"memory": "200KB", "sample": SAMPLE, "columns": ["v"]}
    plain = relation.explain(**asked)
    assert plain.options == ()
    condition = relation.explain(**asked, condition="s.q >= r.least")
    (cost,) = condition.options
    # The rates include the column that it reads; the option is 25 ns for each pair.
    assert condition.tuples_per_s < plain.tuples_per_s
    expected = 1 / (1 / condition.tuples_per_s + 25e-9)
    assert cost.tuples_per_s == pytest.approx(expected)
    with pytest.raises(BudgetError) as refused:
        relation.explain(**asked | {"memory": 1})
    asked["memory"] = refused.value.least_bytes  # of the algorithm that needs least
    tiny = relation.explain(**asked, ordered="stream")
    assert "this budget is too small" in str(tiny)
    assert tiny.options[0].tuples_per_s == 0
    asked["memory"] = 600_000
    plain = relation.explain(**asked)
    ordered = relation.explain(**asked, ordered="stream")
    # Look-ups in about the memory that the results leave, and what each of these costs.
    waiting = ordered.options[0].memory_bytes
    assert 0.05 * 600_000 < waiting < 0.3 * 600_000
    less = relation.explain(memory=600_000 - waiting, sample=SAMPLE, columns=["v"])
    look_ups = next(r.tuples_per_s for r in less.ranking if r.algorithm == "lookup")
    expected = 1 / (1 / look_ups + IN_ORDER_S)
    assert ordered.options[0].tuples_per_s == pytest.approx(expected, rel=0.1)
    assert "wait for their turn" in str(ordered)
    rate = 4 * plain.tuples_per_s
    both = relation.explain(**asked, rate=rate, shed="keep-rare")
    assert "would keep 25% of the rows" in str(both)
    assert both.to_dict()["options"][0]["option"] == "shed"
    capacity = ss.shedding("uniform", capacity=rate / 2)
    assert "keep 50%" in str(relation.explain(**asked, rate=rate, shed=capacity))


def test_what_cannot_be_explained(relation: ss.Relation) -> None:
    with pytest.raises(OptionError, match="give a sample"):
        relation.explain(memory="1MB", condition="s.q >= r.least")
    with pytest.raises(OptionError, match="shed needs rate"):
        relation.explain(memory="1MB", shed="uniform")
    with pytest.raises(OptionError, match="Did you mean 'stream'"):
        relation.explain(memory="1MB", ordered="steam")


def test_the_command(
    relation: ss.Relation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sample.parquet"
    pq.write_table(SAMPLE, path)
    about = ["explain", relation.location, "--memory", "200KB", "--sample", str(path)]
    options = ["--condition", "s.q >= r.least", "--ordered", "stream", "--shed", "uniform"]
    assert main([*about, "--rate", "1e9", *options]) == 0
    said = capsys.readouterr().out
    assert all(text in said for text in ("The condition reads least", "Ordered output", "Shedding"))
    assert main([*about, "--ordered", "key", "--spark"]) == 2
    assert "leave --spark out" in capsys.readouterr().err
