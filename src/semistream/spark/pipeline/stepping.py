"""The steps of a pipeline as functions of DataFrames.

Steps run in the streaming plan up to the first that needs a whole micro-batch; that one and all
after it run on each micro-batch.
"""

from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType

from semistream.embedded import open_relation
from semistream.errors import (
    ColumnError,
    KeyTypeError,
    OptionError,
    PipelineError,
    RelationNotFoundError,
    did_you_mean,
)
from semistream.pipeline.model import Pipeline
from semistream.pipeline.steps import (
    Enrich,
    EnrichStar,
    JoinPart,
    Key,
    MarkDuplicates,
    RelationPlace,
    StarJoin,
    Step,
    as_conditions,
)
from semistream.relation.build import BuildOptions, build_snapshot
from semistream.relation.relation import Relation
from semistream.spark.enrichment import enrich
from semistream.spark.failures import said_by
from semistream.spark.keys import column
from semistream.spark.missing import HOLD
from semistream.spark.pipeline.hidden import REASON, hidden, with_reason
from semistream.spark.star import enrich_star
from semistream.spark.surrogates import surrogate_key
from semistream.spark.transforms import add_columns, mark_duplicates, mark_new
from semistream.spark.types import spark_type

_OUTCOME = "__semistream_matched"
_COMMON = ("on", "algorithm", "routing", "condition", "memory_per_task")


