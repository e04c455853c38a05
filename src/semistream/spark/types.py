"""Between Spark's types and Arrow's."""

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema, to_arrow_type
from pyspark.sql.types import DataType, StructType

from semistream.errors import ColumnError


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark hands rows to Python."""
    return to_arrow_schema(schema, timezone="UTC")


def spark_type(field: pa.Field) -> DataType:
    """Return the Spark type that carries an Arrow column, or say that there is none."""
    try:
        return from_arrow_type(field.type, prefer_timestamp_ntz=True)
    except PySparkTypeError as error:
        raise ColumnError(
            f"column {field.name!r} of the relation has Arrow type {field.type}, which Spark has "
            "no type for; leave it out of columns, or cast it before building the relation"
        ) from error


def wire_type(field: pa.Field) -> pa.DataType:
    """Return the Arrow type in which Spark takes a column back; often the column's own."""
    return to_arrow_type(spark_type(field), timezone="UTC")
