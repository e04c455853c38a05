"""A pipeline: from a source through parsing and steps to a sink, as a checked object.

``pipeline.yml`` and Python make the same object, and `semistream.run_pipeline` runs it::

    pipeline = ss.Pipeline(
        name="sales",
        storage="storage",
        source={"format": "files", "path": "sales"},
        parse={"format": "parquet"},
        steps=[{"enrich": {"relation": "products.rel", "on": "product_id"}}],
        sink={"format": "parquet", "path": "enriched"},
    )
"""

import os
import re
from itertools import takewhile
from pathlib import Path
from typing import Any, Self

from pydantic import ConfigDict, Field, PrivateAttr, field_validator, model_validator

from semistream.errors import OptionError, PipelineError
from semistream.pipeline.parts import Files, Kafka, Options, ParquetSink, Parse, Part, Sink, Source
from semistream.pipeline.problems import checked
from semistream.pipeline.reading import read_file
from semistream.pipeline.secrets import Secrets
from semistream.pipeline.steps import EnrichStar, JoinPart, RelationPlace, Step
from semistream.units import parse_budget, parse_bytes

AVAILABLE_NOW = "available now"
_PATTERN = re.compile(r"[*?{\[]")  # a path with one of these names many files
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")


class DeadLetters(Part):
    """Where rows go that cannot be parsed or joined, and how many of them are too many."""

    sink: Sink | None = None
    """Without it Parquet files in the folder dead-letters of the storage."""
    limit: float | str = "10%"
    """The share of a micro-batch that may be dead letters; above it the query stops."""
    least_rows: int = Field(default=100, ge=1)
    """The limit applies to micro-batches with at least this many rows."""

    @field_validator("limit")
    @classmethod
    def _is_share(cls, given: float | str) -> float | str:
        text = str(given).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            raise ValueError("a share is a percentage such as 5%, or a number from 0 to 1")
        return given

    @property
    def share(self) -> float:
        """The limit as a number from 0 to 1."""
        text = str(self.limit).strip()
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


