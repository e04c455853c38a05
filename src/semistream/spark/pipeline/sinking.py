"""The sinks of a pipeline: what is done with the rows of a micro-batch, and how often.

============  ==================================================================================
parquet       a folder ``batch=N``, overwritten if the micro-batch is repeated: exactly once
delta         one commit, which notes the micro-batch: exactly once
sql           one transaction with its marker in the same database: exactly once
kafka         sent again if the micro-batch is repeated: at least once
============  ==================================================================================

Delta tables and databases are written by one task, so that there is one commit; the rows stream
through it. Its retries and speculative copies find the micro-batch done.
"""

import json
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from semistream.databases.writing import TableTarget
from semistream.pipeline.model import Pipeline
from semistream.pipeline.parts import DeltaSink, KafkaSink, ParquetSink, Sink, SqlSink
from semistream.pipeline.secrets import Secrets
from semistream.spark.keys import column
from semistream.spark.pipeline.hidden import HEADERS, KEY, shown
from semistream.spark.pipeline.onetask import Target, write_by_one_task
from semistream.spark.transforms import check_columns
from semistream.tables import DeltaTarget

BATCH = "batch"


@dataclass(frozen=True)
class Output:
    """A sink of a pipeline, ready to be written to."""

    sink: Sink
    pipeline: Pipeline
    secrets: Secrets

    def check(self, rows: DataFrame) -> None:
        """Raise what can be known before the first micro-batch."""
        if isinstance(self.sink, SqlSink):
            TableTarget(self.sink.url, self.sink.table).check()
        if isinstance(self.sink, ParquetSink | DeltaSink):
            check_columns(rows, self.sink.partition_by)
        if isinstance(self.sink, KafkaSink) and self.sink.key is not None:
            check_columns(rows, [self.sink.key])

    def write(self, rows: DataFrame, stream: str, number: int) -> None:
        """Write a micro-batch; rows have the user's columns and maybe the hidden ones."""
        sink = self.sink
        if isinstance(sink, ParquetSink):
            place = f"{self.pipeline.place(sink.path).rstrip('/')}/{BATCH}={number}"
            writer = rows.select(*shown(rows)).write.mode("overwrite").format("parquet")
            writer = writer.options(**self.secrets.texts(sink.options))
            writer.partitionBy(*sink.partition_by).save(place)
        elif isinstance(sink, KafkaSink):
            given = {
                "kafka.bootstrap.servers": sink.servers,
                "topic": sink.topic,
                "includeHeaders": True,
                **sink.options,
            }
            writer = _messages(rows, sink).write.format("kafka")
            writer.options(**self.secrets.texts(given)).save()
        else:
            write_by_one_task(rows.select(*shown(rows)), self._target(), stream, number)

    def _target(self) -> Target:
        sink = self.sink
        if isinstance(sink, SqlSink):
            return TableTarget(sink.url, sink.table, sink.create)
        assert isinstance(sink, DeltaSink)
        options = tuple(self.secrets.texts(sink.options).items())
        return DeltaTarget(self.pipeline.place(sink.path), tuple(sink.partition_by), options)


def _messages(rows: DataFrame, sink: KafkaSink) -> DataFrame:
    """Return rows as messages: key, value, and the headers that they came with."""
    row = F.struct(*shown(rows))
    if sink.value == "avro":
        from pyspark.sql.avro.functions import to_avro

        given = sink.schema_
        schema = given if given is None or isinstance(given, str) else json.dumps(given)
        value: Column = to_avro(row) if schema is None else to_avro(row, schema)
    else:
        value = F.to_json(row, {"ignoreNullFields": "false"})
    columns = [value.alias("value")]
    if sink.key is not None:
        columns.append(column(sink.key).cast("string").alias("key"))
    elif KEY in rows.columns:
        columns.append(column(KEY).alias("key"))
    if sink.headers and HEADERS in rows.columns:
        columns.append(column(HEADERS).alias("headers"))
    return rows.select(*columns)
