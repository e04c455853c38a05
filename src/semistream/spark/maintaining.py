"""`maintain`: a streaming query that keeps a relation up to date from a stream of changes.

::

    Kafka ──► changes as columns ──► the last of each key ──► driver ──► upsert ──► new snapshot
              (executors)            (executors)              (Arrow)               + batch id

Every micro-batch becomes one snapshot. Its manifest notes the query and the number of the
micro-batch; a micro-batch that Spark replays after a failure finds its number there and is left
out, so every change is applied once. The query is told by the id in its checkpoint: with a new
checkpoint the stream is read anew, and that is another stream.

Values are taken out of JSON as texts and cast one by one. A text that does not fit its column ends
the query with an error that names the column: nothing is turned into a null in silence.

Memory: the driver holds the last changes of one micro-batch. Limit those of Kafka with the option
``maxOffsetsPerTrigger`` of the source.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType, StructField, StructType

from semistream.columns import Encoding, encoding_of
from semistream.embedded import open_relation
from semistream.errors import ColumnError, OptionError, WriteConflictError, did_you_mean
from semistream.relation import change
from semistream.relation.relation import Relation
from semistream.spark.keys import column
from semistream.spark.spreading import hashable_columns
from semistream.spark.types import spark_type

FORMATS = ("debezium", "key-value", "rows")
AVAILABLE_NOW = "available now"
_DELETED, _BAD, _ORDER = "__semistream_deleted", "__semistream_bad", "__semistream_order"
_UNAVAILABLE = "__debezium_unavailable_value"
_ATTEMPTS = 20
_UNITS = {"ms": 1_000, "us": 1_000_000}


def maintain(
    changes: DataFrame,
    relation: Relation | str | os.PathLike[str],
    *,
    checkpoint: str | os.PathLike[str],
    format: str = "debezium",  # noqa: A002 - the name that Spark uses as well
    deletes: str | None = None,
    order: str | None = None,
    timestamps: str = "us",
    trigger: str | None = None,
    compact_every: int = 100,
    name: str | None = None,
) -> StreamingQuery:
    """Start a streaming query that folds changes into a relation, exactly once; return it.

    `changes` is a stream from Kafka, whose messages are, by `format`, ``debezium`` (JSON with
    ``before``, ``after`` and ``op``) or ``key-value`` (the key, and the row as JSON; no value
    means deletion), or a stream of ``rows`` with the relation's columns, in which `deletes` names
    a column that marks deletions. Of several changes of a key in one micro-batch the last one
    counts, by Kafka's offset, or by the column `order`. `timestamps` is the unit, ``us`` or ``ms``,
    of those that come as numbers.

    Spark notes its progress in the folder `checkpoint`. `trigger` is the time between two
    micro-batches, such as ``10 seconds``, or ``available now`` to take what there is and end.
    After `compact_every` micro-batches the changes are folded into the relation's pages; 0: never.

    ::

        changes = spark.readStream.format("kafka").option("subscribe", "shop.products")…load()
        query = ss.maintain(changes, "products.rel", checkpoint="products.checkpoint")
    """
    if format not in FORMATS:
        raise OptionError(
            f"format must be one of {', '.join(FORMATS)}; got {format!r}."
            f"{did_you_mean(format, FORMATS)}"
        )
    if timestamps not in _UNITS:
        raise OptionError(f"timestamps must be 'us' or 'ms'; got {timestamps!r}")
    if not changes.isStreaming:
        raise OptionError(
            "maintain needs a streaming DataFrame (spark.readStream); use relation.upsert for a "
            "batch of changes"
        )
    opened = open_relation(relation)
    last = _last_of_each_key(_as_rows(changes, opened, format, deletes, order, timestamps), opened)
    folder = os.fspath(checkpoint)
    fold = Fold(opened.location, folder, compact_every)
    writer = last.writeStream.foreachBatch(fold).option("checkpointLocation", folder)
    if name is not None:
        writer = writer.queryName(name)
    if trigger == AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    elif trigger is not None:
        writer = writer.trigger(processingTime=trigger)
    return writer.start()


@dataclass
class Fold:
    """What is done with each micro-batch, on the driver."""

    location: str
    checkpoint: str
    compact_every: int
    _stream: str = field(default="", init=False)  # the query's id, once it is known
    _since_compacted: int = field(default=0, init=False)

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Fold a micro-batch in, unless that was done before."""
        if not self._stream:
            self._stream = query_id(batch, self.checkpoint)
        if self._is_folded(Relation.open(self.location), number):
            return
        self.apply(_checked(_keep_last(batch).toArrow()), number)

    def apply(self, changes: pa.Table, number: int) -> None:
        """Make the snapshot; start over if another writer was faster."""
        for attempt in range(_ATTEMPTS):
            current = Relation.open(self.location)
            if self._is_folded(current, number):
                return
            rows = changes.cast(
                pa.schema([*current.schema, pa.field(_DELETED, pa.bool_())]), safe=True
            )
            try:
                new = change.upsert(current, rows, _DELETED, folded=(self._stream, number))
                break
            except WriteConflictError:
                if attempt == _ATTEMPTS - 1:
                    raise
        self._compact(new)

    def _is_folded(self, current: Relation, number: int) -> bool:
        return dict(current.manifest.folded).get(self._stream, -1) >= number

    def _compact(self, new: Relation) -> None:
        self._since_compacted += 1
        if self.compact_every and self._since_compacted >= self.compact_every:
            try:
                change.compact(new)
            except WriteConflictError:
                return  # another writer was faster; the next micro-batch tries again
            self._since_compacted = 0


