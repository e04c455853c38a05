"""Runs a pipeline: one streaming query from its source to its sinks.

::

    source ── parse ── steps ──► micro-batch ── other steps ──┬──► sink
    (streaming plan)             (foreachBatch)               └──► dead letters, counted
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from semistream.errors import DeadLetterError, PipelineError, SemistreamError
from semistream.extras import needs_extra
from semistream.pipeline.model import AVAILABLE_NOW, Pipeline
from semistream.pipeline.secrets import Secrets
from semistream.spark.failures import raised_as_ours, said_by
from semistream.spark.following import read_another_later
from semistream.spark.holding import releasing_holds
from semistream.spark.keys import column
from semistream.spark.maintaining import query_id
from semistream.spark.missing import STATE_SETTINGS
from semistream.spark.pipeline.hidden import ORIGIN, RAW, REASON, shown
from semistream.spark.pipeline.sinking import Output
from semistream.spark.pipeline.sourcing import read_source
from semistream.spark.pipeline.stepping import Steps
from semistream.spark.pipeline.stopping import Gate, StoppedError, wait_for
from semistream.spark.workers import configure_spark

if TYPE_CHECKING:
    from semistream.spark.exporting import MetricsServer

METRICS = "semistream:dead_letters"  # what Spark's progress reports of rows and dead letters
_QUIET = {"spark.ui.showConsoleProgress": False}  # unless the configuration says otherwise
_LOG = logging.getLogger(__name__)


def run_pipeline(
    pipeline: Pipeline | str | os.PathLike[str], *, spark: SparkSession | None = None
) -> StreamingQuery:
    """Run a pipeline, or the one in a file, until it ends; SIGTERM ends it in order.

    The micro-batch that runs when the signal comes is finished; the next start goes on after it.
    Without `spark` a session is made with the pipeline's configuration and the packages that it
    needs, and stopped at the end. Returns the query, which has ended.

    ::

        ss.run_pipeline("pipeline.yml")
    """
    made = _made(pipeline)
    secrets = made.secrets()
    made.check_source()
    own = spark is None
    session = pipeline_session(made, secrets) if spark is None else spark
    server = _metrics_server(made, session)
    try:
        batches = Batches(Plan.of(made, session), Gate())
        query = batches.start()
        with _explained(batches), raised_as_ours():
            wait_for(query, batches.gate)
            if batches.failure is not None:  # of the micro-batch that ran when the stop came
                raise batches.failure
        return query
    finally:
        if server is not None:
            server.close()
        if own:
            session.stop()


def _metrics_server(pipeline: Pipeline, session: SparkSession) -> "MetricsServer | None":
    """Serve the metrics, if the pipeline says where."""
    if pipeline.metrics_port is None:
        return None
    with needs_extra("metrics", "metrics_port"):
        from semistream.spark.exporting import serve_metrics
    return serve_metrics(session, pipeline.metrics_port)


def start_pipeline(
    pipeline: Pipeline | str | os.PathLike[str], *, spark: SparkSession
) -> StreamingQuery:
    """Start a pipeline and return its query, for programs that wait for several of them."""
    return Batches(Plan.of(_made(pipeline), spark), Gate()).start()


def pipeline_session(pipeline: Pipeline, secrets: Secrets) -> SparkSession:
    """Return a Spark session with a pipeline's configuration, and packages for what it uses."""
    builder = SparkSession.Builder().appName(pipeline.name)
    usual = {**_QUIET, **(STATE_SETTINGS if pipeline.holds_rows else {})}
    for name, value in secrets.texts({**usual, **pipeline.configuration}).items():
        builder = builder.config(name, value)
    return configure_spark(builder, uses=pipeline.packages).getOrCreate()


@dataclass(frozen=True)
class Plan:
    """A pipeline with its streaming plan, checked as far as it can be without a row."""

    pipeline: Pipeline
    secrets: Secrets
    steps: Steps
    rows: DataFrame  # at the end of the streaming plan
    sink: Output
    dead_letters: Output

    @classmethod
    def of(cls, pipeline: Pipeline, spark: SparkSession) -> "Plan":
        """Make the plan; nothing is started."""
        secrets = pipeline.secrets()
        steps = Steps(pipeline)
        try:
            rows = steps.apply(read_source(spark, pipeline, secrets), steps.streaming())
        except AnalysisException as error:
            raise PipelineError(secrets.hidden(said_by(error))) from None
        rows = rows.observe(
            METRICS,
            F.count(F.lit(1)).alias("rows"),
            F.count(column(REASON)).alias("dead_letters"),
        )
        outputs = [
            Output(sink, pipeline, secrets) for sink in (pipeline.sink, pipeline.dead_letter_sink)
        ]
        if not steps.of_a_batch():
            outputs[0].check(rows)
        return cls(pipeline, secrets, steps, rows, *outputs)