class Pipeline(Part):
    """A pipeline from a source to a sink."""

    model_config = ConfigDict(title="A pipeline of semistream")

    name: str = Field(min_length=1)
    """Of the query and of the Spark application."""
    storage: str
    """A folder for the checkpoint and the dead letters."""
    configuration: Options = Field(default_factory=dict)
    """Settings of Spark, such as spark.sql.shuffle.partitions."""
    source: Source
    parse: Parse | None = None
    relations: dict[str, RelationPlace | str] = Field(default_factory=dict)
    """Relations by name: a place, or how to build it."""
    steps: list[Step] = Field(default_factory=list)
    sink: Sink
    memory: int | str = "64MB"
    """The budget of all joins together; those that name their own are not part of it. A share such
    as 5% is for each join, of its own relation."""
    dead_letters: DeadLetters = DeadLetters()
    trigger: str | None = None
    """The time between two micro-batches, such as 10 seconds; available now: take what there is and
    end; without it a micro-batch begins when the one before has ended."""
    metrics_port: int | None = Field(default=None, ge=0, le=65535)
    """A port of this host where Prometheus finds the metrics; without it they are not served."""
    checkpoint: str | None = None
    """The folder of Spark's progress; without it the folder checkpoint of the storage."""

    _base: Path = PrivateAttr(default_factory=Path.cwd)

    def __init__(self, **given: Any) -> None:
        """Check what was given; raise `PipelineError` with all that is wrong."""
        with checked(type(self), given):
            super().__init__(**given)

    # Pydantic is not to call it for what it reads itself.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @field_validator("memory")
    @classmethod
    def _is_size(cls, given: int | str) -> int | str:
        try:
            parse_budget(given, 1)
        except OptionError as error:
            raise ValueError(str(error)) from None
        return given

    @model_validator(mode="after")
    def _fits(self) -> "Pipeline":
        needs = isinstance(self.source, Files | Kafka)
        if needs and self.parse is None:
            raise ValueError(f"a source of {self.source.format} needs parse: how its rows are read")
        if not needs and self.parse is not None:
            raise ValueError(f"rows of {self.source.format} have columns already: leave parse out")
        if isinstance(self.source, Kafka) and self.parse is not None:
            if self.parse.format not in ("json", "csv", "avro"):
                raise ValueError("messages of Kafka are parsed as json, csv or avro")
            if self.parse.schema_ is None:
                raise ValueError("parse needs the schema of the messages")
        if isinstance(self.source, Files) and self.parse is not None:
            is_text = self.parse.format in ("json", "csv")
            if is_text and self.parse.schema_ is None:
                raise ValueError(f"files in {self.parse.format} need parse.schema")
        return self

    @model_validator(mode="after")
    def _can_hold(self) -> "Pipeline":
        if not self.holds_rows:
            return self
        if self.trigger == AVAILABLE_NOW:
            raise ValueError(
                "rows that are held need a trigger with a time, such as 10 seconds; with "
                "available now the query would never end"
            )
        if any(step.holds_rows for step in self.steps[len(self.streaming_steps) :]):
            raise ValueError(
                "rows cannot be held after mark_duplicates or surrogate_key, which need a whole "
                "micro-batch: put the step with on_missing: hold before it"
            )
        return self

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a pipeline file; raise `PipelineError` with all that is wrong, line by line."""
        return read_file(cls, Path(path)).placed(Path(path).parent)

    def placed(self, base: Path) -> Self:
        """Return the pipeline with relative paths that begin at a folder."""
        self._base = base.absolute()
        return self

    def place(self, path: str) -> str:
        """Return a path or URI as every process of this machine understands it."""
        return path if _SCHEME.match(path) else str(self._base / path)

    @property
    def checkpoint_place(self) -> str:
        """Where Spark notes its progress."""
        return self.place(self.checkpoint or f"{self.storage.rstrip('/')}/checkpoint")

    @property
    def dead_letter_sink(self) -> Sink:
        """Where dead letters go."""
        path = f"{self.storage.rstrip('/')}/dead-letters"
        return self.dead_letters.sink or ParquetSink(format="parquet", path=path)

    @property
    def packages(self) -> tuple[str, ...]:
        """What Spark needs a package for: ``kafka``, ``avro``."""
        parts: list[Any] = [self.source, self.sink, self.dead_letter_sink]
        used = {part.format for part in parts if part.format == "kafka"}
        if self.parse is not None and self.parse.format == "avro":
            used.add("avro")
        if any(getattr(part, "value", None) == "avro" for part in parts):
            used.add("avro")
        return tuple(sorted(used))

    @property
    def streaming_steps(self) -> list[Step]:
        """The steps before the first that needs a whole micro-batch."""
        return list(takewhile(lambda step: not step.needs_whole_batch, self.steps))

    @property
    def holds_rows(self) -> bool:
        """Whether rows wait in one of the steps."""
        return any(step.holds_rows for step in self.steps)

    def joins(self) -> list[JoinPart | EnrichStar]:
        """Return the steps that join, in their order."""
        parts = [s.value for s in self.steps if isinstance(s.value, JoinPart | EnrichStar)]
        return [part for part in parts if isinstance(part, EnrichStar) or part.relation is not None]

    def memory_of(self, join: JoinPart | EnrichStar) -> int | str | None:
        """Return the memory of a step: its own, or an equal part of the pipeline's."""
        if join.memory is not None or join.memory_per_task is not None:
            return join.memory
        if str(self.memory).strip().endswith("%"):
            return self.memory
        sharing = [j for j in self.joins() if j.memory is None and j.memory_per_task is None]
        return max(1, parse_bytes(self.memory) // len(sharing))

    def check_source(self) -> None:
        """Raise `PipelineError` if files are to be read where there is nothing.

        Only of a query that runs on this machine: a cluster may have another file system.
        """
        is_here = str(self.configuration.get("spark.master", "")).startswith("local")
        if not is_here or not isinstance(self.source, Files) or _SCHEME.match(self.source.path):
            return
        path = Path(self.place(self.source.path))
        if not _PATTERN.search(str(path)) and not path.exists():
            raise PipelineError(
                f"source.path: there is no folder {str(path)!r}; correct it, or make it: the first "
                "lines of the file that `semistream init` writes say how, for the example"
            )

    def secrets(self) -> Secrets:
        """Return the secrets that the pipeline refers to, checked to be there."""
        secrets = Secrets(self._base)
        secrets.check(self.model_dump())
        return secrets


def schema() -> dict[str, Any]:
    """Return the JSON schema of a pipeline file, for editors."""
    body = Pipeline.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **body}
