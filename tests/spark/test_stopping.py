"""The orderly stop of a pipeline, at the moments that a real signal seldom meets."""

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import semistream as ss
from semistream.errors import OptionError
from semistream.spark.pipeline.running import Batches
from semistream.spark.pipeline.stopping import Gate, StoppedError


class Query:
    """A query of which Spark has noted nothing yet."""

    isActive = True  # noqa: N815

    def __init__(self) -> None:
        self.stopped = 0
        self.asked = 0

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        """Spark notes micro-batch 4 only when it is asked for the third time."""
        self.asked += 1
        return None if self.asked < 3 else type("Progress", (), {"batchId": 4})

    def stop(self) -> None:
        assert self.asked >= 3, "stopped before Spark has noted that the micro-batch has ended"
        self.stopped += 1


def test_a_micro_batch_after_the_stop_fails_so_that_spark_does_not_note_it() -> None:
    gate, query = Gate(), Query()
    with gate.inside(4) as may_run:
        assert may_run
        gate.close()
    gate.stop(query)  # type: ignore[arg-type]
    assert query.stopped == 1
    with pytest.raises(StoppedError, match="micro-batch 5"):
        Batches(None, gate)(None, 5)  # type: ignore[arg-type]


def test_the_micro_batch_that_runs_ends_before_the_query_is_stopped() -> None:
    gate, query, entered, leave = Gate(), Query(), threading.Event(), threading.Event()
    order: list[str] = []

    def run() -> None:
        with gate.inside(4):
            entered.set()
            assert leave.wait(60)
            order.append("the micro-batch has ended")

    def stop() -> None:
        gate.stop(query)  # type: ignore[arg-type]
        order.append("the query is stopped")

    threads = [threading.Thread(target=run), threading.Thread(target=stop)]
    threads[0].start()
    assert entered.wait(60)
    gate.close()
    threads[1].start()
    threads[1].join(0.5)  # it must still wait
    leave.set()
    for thread in threads:
        thread.join(60)
    assert order == ["the micro-batch has ended", "the query is stopped"]


def test_a_micro_batch_that_fails_while_it_is_stopped_is_reported(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop is asked for in the middle of the micro-batch, which then fails."""

    def fail(batches: Batches, *_: object) -> None:
        batches.gate.close()
        raise OptionError("the sink is gone")

    monkeypatch.setattr(Batches, "_write", fail)
    pipeline = ss.Pipeline(
        name="failing",
        storage=str(tmp_path / "storage"),
        source={"format": "rate", "rows_per_second": 50},
        sink={"format": "parquet", "path": str(tmp_path / "out")},
    )
    with pytest.raises(OptionError, match="the sink is gone"):
        ss.run_pipeline(pipeline, spark=spark)
