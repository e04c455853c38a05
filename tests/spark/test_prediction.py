"""`explain` for a query on Spark: the plan is that of `enrich`, and the figures add up."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import semistream as ss
from semistream.advice.calibration import usual_spec
from semistream.advice.calibration.sparkcosts import KnownCosts, known_costs, store_costs
from semistream.cli import bench_spark
from semistream.cli.main import main
from semistream.cost.spark import SparkCosts
from semistream.errors import BudgetError, OptionError
from semistream.spark.prediction import plan_query
from semistream.spark.trials import Trial, Trials

ROWS = 40_000
FREE = SparkCosts(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMISTREAM_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    table = pa.table({"k": np.arange(ROWS), "a": np.arange(ROWS), "b": ["text"] * ROWS})
    place = tmp_path_factory.mktemp("prediction") / "r.rel"
    return ss.build_relation(table, place, key="k", partitions=8, page_size="8KiB")


def test_the_plan_is_that_of_enrich(spark: SparkSession, relation: ss.Relation) -> None:
    stream = spark.range(10).selectExpr("id as k")
    spec = usual_spec(relation, None)
    for memory, routing in (("8MB", "auto"), ("8MB", "shuffle"), ("1MB", "auto")):
        planned = plan_query(relation, spec, memory, 2, None, routing)
        joined = ss.enrich(stream, relation, memory=memory, routing=routing)
        plan = str(joined._jdf.queryExecution().executedPlan())  # type: ignore[operator]
        assert ("Exchange" not in plan) == planned.is_local
        assert planned.tasks == (2 if planned.is_local else 8)
        assert planned.task_bytes <= planned.memory_bytes // 2
    with pytest.raises(BudgetError, match="the total for all 2 tasks"):
        plan_query(relation, spec, "10KB", 2)
    with pytest.raises(OptionError, match="cores must be at least 1"):
        plan_query(relation, spec, "1MB", 0)


def test_figures_add_up(relation: ss.Relation) -> None:
    said = relation.explain_spark(memory="700KB", cores=2, batch=20_000, rate=30_000)
    chosen = next(row for row in said.ranking if row.algorithm == said.algorithm)
    assert (said.time_s, said.rows_per_s) == (chosen.time_s, chosen.rows_per_s)
    assert said.rows_per_s == pytest.approx(20_000 / said.time_s)
    times = [row.time_s for row in said.ranking]
    assert times == sorted(times)
    own = {round(row.time_s - row.join_s, 9) for row in said.ranking}
    assert len(own) == 1
    assert own.pop() > 0
    assert list(said.other_batches) == [2_000, 200_000]
    assert said.other_batches[2_000] < said.rows_per_s
    text = str(said)
    assert len([line for line in text.splitlines() if line.startswith("Assumed: 2 cores")]) == 1
    assert " 0 rows/s" not in text
    assert "a common machine" in text
    assert json.loads(json.dumps(said.to_dict()))["algorithm"] == said.algorithm
    more = relation.explain_spark(memory="700KB", cores=2, tasks=8, batch=20_000)
    if more.plan.is_local:
        assert more.plan.tasks == 8


def test_more_cores_and_larger_micro_batches_deliver_more(relation: ss.Relation) -> None:
    rates = [
        relation.explain_spark(memory="8MB", cores=cores, batch=1_000_000).rows_per_s
        for cores in (1, 2, 4)
    ]
    assert rates == sorted(rates)
    said = relation.explain_spark(memory="8MB", cores=2, rate=20_000)
    assert said.batch_rows == 20_000
    assert said.least_batch_rows is not None
    assert relation.explain_spark(memory="8MB", cores=1, rate=1e9).least_batch_rows is None


def test_stored_costs_are_used(relation: ss.Relation) -> None:
    before = relation.explain_spark(memory="8MB", cores=2)
    store_costs(KnownCosts(FREE, "here", "2026-01-01", 0.1))
    assert known_costs().costs == FREE
    after = relation.explain_spark(memory="8MB", cores=2)
    assert after.time_s < before.time_s
    assert "measured 2026-01-01 on here, typical error 10%" in str(after)


def test_the_command(relation: ss.Relation, capsys: pytest.CaptureFixture[str]) -> None:
    place = relation.location
    asked = ["explain", place, "--memory", "8MB", "--spark", "--cores", "4", "--batch", "5000"]
    assert main(asked) == 0
    assert "Assumed: 4 cores" in capsys.readouterr().out
    assert main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["batch_rows"] == 5_000
    assert main(["explain", place, "--cores", "4"]) == 2
    assert "add --spark" in capsys.readouterr().err
    assert main([*asked, "--plot", "x.png"]) == 2
    assert "leave --spark out" in capsys.readouterr().err


def test_trials_run_real_queries_and_explain_them(
    spark: SparkSession, relation: ss.Relation, tmp_path: Path
) -> None:
    files = spark.conf.get("spark.sql.files.minPartitionNum", None)
    trials = Trials(spark, relation, tmp_path)
    asked = [
        Trial(rows, routing, 8_000_000, ("a", "b"), 2)
        for rows, routing in ((200, "local"), (5_000, "local"), (5_000, "shuffle"))
    ]
    assert [trial.rows for trial in trials.run(asked, 1)] == [200, 5_000, 5_000]
    known = trials.costs(asked, None)
    for trial in asked:
        predicted_s = trials.model(trial, known, None).time_s(trial.rows)
        assert predicted_s == pytest.approx(trials.measured_s(trial), rel=0.5)
    if files is None:
        spark.conf.unset("spark.sql.files.minPartitionNum")


def test_the_table_of_the_validation() -> None:
    trial = Trial(1_000, "local", 8_000_000, ("a",), 2)
    checked = [bench_spark.Checked("texts", trial, p, 1.0) for p in (1.1, 0.8, 1.0)]
    lines = list(bench_spark._table(KnownCosts(FREE, "here", "now", 0.1), checked))
    assert lines[4] == "| texts | 1,000 | local | 1 | 8 MB | 1,100 ms | 1,000 ms | +10% |"
    assert "Median error 10.0% (goal: at most 15%), 100% within 25 %, worst 20%." in lines[7]
