"""Semistream: join a fast stream with a master table too big for memory, within a budget.

::

    import semistream as ss

    products = ss.build_relation(source, "products.rel", key="product_id")   # R, once
    enriched = ss.enrich(sales, products, on="product_id", memory="64MB")     # on Spark
    batches  = ss.join(batches, products, on="product_id", memory="20MB")     # without Spark
"""

from typing import TYPE_CHECKING, Any

from semistream import errors
from semistream.api import Relation, build_relation
from semistream.conditions.condition import between, similar, where
from semistream.databases.source import sql_table
from semistream.embedded import join
from semistream.extras import needs_extra
from semistream.joins.shedding import shedding
from semistream.logs import log_json
from semistream.relation.validity import validity
from semistream.tables import delta_changes, delta_table, delta_version, iceberg_table
from semistream.version import __version__

if TYPE_CHECKING:
    from semistream.pipeline.model import Pipeline
    from semistream.spark import (
        add_columns,
        configure_spark,
        enrich,
        enrich_star,
        enrich_with,
        maintain,
        mark_duplicates,
        mark_new,
        surrogate_key,
    )
    from semistream.spark.exporting import serve_metrics
    from semistream.spark.pipeline.running import run_pipeline, start_pipeline

_ON_SPARK = (
    *("add_columns", "configure_spark", "enrich", "enrich_star", "enrich_with", "maintain"),
    *("mark_duplicates", "mark_new", "surrogate_key"),
)

__all__ = [
    "Pipeline",
    "Relation",
    "__version__",
    "add_columns",
    "between",
    "build_relation",
    "configure_spark",
    "delta_changes",
    "delta_table",
    "delta_version",
    "enrich",
    "enrich_star",
    "enrich_with",
    "errors",
    "iceberg_table",
    "join",
    "log_json",
    "maintain",
    "mark_duplicates",
    "mark_new",
    "run_pipeline",
    "serve_metrics",
    "shedding",
    "similar",
    "sql_table",
    "start_pipeline",
    "surrogate_key",
    "validity",
    "where",
]


def __getattr__(name: str) -> Any:
    """Import what needs an extra when it is first used."""
    if name == "Pipeline":
        with needs_extra("spark", "semistream.Pipeline"):
            from semistream.pipeline.model import Pipeline
        return Pipeline
    if name in ("run_pipeline", "start_pipeline"):
        with needs_extra("spark", f"semistream.{name}"):
            from semistream.spark.pipeline import running
        return getattr(running, name)
    if name == "serve_metrics":
        with needs_extra("metrics", f"semistream.{name}"):
            from semistream.spark import exporting
        return exporting.serve_metrics
    if name in _ON_SPARK:
        with needs_extra("spark", f"semistream.{name}"):
            from semistream import spark

        return getattr(spark, name)
    raise AttributeError(f"module 'semistream' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names only."""
    return sorted(__all__)
