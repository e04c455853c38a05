"""The public face of a relation: build it from any source, open it, ask what a budget buys.

The layers below know only what they need of R: `semistream.relation` its files, `advice` the
predictions, `spark` the executors. This module puts them together and is on top of all of them.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from semistream.advice.explain import Explanation, explain
from semistream.conditions.condition import Conditions
from semistream.databases.relation import (
    DEFAULT_BUFFER_BYTES,
    DEFAULT_PAGE_BYTES,
    TableRelation,
)
from semistream.extras import needs_extra
from semistream.joins.shedding import Shedding
from semistream.relation import build, change, relation
from semistream.relation.layout import Order
from semistream.relation.validity import Validity
from semistream.sources import is_spark_frame
from semistream.spec import Columns, On

if TYPE_CHECKING:
    from semistream.advice.explain_spark import SparkExplanation


class Relation(relation.Relation):
    """One snapshot of a relation. Cheap to open, safe to pickle: it holds only the manifest.

    >>> products = Relation.open("products.rel")  # doctest: +SKIP
    >>> products.row_count, products.key  # doctest: +SKIP
    (3500000, ('product_id',))
    """

    @classmethod
    def sql(
        cls,
        url: str,
        table: str,
        *,
        key: str | Sequence[str],
        columns: Sequence[str] | None = None,
        page_size: int | str = DEFAULT_PAGE_BYTES,
        buffer: int | str = DEFAULT_BUFFER_BYTES,
    ) -> "SqlRelation":
        """Return a table of PostgreSQL, MariaDB, MySQL, SQLite or DuckDB, to be joined in place.

        `url` has no password: that comes from ``PGPASSWORD`` or ``~/.pgpass``, from ``MYSQL_PWD``
        or ``~/.my.cnf``. The `key` needs an index of the database. All `columns` can be joined,
        unless some are named. The rows are counted once, by ranges of the key of about
        `page_size`; a join reads such pages, and keeps what it fetched last in a `buffer`, which
        is part of its memory. Each join, and on Spark each task of a micro-batch, reads the table
        as it is when the join begins.

        >>> shop = "postgresql://reader@db.example/shop"
        >>> products = Relation.sql(shop, "products", key="product_id")  # doctest: +SKIP
        """
        return SqlRelation.at(url, table, key, columns, page_size, buffer)

    def explain(
        self,
        *,
        memory: int | str,
        rate: float | None = None,
        latency: float | str | timedelta | None = None,
        skew: float | None = None,
        sample: pa.Table | None = None,
        on: On | None = None,
        columns: Columns | None = None,
        batch: int | None = None,
        condition: Conditions | None = None,
        valid_at: str | None = None,
        ordered: str | None = None,
        shed: Shedding | str | None = None,
    ) -> Explanation:
        """Return what a budget buys: algorithms ranked by predicted rate, the split, alternatives.

        `skew` is a Zipf exponent; a `sample` of the stream, a table with its key, says more. With a
        `rate`, and a `latency` as in `join`, it says which memory holds them. With
        `batch`, the rows of a micro-batch, also how long that takes and what it reads. With
        `condition`, `valid_at`, `ordered` or `shed`, as in `join`, also what they cost. See
        `semistream.advice.explain`.
        """
        return explain(
            self,
            memory=memory,
            rate=rate,
            latency=latency,
            skew=skew,
            sample=sample,
            on=on,
            columns=columns,
            batch=batch,
            condition=condition,
            valid_at=valid_at,
            ordered=ordered,
            shed=shed,
        )

    def explain_spark(
        self,
        *,
        memory: int | str,
        cores: int | None = None,
        tasks: int | None = None,
        routing: str = "auto",
        batch: int | None = None,
        rate: float | None = None,
        skew: float | None = None,
        sample: pa.Table | None = None,
        on: On | None = None,
        columns: Columns | None = None,
    ) -> "SparkExplanation":
        """Return what a query on Spark will deliver: the time of a micro-batch, rows per second.

        See `semistream.spark.prediction.explain_query`.
        """
        with needs_extra("spark", "explain_spark"):
            from semistream.spark.prediction import explain_query

        return explain_query(
            self,
            memory=memory,
            cores=cores,
            tasks=tasks,
            routing=routing,
            batch=batch,
            rate=rate,
            skew=skew,
            sample=sample,
            on=on,
            columns=columns,
        )

    def refresh(
        self,
        source: Any,
        *,
        sample: Any = None,
        progress: Callable[[int], None] | None = None,
    ) -> "Relation":
        """Replace all rows by those of a source, and return the new snapshot.

        `source` is what `build_relation` takes. Key, number of partitions, page size and order
        stay; other columns may change. In order of frequency the hot keys stay as well, unless a
        new `sample` of the stream is given. Running queries go on: they take the new snapshot up
        with their next micro-batch.

        If another writer makes a new snapshot meanwhile, this one is refused with a
        `WriteConflictError`, and nothing is changed.
        """
        current = Relation.open(self.location)
        if is_spark_frame(source):
            from semistream.spark.build import build_from_dataframe

            options = change.refresh_options(current, source, sample)
            return self._opened(build_from_dataframe(source, self.location, options))
        return self._opened(change.refresh(current, source, sample, progress))

    def upsert(
        self,
        changes: Any,
        *,
        deletes: str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> "Relation":
        """Replace the rows of the keys that occur in `changes`, and return the new snapshot.

        `changes` is what `build_relation` takes, with the relation's columns in any order. All rows
        of R with a key that occurs in it are replaced by the rows that have the key there.
        `deletes` names a boolean column that marks deletions: a row in which it is true only names
        a key whose rows go. Rows without a key are left out.

        The changes are applied to the snapshot that is current now. If another writer makes a new
        one meanwhile, this one is refused with a `WriteConflictError`, and nothing is changed.

        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> stock = pa.table({"id": [1, 2, 3], "left": [5, 7, 9]})
        >>> stock = build_relation(stock, folder.name, key="id")
        >>> sold_out = pa.table({"id": [2, 3], "left": [6, 0], "gone": [False, True]})
        >>> stock = stock.upsert(sold_out, deletes="gone")
        >>> stock.row_count, stock.history()[-1].origin.rows_changed
        (2, 1)
        >>> folder.cleanup()
        """
        current = Relation.open(self.location)
        if is_spark_frame(changes):
            from semistream.spark.change import upsert_from_dataframe

            return self._opened(upsert_from_dataframe(current, changes, deletes))
        return self._opened(change.upsert(current, changes, deletes, progress))

    def compact(
        self, *, spark: Any = None, progress: Callable[[int, int], None] | None = None
    ) -> "Relation":
        """Fold the delta pages of the current snapshot in, and return the new snapshot.

        Without any the current one is returned. Queries that run go on with the snapshot that they
        have. Given a Spark session, its executors write, one task a partition; otherwise this
        process does, and `progress` is called with the number of partitions done, and of how many.
        """
        current = Relation.open(self.location)
        if spark is not None:
            from semistream.spark.change import compact_on_executors

            return self._opened(compact_on_executors(current, spark))
        return self._opened(change.compact(current, progress))

    def restore(self) -> "Relation":
        """Make this snapshot current again, as a new one that shares its files; return that."""
        return self._opened(change.restore(self, Relation.open(self.location)))

    def _opened(self, new: relation.Relation) -> "Relation":
        return Relation(new.location, new.manifest, self.reading)


@dataclass(frozen=True, repr=False)
class SqlRelation(TableRelation, Relation):
    """A table in a database that joins read in place; see `Relation.sql`."""


def build_relation(
    source: Any,
    location: str | os.PathLike[str],
    *,
    key: str | Sequence[str],
    partitions: int | None = None,
    page_size: int | str = build.DEFAULT_PAGE_BYTES,
    order: Order = "key",
    sample: Any = None,
    validity: Validity | Sequence[str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Relation:
    """Build a relation, or a new snapshot of one, and return it opened.

    `source` is a Spark DataFrame, an Arrow table or batch reader, any object that exports an Arrow
    stream (a Polars frame, a DuckDB result), or the path of a Parquet or CSV file or folder.
    `partitions` is the number of Spark tasks that will share the join; without it a rebuild keeps
    the number that the relation has, and a new relation gets 8. Rows whose key is null match
    nothing and are left out; duplicate keys are kept. `progress` is called with the number of
    rows read so far; Spark builds do not call it.

    `order` is the order of the rows: by ``key``, or by ``frequency``, with the rows of the keys
    that the stream requests most on pages of their own, in front. For that, `sample` holds some
    rows of the stream, in any form that a source may have (a Spark DataFrame only if the source is
    one as well), with the key columns under the relation's names; other columns are ignored.

    `validity` names the two columns of a relation with versions that say from when to when a row is
    valid, ``("valid_from", "valid_to")``; `semistream.validity` has policies for versions that
    overlap and for gaps. A join with ``valid_at`` takes the version of an event's time.

    >>> import tempfile
    >>> products = pa.table({"product_id": [3, 1, 2], "name": ["c", "a", "b"]})
    >>> folder = tempfile.TemporaryDirectory()
    >>> build_relation(products, folder.name, key="product_id", partitions=2).row_count
    3
    >>> folder.cleanup()
    """
    options = build.BuildOptions.for_place(
        location,
        key,
        partitions,
        page_size=page_size,
        order=order,
        sample=sample,
        validity=validity,
    )
    if is_spark_frame(source):
        from semistream.spark.build import build_from_dataframe

        built = build_from_dataframe(source, location, options)
    else:
        built = build.build_snapshot(source, location, options, progress)
    return Relation(built.location, built.manifest)
