"""Workloads on Spark: generated streams to try a pipeline with before the real one exists."""

from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

from semistream.errors import OptionError
from semistream.spark.parallelism import parallelism

if TYPE_CHECKING:
    from semistream.spark.source import WorkloadSource


def register_workloads(spark: SparkSession) -> None:
    """Register the format ``semistream-workload`` with a session, for streams and for tables.

    ::

        register_workloads(spark)
        sales = (
            spark.readStream.format("semistream-workload")
            .option("workload", "zipf")
            .option("relation_rows", 1_000_000)
            .option("rate", 50_000)
            .load()
        )
    """
    spark.dataSource.register(_source_for(spark))


def workload_relation(spark: SparkSession, name: str, **options: Any) -> DataFrame:
    """Return the relation that a workload's stream refers to. One task generates it.

    ::

        products = workload_relation(spark, "zipf", relation_rows=1_000_000)
        ss.build_relation(products, "products.rel", key="k", partitions=8)
    """
    register_workloads(spark)
    reader = spark.read.format("semistream-workload").option("workload", name)
    return reader.options(**options).option("table", "relation").load()


def _source_for(spark: SparkSession) -> "type[WorkloadSource]":
    """Return the source with as many partitions by default as the session has cores."""
    try:
        from semistream.spark.source import WorkloadSource
    except ImportError as error:
        raise OptionError(
            f"workloads as a source need PySpark 4.2 or newer; this is {pyspark.__version__}. "
            "'semistream generate' writes them to files and to Kafka for any version"
        ) from error

    class SessionSource(WorkloadSource):
        default_partitions = parallelism(spark)

    return SessionSource
