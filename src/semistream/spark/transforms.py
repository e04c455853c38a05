"""The transformations of an ETL pipeline that are joins with a relation, and computed columns.

============================  =====================================================================
`add_columns`                 new columns by SQL expressions
`mark_new`                    is the key of a row not in R yet?
`mark_duplicates`             is the row in R, or once more before it in the micro-batch?
`surrogate_key`               one warehouse key for the keys of many sources; new ones enter R
============================  =====================================================================
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from semistream.conditions.condition import Conditions
from semistream.embedded import JoinOptions, open_relation
from semistream.errors import ColumnError, OptionError, did_you_mean
from semistream.relation.relation import Relation
from semistream.spark.enrichment import enrich
from semistream.spark.keys import column, has_key_expression
from semistream.spark.types import arrow_schema
from semistream.spec import On

_FOUND = "__semistream_found"
_NUMBER = "__semistream_number"


def add_columns(rows: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """Return the rows with new columns, each by a SQL expression, which may use those before it.

    ::

        ss.add_columns(sales, {"revenue": "price * quantity", "is_large": "revenue > 1000"})
    """
    for name, expression in columns.items():
        rows = rows.withColumn(name, F.expr(expression))
    return rows


def mark_new(
    rows: DataFrame,
    relation: Relation | str | os.PathLike[str],
    *,
    on: On | None = None,
    to: str = "is_new",
    condition: Conditions | None = None,
    reason: str | None = None,
    **options: Any,
) -> DataFrame:
    """Return the rows, streaming or not, with a column that says whether R has no match for them.

    A row without a key is new. `on`, `condition`, `reason` and the `options` are those of `enrich`:
    memory, algorithm, routing. Of a micro-batch all rows are compared with R as it is
    at the beginning.
    """
    relation = open_relation(relation)
    _check_free(rows, to)
    if relation.has_unique_keys and condition is None:
        found = {relation.key[0]: _FOUND}
        joined = enrich(rows, relation, on=on, columns=found, reason=reason, **options)
        return joined.withColumn(to, column(_FOUND).isNull()).drop(_FOUND)
    about = {"on": on, "condition": condition, "reason": reason, **options}
    name = about.pop("name", None) or f"semistream:{PurePosixPath(relation.location).stem}"
    known = enrich(rows, relation, how="semi", name=name, **about).withColumn(to, F.lit(False))
    new = enrich(rows, relation, how="anti", name=f"{name}:new", **about)
    new = new.withColumn(to, F.lit(True))
    if reason is not None:  # rows that pass the join by are in both
        known = known.filter(column(reason).isNull())
    return known.unionByName(new)


def mark_duplicates(
    rows: DataFrame,
    relation: Relation | str | os.PathLike[str] | None = None,
    *,
    on: On | None = None,
    to: str = "is_duplicate",
    order: str | None = None,
    condition: Conditions | None = None,
    reason: str | None = None,
    **options: Any,
) -> DataFrame:
    """Return a batch of rows with a column that says which of them are duplicates.

    A row is one if R has a match for it (by `on`, and a `condition` such as `ss.similar`), or if an
    earlier row of the batch has the same key: earlier by the column `order`, or one of them.
    Without a `relation` only the batch is looked at. Rows without a key are no duplicates.
    """
    _check_is_batch(rows, "mark_duplicates")
    _check_free(rows, to)
    if relation is not None:
        relation = open_relation(relation)
    names = _stream_key(rows, relation, on, condition)
    marked = rows
    if relation is not None:
        about = {"condition": condition, "reason": reason, **options}
        marked = mark_new(rows, relation, on=on, to=_FOUND, **about)
        marked = marked.withColumn(_FOUND, ~column(_FOUND))
    else:
        marked = rows.withColumn(_FOUND, F.lit(False))
    if names:
        by = F.xxhash64(*(column(n) for n in rows.columns)) if order is None else column(order)
        is_apart = F.lit(False) if reason is None else column(reason).isNotNull()
        window = Window.partitionBy(is_apart, *(column(n) for n in names)).orderBy(by)
        has_key = has_key_expression(names) & ~is_apart
        marked = marked.withColumn(_NUMBER, F.row_number().over(window))
        is_later = has_key & (column(_NUMBER) > 1)
    else:
        marked, is_later = marked.withColumn(_NUMBER, F.lit(1)), F.lit(False)
    return marked.withColumn(to, column(_FOUND) | is_later).drop(_FOUND, _NUMBER)


def _stream_key(
    rows: DataFrame, relation: Relation | None, on: On | None, condition: Conditions | None
) -> tuple[str, ...]:
    """Return the columns of the rows that are compared."""
    if relation is not None:
        options = JoinOptions(on, "semi", condition=condition)
        return options.spec(relation, arrow_schema(rows.schema)).stream_key
    names = [on] if isinstance(on, str) else list(on or ())
    if not names:
        raise OptionError("without a relation, on must name the columns that duplicates share")
    check_columns(rows, names)
    return tuple(names)


def _check_is_batch(rows: DataFrame, function: str) -> None:
    if rows.isStreaming:
        raise OptionError(
            f"{function} works on micro-batches: call it in foreachBatch, or use the step "
            f"{function} of a pipeline"
        )


def _check_free(rows: DataFrame, name: str) -> None:
    if name in rows.columns:
        raise ColumnError(f"the rows have a column {name!r} already; name another with to='…'")


def check_columns(rows: DataFrame, names: Sequence[str]) -> None:
    """Raise unless the rows have these columns."""
    for name in names:
        if name not in rows.columns:
            raise ColumnError(
                f"the rows have no column {name!r}; they have {', '.join(rows.columns)}."
                f"{did_you_mean(name, rows.columns)}"
            )
