"""`surrogate_key`: the keys of many sources become one warehouse key; keys never seen enter R.

::

    micro-batch ── its keys ── anti ⋈ R ──► new keys ── numbered on ──► upsert ──► R'
         └────────────────────────────── ⋈ R' ──► rows with the warehouse key

R maps the key of a source, such as (source, product code), to the warehouse key. The driver numbers
the new keys of a micro-batch in their order, after the last number that was given; that number is
in the manifest of the snapshot that the upsert publishes, so rows and number change together. If
another writer is faster, the upsert is refused, and the keys are looked up again in what it made.
So a key gets one number, however many queries, tasks and retries there are: a micro-batch that is
repeated finds the keys it has numbered before.

Memory: the driver holds the new keys of one micro-batch.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from semistream.columns import plain_schema
from semistream.embedded import JoinOptions, join, open_relation
from semistream.errors import ColumnError, OptionError, WriteConflictError, did_you_mean
from semistream.relation import change
from semistream.relation.relation import Relation
from semistream.spark.enrichment import enrich
from semistream.spark.keys import column
from semistream.spark.transforms import check_columns
from semistream.spark.types import arrow_schema
from semistream.spec import On

_ATTEMPTS = 50
_STREAM = "surrogate keys in "  # what the manifest notes the last number under
_SCAN_MEMORY = "16MB"


def surrogate_key(
    rows: DataFrame,
    relation: Relation | str | os.PathLike[str],
    *,
    to: str,
    on: On | None = None,
    columns: Sequence[str] = (),
    reason: str | None = None,
    **options: Any,
) -> DataFrame:
    """Return a micro-batch with the warehouse key of each row; keys never seen get the next one.

    `relation` has the keys of the sources as its key, and the warehouse key, an integer, in the
    column `to`. New keys enter it by an upsert, with the values of `columns` of the first row that
    has them; its other columns are null. Rows without a key get none. `on`, `reason` and
    the `options` are those of `enrich`. Call it once for each micro-batch, in ``foreachBatch`` or
    as the step ``surrogate_key`` of a pipeline.
    """
    if rows.isStreaming:
        raise OptionError(
            "surrogate_key assigns keys by micro-batches: call it in foreachBatch, or use the step "
            "surrogate_key of a pipeline"
        )
    opened = open_relation(relation)
    _check(opened, to, columns)
    check_columns(rows, columns)
    spec = JoinOptions(on, "left", [to]).spec(opened, arrow_schema(rows.schema))
    keyed = [column(s).alias(r) for s, r in zip(spec.stream_key, opened.key, strict=True)]
    sound = rows if reason is None else rows.filter(column(reason).isNull())
    keys = sound.select(*keyed, *(column(n) for n in columns if n not in opened.key))
    keys = keys.dropna(subset=list(opened.key)).dropDuplicates(list(opened.key)).persist()
    try:
        current = number_new_keys(
            opened.location,
            to,
            lambda snapshot: enrich(keys, snapshot, how="anti", **options).toArrow(),
        )
    finally:
        keys.unpersist()
    return enrich(rows, current, on=on, columns=[to], reason=reason, **options)


def number_new_keys(location: str, to: str, lacking: Callable[[Relation], pa.Table]) -> Relation:
    """Number the keys that R lacks; return R at the snapshot that has them all.

    `lacking` returns the keys that a snapshot does not have, each once.
    """
    for attempt in range(_ATTEMPTS):
        snapshot = Relation.open(location).snapshot
        current = Relation.open(location, snapshot)  # fixed: what a micro-batch has pinned is older
        new = lacking(current)
        if not new.num_rows:
            return current
        try:
            made = _add(current, new, to)
            return Relation.open(location, made.snapshot)
        except WriteConflictError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _add(current: Relation, new: pa.Table, to: str) -> Relation:
    """Publish a snapshot in which new keys have the next numbers, in the order of the keys."""
    stream = _STREAM + to
    noted = dict(current.manifest.folded)
    last = noted[stream] if stream in noted else _greatest(current, to)
    new = new.sort_by([(name, "ascending") for name in current.key])
    numbers = pa.array(np.arange(last + 1, last + 1 + new.num_rows))
    arrays = []
    for field in plain_schema(current.schema):
        if field.name == to:
            arrays.append(numbers.cast(field.type))
        elif field.name in new.column_names:
            arrays.append(new.column(field.name).cast(field.type))
        else:
            arrays.append(pa.nulls(new.num_rows, field.type))
    rows = pa.Table.from_arrays(arrays, schema=plain_schema(current.schema))
    return change.upsert(current, rows, folded=(stream, last + new.num_rows))


def _greatest(current: Relation, to: str) -> int:
    """Return the greatest warehouse key in R, 0 without any, by one pass over it."""
    least = pa.table({"least": pa.array([-(2**62)], pa.int64())})
    every = join(
        least,
        current,
        on=[],
        how="inner",
        columns={to: "number"},
        condition=f"r.{to} >= s.least",
        memory=_SCAN_MEMORY,
    )
    found = [pc.max(batch.column("number")).as_py() for batch in every if batch.num_rows]
    return max((int(number) for number in found if number is not None), default=0)


def _check(relation: Relation, to: str, columns: Sequence[str]) -> None:
    names = relation.schema.names
    for name in (to, *columns):
        if name not in names:
            raise ColumnError(
                f"the relation has no column {name!r}; it has {', '.join(names)}."
                f"{did_you_mean(name, names)}"
            )
    if to in relation.key:
        raise ColumnError(f"{to!r} is a key column of the relation; the warehouse key is another")
    if not pa.types.is_integer(relation.schema.field(to).type):
        raise ColumnError(
            f"the warehouse key {to!r} is {relation.schema.field(to).type}; it must be an integer"
        )