@dataclass
class Steps:
    """The steps of one pipeline, with its relations."""

    pipeline: Pipeline
    _opened: dict[str, Relation] = field(default_factory=dict)

    def streaming(self) -> list[Step]:
        """Return the steps of the streaming plan."""
        return self.pipeline.streaming_steps

    def of_a_batch(self) -> list[Step]:
        """Return the steps that run on each micro-batch."""
        return self.pipeline.steps[len(self.streaming()) :]

    def apply(self, rows: DataFrame, steps: list[Step]) -> DataFrame:
        """Return the rows after some steps."""
        for step in steps:
            number = self.pipeline.steps.index(step) + 1
            try:
                rows = getattr(self, f"_{step.kind}")(rows, step.value)
            except (RelationNotFoundError, ColumnError, KeyTypeError, OptionError) as error:
                raise PipelineError(f"steps[{number}].{step.kind}: {error}") from None
            except AnalysisException as error:
                raise PipelineError(f"steps[{number}].{step.kind}: {said_by(error)}") from None
        return rows

    @property
    def relations(self) -> list[Relation]:
        """The relations that have been opened."""
        return list(self._opened.values())

    def relation(self, name: str) -> Relation:
        """Return a relation by its name or place; it is built if it is not there yet."""
        if name not in self._opened:
            self._opened[name] = self._open(name)
        return self._opened[name]

    def _open(self, name: str) -> Relation:
        known = self.pipeline.relations
        place = known.get(name, name)
        if isinstance(place, str):
            place = RelationPlace(location=place)
        location = self.pipeline.place(place.location)
        try:
            return open_relation(location)
        except RelationNotFoundError as error:
            if place.source is None:
                hint = "" if name in known else did_you_mean(name, known)
                raise RelationNotFoundError(f"{error}.{hint}" if hint else str(error)) from None
        assert place.key is not None, "the model asks for it"
        more = {} if place.page_size is None else {"page_size": place.page_size}
        options = BuildOptions.for_place(location, place.key, place.partitions, **more)
        build_snapshot(self.pipeline.place(place.source), location, options)
        return open_relation(location)

    def _options(self, part: JoinPart) -> dict[str, Any]:
        """Return the arguments that all joins have, as far as they were given."""
        given = {name: getattr(part, name) for name in _COMMON}
        given["condition"] = as_conditions(part.condition)
        return {**given, "memory": self.pipeline.memory_of(part)}

    def _with_key(self, rows: DataFrame, on: Key | None, relation: Relation) -> DataFrame:
        """Return the rows with texts as keys of other types cast; what is not one has a reason."""
        names = list(relation.key) if on is None else [on] if isinstance(on, str) else on
        pairs = names.items() if isinstance(names, dict) else [(n, n) for n in names]
        for ours, theirs in pairs:
            if ours not in rows.columns or theirs not in relation.schema.names:
                continue  # reported with all names by the join
            kind = spark_type(relation.schema.field(theirs))
            is_text = isinstance(rows.schema[ours].dataType, StringType)
            if not is_text or isinstance(kind, StringType):
                continue
            key = column(ours).try_cast(kind)
            said = F.concat(
                F.lit(f"the key {ours} is "), column(ours), F.lit(f", not {kind.simpleString()}")
            )
            rows = with_reason(rows, column(ours).isNotNull() & key.isNull(), said)
            rows = rows.withColumn(ours, key)
        return rows

    def _enrich(self, rows: DataFrame, part: Enrich) -> DataFrame:
        relation = self.relation(part.relation)
        rows = self._with_key(rows, part.on, relation)
        given = part.model_dump(exclude={"relation", "memory"})
        given |= self._options(part)
        # Ordered rows leave together, those with a reason among them: their keys are null.
        given["reason"] = None if part.ordered else REASON
        misses, after = given.pop("on_missing"), given.pop("after_grace")
        if misses == "drop":
            return enrich(rows, relation, **{**given, "how": "inner"})
        if misses == HOLD:
            given["on_missing"] = HOLD
        if "dead_letters" not in (misses, after):
            return enrich(rows, relation, **given)
        outcome = part.outcome or _OUTCOME
        joined = enrich(rows, relation, **{**given, "outcome": outcome})
        missed = F.lit(f"{part.relation} has no row with this key")
        joined = with_reason(joined, column(outcome).isin("missing", "expired"), missed)
        return joined if part.outcome else joined.drop(_OUTCOME)

    def star_joins(
        self, rows: DataFrame, part: EnrichStar
    ) -> tuple[DataFrame, list[tuple[Relation, dict[str, Any]]]]:
        """Return the rows with their keys cast, and the relations of a star with their options."""
        joins = []
        for name, said in part.relations.items():
            relation = self.relation(name)
            given: dict[str, Any] = {"on": said}
            if isinstance(said, StarJoin):
                given = {**said.model_dump(), "condition": as_conditions(said.condition)}
            rows = self._with_key(rows, given["on"], relation)
            joins.append((relation, given))
        return rows, joins

    def star_memory(self, part: EnrichStar) -> dict[str, int | str | None]:
        """Return the memory of a star."""
        memory = self.pipeline.memory_of(part)
        return {"memory": memory, "memory_per_task": part.memory_per_task}

    def _enrich_star(self, rows: DataFrame, part: EnrichStar) -> DataFrame:
        rows, joins = self.star_joins(rows, part)
        return enrich_star(rows, joins, reason=REASON, **self.star_memory(part))  # type: ignore[arg-type]

    def _add_columns(self, rows: DataFrame, columns: dict[str, str]) -> DataFrame:
        return add_columns(rows, columns)

    def _select(self, rows: DataFrame, names: list[str]) -> DataFrame:
        return rows.select(*(F.expr(name) for name in names), *hidden(rows))

    def _where(self, rows: DataFrame, predicate: str) -> DataFrame:
        holds = F.coalesce(F.expr(predicate), F.lit(False))
        return rows.filter(column(REASON).isNotNull() | holds)

    def _mark_new(self, rows: DataFrame, part: Any) -> DataFrame:
        relation = self.relation(part.relation)
        rows = self._with_key(rows, part.on, relation)
        return mark_new(rows, relation, to=part.to, reason=REASON, **self._options(part))

    def _mark_duplicates(self, rows: DataFrame, part: MarkDuplicates) -> DataFrame:
        if part.relation is None:
            return mark_duplicates(rows, on=part.on, to=part.to, order=part.order)
        relation = self.relation(part.relation)
        rows = self._with_key(rows, part.on, relation)
        more: dict[str, Any] = {"to": part.to, "order": part.order, "reason": REASON}
        return mark_duplicates(rows, relation, **more, **self._options(part))

    def _surrogate_key(self, rows: DataFrame, part: Any) -> DataFrame:
        relation = self.relation(part.relation)
        rows = self._with_key(rows, part.on, relation)
        options = self._options(part)
        options.pop("condition")
        about = {"to": part.to, "columns": part.columns, "reason": REASON}
        return surrogate_key(rows, relation, **about, **options)
