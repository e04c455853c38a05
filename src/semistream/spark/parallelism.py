"""How many tasks a session runs at once: what the memory of a join is shared by."""

from dataclasses import dataclass
from functools import lru_cache

from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores that a session's tasks run on."""

    count: int
    can_grow: bool = False  # by dynamic allocation of executors

    @classmethod
    def of(cls, session: SparkSession) -> "Cores":
        """Return the cores that a session has now."""
        can_grow = session.conf.get("spark.dynamicAllocation.enabled", "false") == "true"
        return cls(parallelism(session), can_grow)


def parallelism(session: SparkSession) -> int:
    """Return Spark's default parallelism: the cores of all executors, unless set otherwise."""
    try:
        return session.sparkContext.defaultParallelism
    except PySparkAttributeError:
        return _counted(session)


@lru_cache(maxsize=8)
def _counted(session: SparkSession) -> int:
    """Count the parts of a range: Spark Connect has no context to ask."""
    return session.range(1000).select(F.spark_partition_id()).distinct().count()
