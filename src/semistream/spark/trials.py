"""Real queries, timed: to measure what Spark's part costs, and to check predictions.

A trial is a streaming query over files with keys of R, a file for each task, joined by `enrich`
into Spark's no-op sink. Its time is the median of its micro-batches after the first ones, and of
several rounds the fastest: other programs only ever make a query slower.
"""

import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from semistream.advice.calibration import Calibration, usual_spec
from semistream.advice.calibration.sparkcosts import KnownCosts, common_costs
from semistream.advice.calibration.streams import KeyStream, sample_keys
from semistream.advice.explain_spark import SparkModel
from semistream.advice.question import Question
from semistream.cost.spark import Load, SparkCosts
from semistream.errors import OptionError
from semistream.relation.relation import Relation
from semistream.spark.enrichment import enrich
from semistream.spark.prediction import plan_query
from semistream.spark.routing import LOCAL, SHUFFLE
from semistream.spark.session import ended_by_interrupt, local_session

_BATCHES = 7  # of a query
_LEFT_OUT = 2  # the first of these
_SAMPLED_KEYS = 200_000
_SMALL, _LARGE = 2_000, 200_000  # rows of a micro-batch
_FEW_COLUMNS = 2
_MORE_TASKS = 4  # for each core
ROUNDS = 2
_LEAST_MEMORY, _SHARE = 64_000_000, 0.05
_FILES = "spark.sql.files.minPartitionNum"

Progress: TypeAlias = Callable[[int, int], None]  # trials done, trials in all


@dataclass(frozen=True, slots=True)
class Trial:
    """One query."""

    rows: int  # of a micro-batch
    routing: str
    memory: int
    columns: tuple[str, ...]  # of R, to add
    tasks: int  # that its rows arrive in


class Trials:
    """Runs queries over one relation in one session."""

    def __init__(self, session: SparkSession, relation: Relation, folder: Path) -> None:
        """Prepare; the streams will be files below `folder`."""
        self._session, self._relation, self._folder = session, relation, folder
        self.cores = session.sparkContext.defaultParallelism
        self._keys = sample_keys(relation, None, _SAMPLED_KEYS)
        self._fastest: dict[Trial, float] = {}  # seconds of a micro-batch

    def run(self, trials: Sequence[Trial], rounds: int = ROUNDS) -> Iterator[Trial]:
        """Run all trials, round after round; yield each after it was timed."""
        for _ in range(rounds):
            for trial in trials:
                time_s = self._time_s(trial)
                self._fastest[trial] = min(time_s, self._fastest.get(trial, time_s))
                yield trial

    def measured_s(self, trial: Trial) -> float:
        """Return the time of a micro-batch, in the fastest round."""
        return self._fastest[trial]

    def model(self, trial: Trial, known: KnownCosts, calibration: Calibration | None) -> SparkModel:
        """Return the model of a trial's query."""
        asked = Question.of(self._relation, columns=trial.columns, calibration=calibration)
        about = (trial.memory, self.cores, trial.tasks, trial.routing)
        return SparkModel(asked, plan_query(self._relation, asked.spec, *about), known)

    def usual(self) -> list[Trial]:
        """Return the trials of a calibration: each cost weighs much in one of them."""
        memory = max(_LEAST_MEMORY, int(_SHARE * self._relation.size_bytes))
        others = tuple(n for n in self._relation.schema.names if n not in self._relation.key)
        few, cores = others[:_FEW_COLUMNS], self.cores
        return [
            Trial(_SMALL, LOCAL, memory, few, cores),
            Trial(_SMALL, LOCAL, memory, few, _MORE_TASKS * cores),
            Trial(_LARGE, LOCAL, memory, few, cores),
            Trial(_LARGE, LOCAL, memory, others, cores),
            Trial(_SMALL, SHUFFLE, memory, few, cores),
            Trial(_LARGE, SHUFFLE, memory, few, cores),
        ]

    def costs(self, trials: Sequence[Trial], calibration: Calibration | None) -> KnownCosts:
        """Return the costs of Spark's part that explain the times of trials."""
        found: list[tuple[Load, float, float]] = []  # with the time of all, and of the join
        for trial in trials:
            model = self.model(trial, common_costs(), calibration)
            about = (model.load(trial.rows), self.measured_s(trial), model.join_s(trial.rows))
            found.append(about)
        costs = SparkCosts.fit([(load, all_s - join_s, all_s) for load, all_s, join_s in found])
        errors = [abs(costs.own_s(load) + join_s - all_s) / all_s for load, all_s, join_s in found]
        measured = datetime.now(UTC).isoformat(timespec="seconds")
        return KnownCosts(costs, socket.gethostname(), measured, float(np.median(errors)))

    def _time_s(self, trial: Trial) -> float:
        self._session.conf.set(_FILES, trial.tasks)
        joined = enrich(
            self._stream(trial),
            self._relation,
            columns=trial.columns,
            memory=trial.memory,
            routing=trial.routing,
            suffix="_r",
        )
        query = joined.writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination()
        times = [p.durationMs["triggerExecution"] for p in query.recentProgress if p.numInputRows]
        return median(times[_LEFT_OUT:]) / 1e3

    def _stream(self, trial: Trial) -> DataFrame:
        """Return the trial's micro-batches, a file for each task of each."""
        folder = self._folder / f"{trial.rows}-{trial.tasks}"
        if not folder.exists():
            folder.mkdir(parents=True)
            spec = usual_spec(self._relation, None)
            stream = KeyStream(spec, self._keys).endless(0.0, max(1, trial.rows // trial.tasks))
            for i, batch in enumerate(islice(stream, _BATCHES * trial.tasks)):
                pq.write_table(pa.Table.from_batches([batch]), folder / f"{i:05}.parquet")
        schema = self._session.read.parquet(str(folder)).schema
        reader = self._session.readStream.schema(schema)
        return reader.option("maxFilesPerTrigger", trial.tasks).parquet(str(folder))


def calibrate_spark(
    relation: Relation, calibration: Calibration | None = None, progress: Progress | None = None
) -> KnownCosts:
    """Measure the costs of Spark's part on this machine, with queries over a relation."""
    if not relation.row_count:
        raise OptionError(
            f"{relation.location} has no rows to run queries with; calibrate on one that has"
        )
    with TemporaryDirectory(prefix="semistream-calibrate-") as folder, ended_by_interrupt():
        session = local_session("semistream-calibrate", Path(folder), memory="2g")
        try:
            trials = Trials(session, relation, Path(folder) / "streams")
            usual = trials.usual()
            for done, _ in enumerate(trials.run(usual), 1):
                if progress is not None:
                    progress(done, ROUNDS * len(usual))
            return trials.costs(usual, calibration)
        finally:
            session.stop()
