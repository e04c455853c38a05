"""The public face of a relation: build it from any source, open it, ask what a budget buys.

The layers below know only what they need of R: `semistream.relation` its files, `advice` the
predictions, `spark` the executors. This module puts them together and is on top of all of them.
"""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from semistream.advice.explain import Explanation, explain
from semistream.extras import needs_extra
from semistream.relation import build, relation
from semistream.relation.layout import Order
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

    def explain(
        self,
        *,
        memory: int | str,
        rate: float | None = None,
        skew: float | None = None,
        sample: pa.Table | None = None,
        on: On | None = None,
        columns: Columns | None = None,
        batch: int | None = None,
    ) -> Explanation:
        """Return what a budget buys: algorithms ranked by predicted rate, the split, alternatives.

        `skew` is a Zipf exponent; a `sample` of the stream, a table with its key, says more. With
        `batch`, the rows of a micro-batch, also how long that takes and what it reads. See
        `semistream.advice.explain`.
        """
        return explain(
            self,
            memory=memory,
            rate=rate,
            skew=skew,
            sample=sample,
            on=on,
            columns=columns,
            batch=batch,
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


def build_relation(
    source: Any,
    location: str | os.PathLike[str],
    *,
    key: str | Sequence[str],
    partitions: int | None = None,
    page_size: int | str = build.DEFAULT_PAGE_BYTES,
    order: Order = "key",
    sample: Any = None,
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

    >>> import tempfile
    >>> products = pa.table({"product_id": [3, 1, 2], "name": ["c", "a", "b"]})
    >>> folder = tempfile.TemporaryDirectory()
    >>> build_relation(products, folder.name, key="product_id", partitions=2).row_count
    3
    >>> folder.cleanup()
    """
    options = build.BuildOptions.for_place(
        location, key, partitions, page_size=page_size, order=order, sample=sample
    )
    if is_spark_frame(source):
        from semistream.spark.build import build_from_dataframe

        built = build_from_dataframe(source, location, options)
    else:
        built = build.build_snapshot(source, location, options, progress)
    return Relation(built.location, built.manifest)
