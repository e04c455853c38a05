"""Semistream on Spark. The only package that imports pyspark."""

from semistream.spark.enrichment import enrich, enrich_with

__all__ = ["enrich", "enrich_with"]
