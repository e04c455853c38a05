"""Joins a table in a database on Spark and prints all that it can; run by `test_credentials.py`."""

import logging
import sys

import semistream as ss
from tests.services.session import session


def main(url: str, table: str, folder: str) -> None:
    logging.basicConfig(level=logging.DEBUG)
    spark = session(folder)
    relation = ss.Relation.sql(url, table, key="k")
    sales = spark.createDataFrame([(1,), (2,), (99,)], "k long")
    frame = ss.enrich(sales, relation, memory="40MB")
    frame.explain("formatted")
    print(frame._jdf.queryExecution().toString())
    print(f"{frame.count()} rows were joined")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
