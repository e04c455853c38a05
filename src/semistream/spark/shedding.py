"""Shedding on Spark: rows are shed where they arrive, before they move to the task that joins them.

::

    df ── each row: a number in 0 … 1 ── weight, null if it is shed ── observe ── filter ── enrich
                                                    └ filter ── weight 0, beside the joined rows

The share of the rows that is kept is fixed when the plan is built: what can be served, divided by
the `rate` of the stream. It does not depend on how long anything takes, and the number of a row is
a hash of its columns and the time of its micro-batch, which Spark keeps in the checkpoint. So a
micro-batch that is repeated sheds the same rows. Rows of one micro-batch that are equal in all
columns are kept or shed together.

With ``uniform`` all of this is a Spark expression. ``keep-rare`` counts keys in a Python worker, in
the order in which the rows of a task arrive; its probabilities are the same again if that order is,
as it is when rows come straight from files or from Kafka.

Memory: the sketch that counts keys is a part of the memory of each task.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DoubleType, StructField, StructType

from semistream.advice.auto import AUTO
from semistream.advice.shed import shed_text
from semistream.errors import OptionError
from semistream.joins.shedding import KEEP_RARE, KeepRare, Shedding
from semistream.relation.relation import Relation
from semistream.spark.keys import code_expression, column
from semistream.spark.metrics import observe_as
from semistream.spark.prediction import model_of
from semistream.spark.routing import Route
from semistream.spark.spreading import hashable_columns
from semistream.spec import JoinSpec

_SKETCH_FOR_BYTES = 8 << 20  # the sketch is that of a budget of this size
_NUMBER, _CODE = "__semistream_number", "__semistream_code"
SHED_SUFFIX = ":shed"  # of the name of the metrics


@dataclass(frozen=True, slots=True)
class Thinned:
    """A stream of which a part is shed."""

    kept: DataFrame  # with a column of weights
    shed: DataFrame | None  # the other rows, with the weight 0; None if they are not asked for


def sketch_bytes(shed: Shedding) -> int:
    """Return what shedding takes of each task's memory."""
    return KeepRare.bytes_within(_SKETCH_FOR_BYTES) if shed.policy == KEEP_RARE else 0


def check_aside(shed: Shedding) -> None:
    """Raise if rows are to be kept aside in a way that Spark has not."""
    if callable(shed.aside):
        raise OptionError(
            "in enrich, aside is True or False: with True the rows that are shed are part of the "
            "output, with the weight 0. A function would run in the workers"
        )


def served_rate(
    shed: Shedding, algorithm: str, relation: Relation, spec: JoinSpec, route: Route, rate: float
) -> float:
    """Return the rows per second that can be served: as given, or as the model predicts.

    That is for micro-batches with the rows of a second, and for keys that are requested equally
    often, because nothing is known of the stream when the plan is built.
    """
    if shed.capacity is not None:
        return shed.capacity
    if not spec.stream_key:
        raise OptionError(
            "there is no prediction for a join with on=[]; give the rows per second that it can "
            f"serve: shed=semistream.shedding({shed.policy!r}, capacity=…)"
        )
    model, rows = model_of(relation, spec, route), max(1, round(rate))
    if algorithm == AUTO:
        return model.rows_per_s(rows)
    _, ranking = model.ranking(rows)
    found = [row.rows_per_s for row in ranking if row.algorithm == algorithm]
    return found[0] if found else model.rows_per_s(rows)


def thin(
    stream: DataFrame,
    relation: Relation,
    spec: JoinSpec,
    shed: Shedding,
    rate: float,
    served: float,
    name: str | None,
    reason: str | None = None,
) -> Thinned:
    """Return the rows of a stream that are kept, each with its weight, and those that are not.

    Rows that have a `reason` not to be joined are all kept.
    """
    weight = column(shed.weight)
    if served >= rate:
        kept = stream.withColumn(shed.weight, F.lit(1.0))
        return Thinned(kept, None)
    warnings.warn(shed_text(rate, served, shed.policy), stacklevel=3)
    weighted = _weighted(stream, relation, spec, shed, served / rate)
    if reason is not None:
        always = F.when(column(reason).isNotNull(), F.lit(1.0)).otherwise(weight)
        weighted = weighted.withColumn(shed.weight, always)
    is_shed = weight.isNull().cast("long")
    metrics = [F.count(F.lit(1)).alias("stream_rows"), F.sum(is_shed).alias("shed_rows")]
    observed = observe_as(weighted, relation, name, metrics, SHED_SUFFIX)
    others = None
    if shed.aside:
        others = weighted.filter(weight.isNull()).withColumn(shed.weight, F.lit(0.0))
    return Thinned(observed.filter(weight.isNotNull()), others)


def _weighted(
    stream: DataFrame, relation: Relation, spec: JoinSpec, shed: Shedding, share: float
) -> DataFrame:
    """Return the stream with a column of weights, which is null where a row is shed."""
    number = _number(stream, shed.seed)
    if shed.policy != KEEP_RARE:
        return stream.withColumn(shed.weight, F.when(number < share, F.lit(1 / share)))
    names = stream.columns
    numbered = [f"c{i}" for i in range(len(names))]
    code = F.coalesce(code_expression(relation.coder, spec.stream_key), F.lit(0))
    fields = [
        StructField(new, field.dataType, field.nullable)
        for new, field in zip(numbered, stream.schema.fields, strict=True)
    ]
    schema = StructType([*fields, StructField("weight", DoubleType())])
    prepared = stream.withColumn(_CODE, code).withColumn(_NUMBER, number)
    weighted = prepared.toDF(*numbered, _CODE, _NUMBER).mapInArrow(_KeepRareTask(share), schema)
    return weighted.toDF(*names, shed.weight)


def _number(stream: DataFrame, seed: int) -> Column:
    """Return the number in 0 … 1 that decides on a row."""
    # In a streaming query this is the time of the micro-batch, also when that is repeated.
    times = [F.current_timestamp()] if stream.isStreaming else []
    code = F.xxhash64(F.lit(seed), *times, *hashable_columns(stream))
    return F.shiftrightunsigned(code, 11).cast("double") * F.lit(2.0**-53)


@dataclass(frozen=True)
class _KeepRareTask:
    """The function of a Python worker: adds the weights; the last columns are code and number."""

    share: float

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        thinning = KeepRare(_SKETCH_FOR_BYTES)
        for batch in batches:
            *columns, codes, numbers = batch.columns
            weights = thinning.weights(numbers.to_numpy(), codes.to_numpy(), self.share)
            fields = [*list(batch.schema)[: len(columns)], pa.field("weight", pa.float64())]
            kept = pa.array(weights, mask=np.equal(weights, 0))
            yield pa.RecordBatch.from_arrays([*columns, kept], schema=pa.schema(fields))
