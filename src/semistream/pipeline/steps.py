"""The steps of a pipeline, each a function of `semistream` with the same name and arguments."""

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from semistream.advice.settings import ALIASES
from semistream.conditions import condition as conditions
from semistream.errors import OptionError
from semistream.joins.registry import ALGORITHMS
from semistream.pipeline.parts import Part
from semistream.units import parse_seconds

Key = str | list[str] | dict[str, str]
Names = list[str] | dict[str, str]


class RelationPlace(Part):
    """A relation that steps refer to by its name; built from a source if it is not there yet."""

    location: str
    """Where it is: a path, or a URI."""
    source: str | None = None
    """Parquet or CSV to build it from, if there is no relation at the location yet."""
    key: str | list[str] | None = None
    """Its key columns, if it is built."""
    partitions: int | None = Field(default=None, ge=1)
    page_size: str | int | None = None

    @model_validator(mode="after")
    def _has_key(self) -> "RelationPlace":
        if self.source is not None and self.key is None:
            raise ValueError("a relation that is built from a source needs its key")
        return self


class Similar(Part):
    """A condition: two texts are alike; the arguments of ``ss.similar``."""

    similar: str
    """A text of the stream."""
    relation_column: str | None = None
    """The text of the relation; without it the one of the same name."""
    by: Literal["jaccard", "edit"] = "jaccard"
    least: float = Field(default=0.8, gt=0, le=1)

    def as_condition(self) -> conditions.Similar:
        """Return it as `join` takes it."""
        return conditions.similar(self.similar, self.relation_column, by=self.by, least=self.least)


Condition = str | Similar | list[str | Similar]


def as_conditions(given: Condition | None) -> conditions.Conditions | None:
    """Return the conditions of a step as `join` takes them."""
    if given is None or isinstance(given, str):
        return given
    every = [given] if isinstance(given, Similar) else given
    return [one if isinstance(one, str) else one.as_condition() for one in every]


class JoinPart(Part):
    """What steps that join have in common."""

    relation: str
    """The name of a relation in ``relations``, or its place."""
    on: Key | None = None
    """The key: a column, a list, or stream column: relation column."""
    memory: int | str | None = None
    """The budget of this join; without it a share of the pipeline's."""
    memory_per_task: int | str | None = None
    algorithm: Literal["auto", *ALGORITHMS, *ALIASES] = "auto"  # type: ignore[valid-type]
    routing: Literal["auto", "local", "shuffle"] = "auto"
    condition: Condition | None = None
    """What must hold beside equal keys, such as s.amount >= r.least, or texts that are alike; of a
    list all."""


class Enrich(JoinPart):
    """Add columns of a relation; the arguments of ``ss.enrich``."""

    how: Literal["left", "inner", "semi", "anti"] = "left"
    columns: Names | None = None
    """The columns to add, or name: new name; all but the key."""
    suffix: str | None = None
    valid_at: str | None = None
    ordered: Literal["stream", "key"] | None = None
    front_stage: bool = False
    settings: dict[str, Any] | Literal["papers"] | None = None
    name: str | None = None
    """Of the metrics."""
    max_staleness: float | str | None = None
    on_stale: Literal["warn", "stop"] = "warn"
    rate: float | None = None
    latency: float | str | None = None
    """From the arrival of a row to its output, such as 2s, or seconds; needs the rate."""
    shed: Literal["uniform", "keep-rare"] | None = None
    """Join a weighted sample of the rows where the rate is more than can be served."""
    on_missing: Literal["keep", "drop", "dead_letters", "hold"] | None = None
    """Rows without a match: keep them with nulls, drop them, send them to the dead letters, or hold
    them until a refresh of the relation brings their key; without it, as ``how`` says."""
    grace: float | str | None = None
    """How long rows are held, such as 10min, or seconds."""
    after_grace: Literal["keep", "dead_letters"] = "keep"
    """What becomes of held rows after the grace period: they leave with nulls, or to the dead
    letters."""
    outcome: str | None = None
    """A column to add that says what became of a row: matched or missing; of held rows late or
    expired."""

    @field_validator("grace", "latency")
    @classmethod
    def _is_duration(cls, given: float | str | None) -> float | str | None:
        try:
            if given is not None:
                parse_seconds(given)
        except OptionError as error:
            raise ValueError(str(error)) from None
        return given

    @model_validator(mode="after")
    def _agrees(self) -> "Enrich":
        if self.on_missing is not None and self.how != "left":
            raise ValueError(f"on_missing is for how: left; leave it out with how: {self.how}")
        if self.shed is not None and self.rate is None:
            raise ValueError("shed needs rate, the rows per second that arrive")
        if self.latency is not None and self.rate is None:
            raise ValueError("latency needs rate, the rows per second that arrive")
        if (self.on_missing == "hold") != (self.grace is not None):
            raise ValueError("on_missing: hold and grace, such as 10min, go together")
        if self.after_grace != "keep" and self.on_missing != "hold":
            raise ValueError("after_grace is for rows that are held: on_missing: hold")
        if self.ordered is not None and (self.how != "left" or self.on_missing == "drop"):
            raise ValueError("ordered is for how: left in a pipeline; other rows would be lost")
        if self.ordered is not None and self.on_missing == "hold":
            raise ValueError("held rows leave later than others: leave ordered out")
        return self


