"""A Spark driver that enriches a topic: reads JSON from Kafka, joins, writes Parquet, and ends."""

import json
import sys

from pyspark.sql import functions as F  # noqa: N812

import semistream as ss
from tests.services.session import session


def main(settings: str, address: str, topic: str, schema: str, relation: str, folder: str) -> None:
    spark = session(folder, ["kafka"], settings)
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 2_000)
        .load()
    )
    sales = source.select(F.from_json(F.col("value").cast("string"), schema).alias("sale"))
    query = (
        ss.enrich(sales.select("sale.*"), relation, algorithm="meshjoin")
        .writeStream.option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{folder}/out", "parquet")
    )
    query.awaitTermination()
    rows = [p.numInputRows for p in query.recentProgress if p.numInputRows]
    print(json.dumps(rows))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