def query_id(batch: DataFrame, checkpoint: str) -> str:
    """Return the id that Spark gave the query when its checkpoint was made."""
    lines = batch.sparkSession.read.text(f"{checkpoint.rstrip('/')}/metadata").collect()
    return str(json.loads("".join(line[0] for line in lines))["id"])


def _as_rows(
    changes: DataFrame,
    relation: Relation,
    how: str,
    deletes: str | None,
    order: str | None,
    timestamps: str,
) -> DataFrame:
    """Return the relation's columns, whether the row is deleted, what is wrong, and the order."""
    if how == "rows":
        return _plain_rows(changes, relation, deletes, order)
    if deletes is not None or order is not None:
        raise OptionError("deletes and order are only for format='rows'")
    missing = [n for n in ("key", "value", "offset") if n not in changes.columns]
    if missing:
        raise ColumnError(
            f"format={how!r} needs the columns of Spark's Kafka source, but {missing[0]!r} is "
            "missing; pass the stream as it is loaded, or use format='rows'"
        )
    for f in relation.schema:
        if encoding_of(f.type) is Encoding.NESTED:
            raise ColumnError(
                f"column {f.name!r} has type {f.type}, which cannot be read from messages; parse "
                "them yourself and use format='rows'"
            )
    return _messages(changes, relation, how, timestamps)


def _plain_rows(
    changes: DataFrame, relation: Relation, deletes: str | None, order: str | None
) -> DataFrame:
    needed = [*relation.schema.names, *(n for n in (deletes, order) if n is not None)]
    for name in needed:
        if name not in changes.columns:
            raise ColumnError(
                f"the changes have no column {name!r}; they have {', '.join(changes.columns)}."
                f"{did_you_mean(name, changes.columns)}"
            )
    deleted = F.lit(False) if deletes is None else F.coalesce(column(deletes), F.lit(False))
    return changes.select(
        *(column(n) for n in relation.schema.names),
        deleted.alias(_DELETED),
        F.lit(None).cast("string").alias(_BAD),
        (F.lit(None).cast("long") if order is None else column(order)).alias(_ORDER),
    )


def _messages(changes: DataFrame, relation: Relation, how: str, timestamps: str) -> DataFrame:
    """Return the rows of messages: texts out of JSON, each cast to its column's type."""
    names = relation.schema.names
    row = StructType([StructField(n, StringType()) for n in names])
    key_row = StructType([StructField(n, StringType()) for n in relation.key])
    value, key = column("value").cast("string"), column("key").cast("string")
    has_value = value.isNotNull() & (F.trim(value) != "null")
    keyed = F.coalesce(
        *(F.from_json(key, s)[f] for s, f in ((_nested("payload", key_row), "payload"),)),
        F.from_json(key, key_row),
    )
    if how == "debezium":
        event = StructType(
            [StructField("before", row), StructField("after", row), StructField("op", StringType())]
        )
        read = F.from_json(value, event)
        inner = F.from_json(value, _nested("payload", event))["payload"]
        event_column = F.when(read["op"].isNotNull(), read).otherwise(inner)
        parsed = changes.select(
            column("offset").alias(_ORDER),
            event_column.alias("e"),
            keyed.alias("k"),
            has_value.alias("v"),
        )
        op = column("e")["op"]
        deleted = ~column("v") | (op == "d")
        is_known = ~column("v") | op.isin("c", "u", "r", "d")
        texts = {
            n: F.when(~deleted, column("e")["after"][n]).otherwise(
                F.coalesce(column("e")["before"][n], column("k")[n])
                if n in relation.key
                else F.lit(None)
            )
            for n in names
        }
        bad = F.when(
            ~F.coalesce(is_known, F.lit(False)),
            F.lit("a message is not Debezium's: it has no op of c, u, r or d"),
        )
        parsed = parsed.filter(F.coalesce(op, F.lit("")).isin("t", "m") == F.lit(False))
    else:
        lone = relation.key[0] if len(relation.key) == 1 else None
        is_object = F.trim(key).startswith("{")
        parsed = changes.select(
            column("offset").alias(_ORDER),
            F.from_json(value, row).alias("e"),
            keyed.alias("k"),
            key.alias("t"),
            is_object.alias("o"),
            has_value.alias("v"),
        )
        deleted = ~column("v")
        texts = {
            n: column("e")[n]
            if n not in relation.key
            else F.coalesce(
                column("k")[n],
                F.when(~column("o"), column("t")) if n == lone else F.lit(None),
                column("e")[n],
            )
            for n in names
        }
        bad = F.when(
            column("v") & column("e").isNull(), F.lit("the value of a message is not JSON")
        )
    return _cast_texts(parsed, relation, texts, deleted, bad, timestamps)


