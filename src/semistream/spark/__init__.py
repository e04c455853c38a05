"""Semistream on Spark. The only package that imports pyspark."""

from semistream.spark.enrichment import enrich, enrich_with
from semistream.spark.maintaining import maintain
from semistream.spark.workers import configure_spark
from semistream.spark.workloads import register_workloads, workload_relation

__all__ = [
    "configure_spark",
    "enrich",
    "enrich_with",
    "maintain",
    "register_workloads",
    "workload_relation",
]
