"""Folds a topic of changes into a relation, in the two runs of a query; run by `test_kafka.py`."""

import sys

import semistream as ss
from tests.services.session import session


def main(settings: str, address: str, topic: str, relation: str, folder: str) -> None:
    spark = session(folder, ["kafka"], settings)
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address)
    source = source.option("subscribe", topic).option("startingOffsets", "earliest")
    changes = source.option("maxOffsetsPerTrigger", 40).load()
    query = ss.maintain(
        changes, relation, checkpoint=f"{folder}/checkpoint", trigger="available now"
    )
    query.awaitTermination()
    print(len([p for p in query.recentProgress if p.numInputRows]))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
