"""The source of a pipeline as a streaming DataFrame: the user's columns and the hidden ones.

What cannot be parsed has a reason, and the text that it came as; its columns are null.
"""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from semistream.errors import PipelineError
from semistream.pipeline.model import Pipeline
from semistream.pipeline.parts import Delta, Files, Kafka, KafkaSink, Options, Parse, Rate, Workload
from semistream.pipeline.secrets import Secrets
from semistream.spark.deltatables import DELTA, register_delta
from semistream.spark.keys import column
from semistream.spark.pipeline.hidden import HEADERS, HIDDEN, KEY, ORIGIN, RAW, REASON
from semistream.spark.workloads import register_workloads

_VALUE = "__semistream_value"
_PARSED = "__semistream_parsed"
_CORRUPT = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": RAW}


def read_source(spark: SparkSession, pipeline: Pipeline, secrets: Secrets) -> DataFrame:
    """Return the rows of the source."""
    source = pipeline.source
    if isinstance(source, Files):
        rows = _files(spark, pipeline, source, secrets)
    elif isinstance(source, Kafka):
        rows = _messages(spark, pipeline, source, secrets)
    else:
        rows = _columns(spark, pipeline, source, secrets)
    clash = [name for name in rows.columns if rows.columns.count(name) > 1]
    if clash:
        raise PipelineError(f"the source has several columns named {clash[0]!r}; rename them")
    return rows


def _columns(
    spark: SparkSession, pipeline: Pipeline, source: Delta | Rate | Workload, secrets: Secrets
) -> DataFrame:
    """Return the rows of a source that has columns already."""
    if isinstance(source, Rate):
        given: dict[str, Any] = {"rowsPerSecond": source.rows_per_second}
        reader = spark.readStream.format("rate")
    elif isinstance(source, Workload):
        register_workloads(spark)
        given = {"workload": source.workload}
        reader = spark.readStream.format("semistream-workload")
    else:
        register_delta(spark)
        given = {"location": pipeline.place(source.path)}
        reader = spark.readStream.format(DELTA)
    rows = reader.options(**secrets.texts({**given, **source.options})).load()
    return _with_hidden(rows, F.lit(source.format))


def _files(spark: SparkSession, pipeline: Pipeline, source: Files, secrets: Secrets) -> DataFrame:
    parse = _parse_of(pipeline)
    path = pipeline.place(source.path)
    given: Options = {**parse.options, **source.options}
    if source.max_files_per_trigger is not None:
        given["maxFilesPerTrigger"] = source.max_files_per_trigger
    options = secrets.texts(given)
    schema = _schema(parse)
    if schema is None:
        schema = (
            spark.read.format(parse.format)
            .options(**secrets.texts(parse.options))
            .load(path)
            .schema
        )
    is_text = parse.format in ("json", "csv")
    if is_text:
        schema = StructType([*schema.fields, StructField(RAW, StringType())])
        options |= _CORRUPT
    rows = spark.readStream.format(parse.format).schema(schema).options(**options).load(path)
    rows = rows.withColumn(ORIGIN, F.col("_metadata.file_path"))
    if not is_text:
        return _with_hidden(rows, column(ORIGIN))
    names = [column(f.name) for f in schema.fields[:-1]]
    is_bad = column(RAW).isNotNull()
    values = [F.when(~is_bad, each).alias(f.name) for each, f in zip(names, schema, strict=False)]
    reason = F.when(is_bad, F.lit(f"the line is not {parse.format.upper()} of the schema"))
    return rows.select(*values, reason.alias(REASON), column(ORIGIN), column(RAW))


