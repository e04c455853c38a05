"""The parts of a pipeline that say where rows come from and where they go: sources and sinks."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

Options: TypeAlias = dict[str, str | int | float | bool]


class Part(BaseModel):
    """A part of a pipeline: unknown fields are refused, and nothing is changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Files(Part):
    """New files of a folder; how they are read is said in ``parse``."""

    format: Literal["files"]
    path: str
    """The folder that files arrive in."""
    max_files_per_trigger: int | None = Field(default=None, ge=1)
    """The most files of a micro-batch."""
    options: Options = Field(default_factory=dict)
    """Other options of Spark's source."""


class Kafka(Part):
    """Messages of Kafka; how their values are read is said in ``parse``."""

    format: Literal["kafka"]
    servers: str
    """Addresses of brokers, host:port, separated by commas."""
    topic: str
    """The topic, or several separated by commas."""
    starting: Literal["earliest", "latest"] = "earliest"
    """Where the first start begins; later ones go on where the checkpoint says."""
    max_rows_per_trigger: int | None = Field(default=None, ge=1)
    """The most messages of a micro-batch."""
    options: Options = Field(default_factory=dict)
    """Other options of Spark's source, such as kafka.security.protocol."""


class Delta(Part):
    """Rows of a Delta table, first all of them, then what is appended, version by version."""

    format: Literal["delta"]
    path: str
    options: Options = Field(default_factory=dict)
    """Of the storage."""


class Rate(Part):
    """Spark's own rows for trials: ``timestamp``, and ``value``, which counts from 0."""

    format: Literal["rate"]
    rows_per_second: int = Field(default=1_000, ge=1)
    options: Options = Field(default_factory=dict)


class Workload(Part):
    """A generated stream for trials, by the name of a workload; see the guide on workloads."""

    format: Literal["workload"]
    workload: str
    options: Options = Field(default_factory=dict)
    """Of the workload and its arrivals: relation_rows, rows, rate, arrivals, …"""


Source: TypeAlias = Annotated[
    Files | Kafka | Delta | Rate | Workload, Field(discriminator="format")
]


class Parse(Part):
    """How files or the values of messages become columns."""

    format: Literal["parquet", "json", "csv", "avro", "orc"]
    schema_: str | dict[str, Any] | None = Field(default=None, alias="schema")
    """Columns and their types: ``product_id long, price double``, or name: type; of Avro messages
    the Avro schema. May be left out for files in Parquet, ORC and Avro."""
    options: Options = Field(default_factory=dict)
    """Of Spark's reader: header, sep, timestampFormat, …"""


class ParquetSink(Part):
    """Parquet files, a folder ``batch=N`` for each micro-batch; written again if it is repeated."""

    format: Literal["parquet"]
    path: str
    partition_by: list[str] = Field(default_factory=list)
    """Columns that become folders."""
    options: Options = Field(default_factory=dict)


class DeltaSink(Part):
    """A Delta table: each micro-batch is one version of it, exactly once."""

    format: Literal["delta"]
    path: str
    partition_by: list[str] = Field(default_factory=list)
    options: Options = Field(default_factory=dict)
    """Of the storage."""


class KafkaSink(Part):
    """Messages of Kafka, at least once: a micro-batch that is repeated is sent again."""

    format: Literal["kafka"]
    servers: str
    topic: str
    value: Literal["json", "avro"] = "json"
    schema_: str | dict[str, Any] | None = Field(default=None, alias="schema")
    """The Avro schema of the value; without it one is made of the columns."""
    key: str | None = None
    """The column that becomes the key; without it messages from Kafka keep theirs."""
    headers: bool = True
    """Whether messages from Kafka keep their headers."""
    options: Options = Field(default_factory=dict)


class SqlSink(Part):
    """A table of PostgreSQL or MariaDB: each micro-batch is one transaction, exactly once."""

    format: Literal["sql"]
    url: str
    """``postgresql://user@host/database`` or ``mysql://…``; the password is not part of it."""
    table: str
    create: bool = True
    """Whether the table is created if it is not there."""


Sink: TypeAlias = Annotated[
    ParquetSink | DeltaSink | KafkaSink | SqlSink, Field(discriminator="format")
]