@dataclass
class Batches:
    """What is done with each micro-batch, on the driver."""

    plan: Plan
    gate: Gate
    failure: Exception | None = field(default=None, init=False)  # what ended the query
    _stream: str = field(default="", init=False)  # the query's id, once it is known

    def start(self) -> StreamingQuery:
        """Start the query."""
        pipeline = self.plan.pipeline
        writer = self.plan.rows.writeStream.foreachBatch(self).queryName(pipeline.name)
        writer = writer.option("checkpointLocation", pipeline.checkpoint_place)
        if pipeline.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        elif pipeline.trigger is not None:
            writer = writer.trigger(processingTime=pipeline.trigger)
        return writer.start()

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write a micro-batch to the sinks."""
        with self.gate.inside(number) as may_run:
            if not may_run:
                raise StoppedError(f"micro-batch {number} came after the stop; nothing is written")
            if not self._stream:
                self._stream = query_id(batch, self.plan.pipeline.checkpoint_place)
            try:
                with releasing_holds(), raised_as_ours():
                    self._write(batch, number)
            except Exception as error:
                self.failure = error
                raise

    def _write(self, batch: DataFrame, number: int) -> None:
        plan = self.plan
        kept: list[DataFrame] = [batch.persist()]
        try:
            rows = plan.steps.apply(batch, plan.steps.of_a_batch())
            if rows is not batch:
                kept.append(rows.persist())
            counted = rows.agg(F.count(F.lit(1)), F.count(column(REASON))).first()
            assert counted is not None, "an aggregate has a row"
            total, dead = int(counted[0]), int(counted[1])
            if dead:
                letters = dead_letters(rows.filter(column(REASON).isNotNull()))
                plan.dead_letters.write(letters, f"{self._stream} dead letters", number)
                _LOG.warning("micro-batch %s: %s of %s rows are dead letters", number, dead, total)
            self._check_share(dead, total, number)
            if total > dead:
                sound = rows.filter(column(REASON).isNull()).drop(REASON, ORIGIN, RAW)
                plan.sink.write(sound, self._stream, number)
        finally:
            for frame in reversed(kept):
                frame.unpersist()

    def _check_share(self, dead: int, total: int, number: int) -> None:
        limits = self.plan.pipeline.dead_letters
        if total >= limits.least_rows and dead > limits.share * total:
            where = self.plan.pipeline.dead_letter_sink
            # So that it finds keys that a refresh brings.
            for relation in self.plan.steps.relations:
                read_another_later(relation, self._stream, number)
            place = getattr(where, "path", None) or getattr(where, "topic", None) or where.table  # type: ignore[union-attr]
            raise DeadLetterError(
                f"{dead} of {total} rows of micro-batch {number} are dead letters, more than the "
                f"limit of {limits.share:.0%}. They are in {place!r} with their reasons; nothing "
                "else of the micro-batch was written. Correct the cause (refresh the relation if "
                "it lacks keys), or raise dead_letters.limit, and start again: it is repeated"
            )


def dead_letters(rows: DataFrame) -> DataFrame:
    """Return dead letters: why, from where, when, and what came."""
    row = F.to_json(F.struct(*shown(rows)))
    keys = [column(n) for n in rows.columns if n in ("__semistream_key", "__semistream_headers")]
    return rows.select(
        column(REASON).alias("reason"),
        column(ORIGIN).alias("source"),
        F.current_timestamp().alias("time"),
        F.coalesce(column(RAW), row).alias("value"),
        *keys,
    )


@contextmanager
def _explained(batches: Batches) -> Iterator[None]:
    """Let what ended a query be raised as what it is, without what Spark puts around it."""
    try:
        yield
    except PySparkException as error:
        if isinstance(batches.failure, SemistreamError):
            raise batches.failure from None
        cause = batches.failure or error
        raise PipelineError(batches.plan.secrets.hidden(said_by(cause))) from None


def _made(pipeline: Pipeline | str | os.PathLike[str]) -> Pipeline:
    return pipeline if isinstance(pipeline, Pipeline) else Pipeline.read(pipeline)
