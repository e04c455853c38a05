"""Run as a program: join a relation, and stop in the middle until a line comes in.

Prints ``reading`` once the join runs, and in the end how many rows it gave, or what went wrong.
"""

import sys
from collections.abc import Iterator

import pyarrow as pa

import semistream as ss
from semistream.errors import SemistreamError


def stream(rows: int) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"id": list(range(rows))})
    yield pa.record_batch({"id": pa.array([], pa.int64())})  # join what there is
    print("reading", flush=True)
    sys.stdin.readline()
    yield pa.record_batch({"id": list(range(rows))})


def main(location: str, rows: int) -> None:
    relation = ss.Relation.open(location)
    try:
        batches = ss.join(stream(rows), relation, how="inner", algorithm="meshjoin", memory="1MB")
        print(sum(batch.num_rows for batch in batches), flush=True)
    except SemistreamError as error:
        print(type(error).__name__, error, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
