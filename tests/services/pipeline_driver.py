"""Runs pipelines of a file one after the other in one Spark session; run by `test_pipeline.py`."""

import json
import sys
from pathlib import Path

import semistream as ss
from semistream.spark.pipeline.running import pipeline_session
from tests.services.ivy import one_at_a_time


def main(path: str) -> None:
    pipelines = [ss.Pipeline(**given) for given in json.loads(Path(path).read_text())]
    with one_at_a_time():
        spark = pipeline_session(pipelines[0], pipelines[0].secrets())
    for pipeline in pipelines:
        query = ss.run_pipeline(pipeline, spark=spark)
        print(len([p for p in query.recentProgress if p.numInputRows]))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
