"""Semistream on Spark. The only package that imports pyspark."""

from semistream.spark.enrich import enrich, enrich_with

__all__ = ["enrich", "enrich_with"]
