"""Semistream on Spark. The only package that imports pyspark."""

from semistream.spark.enrichment import enrich, enrich_with
from semistream.spark.maintaining import maintain
from semistream.spark.star import enrich_star, plan_star
from semistream.spark.surrogates import surrogate_key
from semistream.spark.transforms import add_columns, mark_duplicates, mark_new
from semistream.spark.workers import configure_spark
from semistream.spark.workloads import register_workloads, workload_relation

__all__ = [
    "add_columns",
    "configure_spark",
    "enrich",
    "enrich_star",
    "enrich_with",
    "maintain",
    "mark_duplicates",
    "mark_new",
    "plan_star",
    "register_workloads",
    "surrogate_key",
    "workload_relation",
]
