"""Folds a topic of changes into a relation, in the two runs of a query; run by `test_kafka.py`."""

import sys

from pyspark.sql import SparkSession

import semistream as ss


def main(jars: str, address: str, topic: str, relation: str, checkpoint: str) -> None:
    builder = SparkSession.Builder().master("local[2]").config("spark.jars", jars)
    builder = builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address)
    source = source.option("subscribe", topic).option("startingOffsets", "earliest")
    changes = source.option("maxOffsetsPerTrigger", 40).load()
    query = ss.maintain(changes, relation, checkpoint=checkpoint, trigger="available now")
    query.awaitTermination()
    print(len([p for p in query.recentProgress if p.numInputRows]))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
