"""What becomes of rows without a match: they go out at once, marked if asked, or wait.

To know them, a key column of R is added to the joined rows, and removed at the end: R has no row
without a key, so it is null where there was no match.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from semistream.errors import OptionError
from semistream.extras import needs_extra
from semistream.relation.relation import Relation
from semistream.spark.failures import ERROR_COLUMN, unless_error
from semistream.spark.keys import column
from semistream.spark.metrics import observe_as
from semistream.spark.packing import (
    BUCKET,
    FOUND_COLUMN,
    OUTCOME_COLUMN,
    OUTCOMES,
    PACKED_FIELDS,
    ROWS,
    Packing,
    Unpacking,
)
from semistream.spark.tasks import Step
from semistream.spark.wire import INNER_COLUMNS, INNER_FIELDS
from semistream.spec import Columns
from semistream.units import parse_seconds

HOLD = "hold"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STATE_SETTINGS = {_PROVIDER: _ROCKSDB}  # what a session needs whose queries hold rows


@dataclass(frozen=True, slots=True)
class Missing:
    """What a user asked for rows without a match."""

    grace_ms: int | None  # how long they are held; None if they are not
    outcome: str | None  # a column that says what became of a row

    @classmethod
    def of(
        cls,
        stream: DataFrame,
        on_missing: str | None,
        grace: float | str | timedelta | None,
        outcome: str | None,
        how: str,
    ) -> "Missing":
        """Check what was asked."""
        if outcome is not None and how.lower() not in ("left", "inner", "leftouter", "left_outer"):
            raise OptionError(
                f"outcome says which rows matched; with how={how!r} all rows of the output have "
                "the same outcome. Leave outcome out"
            )
        if on_missing is None:
            if grace is not None:
                raise OptionError("grace is for rows that are held: pass on_missing='hold' as well")
            return cls(None, outcome)
        if on_missing != HOLD:
            raise OptionError(
                f"on_missing is 'hold' or left out; got {on_missing!r}. how says what becomes of "
                "rows without a match: left, inner, semi or anti"
            )
        _check_hold(stream, grace, how)
        assert grace is not None, "checked"
        return cls(round(1e3 * parse_seconds(grace)), outcome)

    @property
    def is_marked(self) -> bool:
        """Whether joined rows have a key column of R to know the others by."""
        return self.grace_ms is not None or self.outcome is not None

    def with_found(
        self, relation: Relation, columns: Columns | None, case_sensitive: bool
    ) -> Columns | None:
        """Return the columns to add, with a key column of R if need be."""
        if not self.is_marked:
            return columns
        if columns is None:
            columns = [name for name in relation.schema.names if name not in relation.key]
        if isinstance(columns, str):
            columns = [columns]
        asked = dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}
        taken = {name if case_sensitive else name.lower() for name in asked}
        free = [n for n in relation.key if (n if case_sensitive else n.lower()) not in taken]
        if not free:
            raise OptionError(
                "on_missing and outcome use a key column of the relation to see which rows "
                f"matched, so columns cannot have all of them; leave {relation.key[0]!r} out: the "
                "stream has the same values"
            )
        return {**asked, free[0]: FOUND_COLUMN}

    def marked(self, joined: DataFrame) -> DataFrame:
        """Return joined rows that were not held, with their outcome if asked."""
        if self.outcome is None:
            return joined
        found = F.when(column(FOUND_COLUMN).isNull(), OUTCOMES[1]).otherwise(OUTCOMES[0])
        return joined.withColumn(self.outcome, found).drop(FOUND_COLUMN)

    def held(
        self, packed: DataFrame, step: Step, schema: StructType, name: str | None
    ) -> DataFrame:
        """Return the rows of blobs, those without a match when they have one or are due."""
        with needs_extra("hold", "on_missing='hold'"):
            from semistream.spark.waiting import HELD_METRICS, HELD_SCHEMA, Hold

        assert self.grace_ms is not None, "only held rows are packed"
        hold = Hold(step, self.grace_ms)
        let_go = packed.groupBy(BUCKET).transformWithStateInPandas(
            hold, HELD_SCHEMA, "Append", "ProcessingTime"
        )
        sums = [F.sum(column(each)).alias(each) for each in HELD_METRICS]
        observed = observe_as(let_go, step.relation, name, sums, ":held")
        blobs = observed.filter(unless_error(column(ROWS).isNotNull())).drop(
            ERROR_COLUMN, *HELD_METRICS
        )
        fields = [field for field in schema.fields if field.name not in INNER_COLUMNS]
        whole = StructType([*fields, StructField(OUTCOME_COLUMN, StringType())])
        rows = blobs.mapInArrow(Unpacking(), whole).drop(FOUND_COLUMN)
        if self.outcome is None:
            return rows.drop(OUTCOME_COLUMN)
        return rows.withColumnRenamed(OUTCOME_COLUMN, self.outcome)


def packed_schema() -> StructType:
    """Return the schema of what tasks return that pack their rows."""
    return StructType([*PACKED_FIELDS, *INNER_FIELDS])


def packing_of(step: Step) -> Packing:
    """Return how the tasks of a join pack their rows."""
    spec = step.spec
    key = tuple(spec.stream_key_indexes)
    return Packing(step.relation, len(spec.stream_schema), key, step.reason)


def _check_hold(stream: DataFrame, grace: float | str | timedelta | None, how: str) -> None:
    if not stream.isStreaming:
        raise OptionError(
            "on_missing='hold' is for streams: in a batch query the relation does not change"
        )
    if grace is None:
        raise OptionError("on_missing='hold' needs a grace period, for example grace='10min'")
    if how.lower() not in ("left", "leftouter", "left_outer"):
        raise OptionError(
            f"with on_missing='hold' rows leave with nulls after the grace period: how must be "
            f"'left', not {how!r}. With outcome='…' you can filter them out"
        )
    if stream.sparkSession.conf.get(_PROVIDER) != _ROCKSDB:
        raise OptionError(
            "on_missing='hold' keeps rows in Spark's state, which must be in RocksDB for that: "
            f"spark.conf.set({_PROVIDER!r}, {_ROCKSDB!r})"
        )