def _nested(name: str, inner: StructType) -> StructType:
    return StructType([StructField(name, inner)])


def _cast_texts(
    parsed: DataFrame,
    relation: Relation,
    texts: Mapping[str, Column],
    deleted: Column,
    bad: Column,
    timestamps: str,
) -> DataFrame:
    """Return each text in the type of its column, and what could not be cast."""
    problems, columns = [bad], []
    for f in relation.schema:
        text = texts[f.name]
        value = _value_of(text, f, timestamps)
        columns.append(value.alias(f.name))
        fails = text.isNotNull() & (value.isNull() | (text == _UNAVAILABLE))
        problem = f"a value of column {f.name!r} cannot be read as {f.type}"
        problems.append(F.when(fails, F.lit(problem)))
    problems += [
        F.when(texts[n].isNull(), F.lit(f"a message has no value of the key column {n!r}"))
        for n in relation.key
    ]
    return parsed.select(
        *columns,
        F.coalesce(deleted, F.lit(False)).alias(_DELETED),
        F.coalesce(*problems).alias(_BAD),
        column(_ORDER),
    )


def _value_of(text: Column, f: pa.Field, timestamps: str) -> Column:
    """Return a text as a value: Debezium's days and instants come as numbers, bytes in base 64."""
    kind = spark_type(f)
    is_number = text.rlike(r"^-?\d+$")
    if pa.types.is_date(f.type):
        days = F.date_add(F.lit("1970-01-01").cast("date"), text.try_cast("int"))
        return F.when(is_number, days).otherwise(text.try_cast("date"))
    if pa.types.is_timestamp(f.type):
        whole = text.try_cast("long") * (1 if timestamps == "us" else 1_000)
        instant = F.timestamp_micros(whole)
        if f.type.tz is None:
            instant = instant.cast("timestamp_ntz")
        return F.when(is_number, instant).otherwise(text.try_cast(kind))
    if pa.types.is_binary(f.type) or pa.types.is_large_binary(f.type):
        return F.try_to_binary(text, F.lit("base64"))
    return text.try_cast(kind)


def _last_of_each_key(rows: DataFrame, relation: Relation) -> DataFrame:
    """Note the key; which change is the last is decided within each micro-batch."""
    keys = F.struct(*(column(n) for n in relation.key))
    return rows.withColumn("__semistream_key", keys)


def _keep_last(batch: DataFrame) -> DataFrame:
    """Return the last change of each key, and every bad one; all of a key without an order.

    Of changes that are the last alike a deletion counts, or else one that depends on the rows
    alone: a micro-batch that is repeated keeps the same.
    """
    names = [n for n in batch.columns if n != "__semistream_key"]
    by_key = Window.partitionBy(column("__semistream_key"))
    ties = F.xxhash64(*hashable_columns(batch.select(*map(column, names))))
    falling = by_key.orderBy(column(_ORDER).desc_nulls_last(), column(_DELETED).desc(), ties)
    kept = (
        batch.withColumn("__semistream_last", F.max(column(_ORDER)).over(by_key))
        .withColumn("__semistream_place", F.row_number().over(falling))
        .filter(
            column(_BAD).isNotNull()
            | column("__semistream_last").isNull()
            | (column("__semistream_place") == 1)
        )
    )
    return kept.select(*(column(n) for n in names))


def _checked(changes: pa.Table) -> pa.Table:
    """Return the changes without the inner columns; raise if one of them is bad."""
    bad = changes.column(_BAD).drop_null()
    if len(bad):
        raise ColumnError(
            f"{bad[0].as_py()} ({len(bad)} such messages in this micro-batch). Debezium: set "
            "decimal.handling.mode=string and binary.handling.mode=base64; timestamps='ms' if "
            "they are milliseconds"
        )
    return changes.drop_columns([_BAD, _ORDER])