def _messages(
    spark: SparkSession, pipeline: Pipeline, source: Kafka, secrets: Secrets
) -> DataFrame:
    parse = _parse_of(pipeline)
    given: Options = {
        "kafka.bootstrap.servers": source.servers,
        "subscribe": source.topic,
        "startingOffsets": source.starting,
        **source.options,
    }
    if source.max_rows_per_trigger is not None:
        given["maxOffsetsPerTrigger"] = source.max_rows_per_trigger
    keeps = [s for s in (pipeline.sink, pipeline.dead_letter_sink) if isinstance(s, KafkaSink)]
    keeps_headers = any(sink.headers for sink in keeps)
    if keeps_headers:
        given["includeHeaders"] = True
    rows = spark.readStream.format("kafka").options(**secrets.texts(given)).load()
    place = (column("topic"), column("partition"), column("offset"))
    kept = [F.concat_ws(":", *place).alias(ORIGIN), column("value").alias(_VALUE)]
    kept += [column("key").alias(KEY)] if keeps else []
    kept += [column("headers").alias(HEADERS)] if keeps_headers else []
    return _parsed(rows.select(*kept), parse, secrets)


def _parsed(rows: DataFrame, parse: Parse, secrets: Secrets) -> DataFrame:
    """Return the columns of messages; where a value cannot be read, they are null."""
    value, text = column(_VALUE), column(_VALUE).cast("string")
    options = secrets.texts(parse.options)
    if parse.format == "avro":
        from pyspark.sql.avro.functions import from_avro

        body = parse.schema_ if isinstance(parse.schema_, str) else json.dumps(parse.schema_)
        rows = rows.withColumn(_PARSED, from_avro(value, body, {"mode": "PERMISSIVE", **options}))
        names = [f.name for f in rows.schema[_PARSED].dataType.fields]  # type: ignore[attr-defined]
        is_bad = F.coalesce(*(column(_PARSED)[n].cast("string") for n in names)).isNull()
        if any(not _has_text(f.dataType) for f in rows.schema[_PARSED].dataType.fields):  # type: ignore[attr-defined]
            is_bad = F.to_json(column(_PARSED)) == "{}"
    else:
        schema = _schema(parse)
        assert schema is not None, "the model asks for it"
        names = schema.names
        whole = StructType([*schema.fields, StructField(RAW, StringType())])
        read = F.from_json if parse.format == "json" else _from_csv
        rows = rows.withColumn(_PARSED, read(text, whole, {**options, **_CORRUPT}))
        is_bad = column(_PARSED).isNull() | column(_PARSED)[RAW].isNotNull()
    reason = F.when(value.isNull(), F.lit("the message has no value")).when(
        is_bad, F.lit(f"the value is not {parse.format.upper()} of the schema")
    )
    rows = rows.withColumn(REASON, reason)
    fine = column(REASON).isNull()
    hidden = [column(n) for n in rows.columns if n in HIDDEN]
    raw = F.when(~fine, _readable(value)).alias(RAW)
    return rows.select(*(F.when(fine, column(_PARSED)[n]).alias(n) for n in names), *hidden, raw)


def _has_text(kind: Any) -> bool:
    return kind.typeName() not in ("array", "map", "struct")


def _from_csv(text: Column, schema: StructType, options: Mapping[str, str]) -> Column:
    return F.from_csv(text, schema.toDDL(), dict(options))


def _readable(value: Column) -> Column:
    """Return bytes as text, in base 64 where they are not UTF-8."""
    return F.coalesce(F.try_validate_utf8(value.cast("string")), F.base64(value))


def _with_hidden(rows: DataFrame, origin: Column) -> DataFrame:
    nothing = F.lit(None).cast("string")
    return rows.withColumns({REASON: nothing, ORIGIN: origin, RAW: nothing})


def _parse_of(pipeline: Pipeline) -> Parse:
    assert pipeline.parse is not None, "the model asks for it"
    return pipeline.parse


def _schema(parse: Parse) -> StructType | None:
    """Return the columns that were declared."""
    given = parse.schema_
    if given is None:
        return None
    text = given if isinstance(given, str) else ", ".join(f"`{n}` {t}" for n, t in given.items())
    try:
        found = StructType.fromDDL(text)
    except (AnalysisException, ParseException) as error:
        said = str(error).strip().partition("\n")[0]
        raise PipelineError(
            f"parse.schema: expected columns and types such as 'product_id long, price double'; "
            f"got {text!r}: {said}"
        ) from None
    assert isinstance(found, StructType), "columns are a struct"
    return found