class StarJoin(Part):
    """What is said of one relation of a star; the arguments of ``ss.enrich`` of these names."""

    on: Key | None = None
    how: Literal["left", "inner", "semi", "anti"] = "left"
    columns: Names | None = None
    memory: int | str | None = None
    algorithm: Literal["auto", *ALGORITHMS, *ALIASES] = "auto"  # type: ignore[valid-type]
    routing: Literal["auto", "local", "shuffle"] = "auto"
    suffix: str | None = None
    condition: Condition | None = None
    valid_at: str | None = None
    front_stage: bool = False
    settings: dict[str, Any] | Literal["papers"] | None = None
    name: str | None = None
    max_staleness: float | str | None = None
    on_stale: Literal["warn", "stop"] = "warn"


class EnrichStar(Part):
    """Add columns of several relations within one budget; ``ss.enrich_star``."""

    relations: dict[str, StarJoin | str | list[str]]
    """Each relation by its name or place, with its key or its options."""
    memory: int | str | None = None
    memory_per_task: int | str | None = None


class MarkNew(JoinPart):
    """Say of each row whether its key is not in a relation; ``ss.mark_new``."""

    to: str = "is_new"
    """The column that says so."""


class MarkDuplicates(JoinPart):
    """Say of each row whether a relation has it, or the micro-batch has it before it."""

    relation: str | None = None  # type: ignore[assignment]
    """Without it, only rows of the same micro-batch are compared."""
    order: str | None = None
    """Of equal rows in a micro-batch the first by this column is no duplicate."""
    to: str = "is_duplicate"


class SurrogateKey(JoinPart):
    """Replace source keys by a warehouse key; new ones enter the relation; ``ss.surrogate_key``."""

    to: str
    """The column of the warehouse key, in the relation and in the result."""
    columns: list[str] = Field(default_factory=list)
    """Columns of the stream that a new row of the relation takes along."""


class Step(Part):
    """One step: exactly one of these."""

    enrich: Enrich | None = None
    enrich_star: EnrichStar | None = None
    add_columns: dict[str, str] | None = None
    """New columns by SQL expressions, name: expression; an expression may use those before it."""
    select: list[str] | None = None
    """The columns to keep, or SQL expressions."""
    where: str | None = None
    """A SQL predicate; other rows are left out."""
    mark_duplicates: MarkDuplicates | None = None
    mark_new: MarkNew | None = None
    surrogate_key: SurrogateKey | None = None

    @model_validator(mode="after")
    def _is_one(self) -> "Step":
        if len(self.model_fields_set) != 1 or self.value is None:
            known = ", ".join(type(self).model_fields)
            raise ValueError(f"a step is one of {known}; put each into a step of its own")
        return self

    @property
    def kind(self) -> str:
        """The name of the step."""
        return next(iter(self.model_fields_set))

    @property
    def value(self) -> Any:
        """What the step is to do."""
        return getattr(self, self.kind)

    @property
    def needs_whole_batch(self) -> bool:
        """Whether it compares the rows of a micro-batch with each other."""
        return self.kind in ("mark_duplicates", "surrogate_key")

    @property
    def holds_rows(self) -> bool:
        """Whether rows wait in it, from one micro-batch to a later one."""
        return isinstance(self.value, Enrich) and self.value.on_missing == "hold"
