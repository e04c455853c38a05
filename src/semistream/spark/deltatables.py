"""The format ``semistream-delta``: rows of a Delta table as a stream, without Delta's own package.

Delta's package is built for one version of Spark each, and comes later than Spark. This source
needs the Python package `deltalake` only.
"""

import pyspark
from pyspark.sql import SparkSession

from semistream.errors import OptionError

DELTA = "semistream-delta"


def register_delta(spark: SparkSession) -> None:
    """Register the format with a session."""
    try:
        from semistream.spark.deltasource import DeltaSource
    except ImportError as error:
        raise OptionError(
            f"a Delta table as a stream needs PySpark 4.2 or newer; this is {pyspark.__version__}"
        ) from error

    spark.dataSource.register(DeltaSource)
