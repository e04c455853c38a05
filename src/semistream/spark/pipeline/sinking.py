"""The sinks of a pipeline: what is done with the rows of a micro-batch, and how often.

============  ==================================================================================
parquet       a folder ``batch=N``, overwritten if the micro-batch is repeated: exactly once. It
              belongs to one stream, whose id is beside these folders: another one would overwrite
              them, because its micro-batches have the same numbers
delta         one commit, which notes the micro-batch: exactly once
sql           one transaction with its marker in the same database: exactly once
kafka         sent again if the micro-batch is repeated: at least once
============  ==================================================================================

Delta tables and databases are written by one task, so that there is one commit; the rows stream
through it. Its retries and speculative copies find the micro-batch done.
"""

import json
from dataclasses import dataclass, field

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from semistream.databases.writing import TableTarget
from semistream.errors import PipelineError
from semistream.pipeline.model import Pipeline
from semistream.pipeline.parts import DeltaSink, KafkaSink, ParquetSink, Sink, SqlSink
from semistream.pipeline.secrets import Secrets
from semistream.spark.keys import column
from semistream.spark.pipeline.hidden import HEADERS, KEY, shown
from semistream.spark.pipeline.onetask import Target, write_by_one_task
from semistream.spark.transforms import check_columns
from semistream.tables import DeltaTarget

BATCH = "batch"
_OWNER = "_semistream_stream"  # readers of a folder leave out what begins with an underscore


@dataclass(frozen=True)
class Output:
    """A sink of a pipeline, ready to be written to."""

    sink: Sink
    pipeline: Pipeline
    secrets: Secrets
    # Streams that are known to own the folder.
    _owned: set[str] = field(default_factory=set, repr=False, compare=False)

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
            folder = self.pipeline.place(sink.path).rstrip("/")
            if stream not in self._owned:
                _own(folder, stream, number, rows.sparkSession)
                self._owned.add(stream)
            writer = rows.select(*shown(rows)).write.mode("overwrite").format("parquet")
            writer = writer.options(**self.secrets.texts(sink.options))
            writer.partitionBy(*sink.partition_by).save(_batch_folder(folder, number))
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


def _batch_folder(folder: str, number: int) -> str:
    return f"{folder}/{BATCH}={number}"


def _own(folder: str, stream: str, number: int, spark: SparkSession) -> None:
    """Note whose micro-batches a folder has; raise an error if they are another stream's.

    Folders from before this was noted are taken over, unless the stream has just begun.
    """
    marker = f"{folder}/{_OWNER}"
    found = (
        [line[0] for line in spark.read.text(marker).collect()] if _is_there(marker, spark) else []
    )
    if not found and (number or not _is_there(_batch_folder(folder, number), spark)):
        noted = spark.range(1).select(F.lit(stream)).coalesce(1)
        noted.write.mode("overwrite").text(marker)
    elif found != [stream]:
        raise PipelineError(
            f"{folder!r} has micro-batches of another stream, which this one would overwrite: its "
            "checkpoint is new, or another pipeline writes there. Choose another path for the "
            "sink or, to begin anew, delete that folder"
        )


def _is_there(path: str, spark: SparkSession) -> bool:
    """Return whether a folder exists, wherever Spark can read."""
    try:
        spark.read.text(path)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return False
    return True


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
