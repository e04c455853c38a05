"""Run as a program: join a long stream within a budget and print by how much the process grew."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import semistream as ss
from semistream.embedded import prepare

BATCH_ROWS = 10_000


def stream(kind: str, keys: int, batches: int) -> Iterator[pa.RecordBatch]:
    """Yield small batches, none of which anybody holds on to."""
    rng = np.random.default_rng(11)
    for _ in range(batches):
        ids = rng.integers(0, keys, BATCH_ROWS)
        if kind == "skewed":
            ids //= rng.integers(1, 200, BATCH_ROWS) ** 2
        if kind == "misses":  # all but one lie beyond the relation's keys
            ids[1:] += 10 * keys
        columns = {"id": ids, "quantity": ids.astype(np.int32)}
        if kind == "texts":
            columns["note"] = pa.array(ids).cast(pa.string())
        yield pa.record_batch(columns)


def status(field: str) -> int:
    """Return a size from the process's status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return 1024 * int(value.split()[0])
    raise KeyError(field)


def run(relation: ss.Relation, algorithm: str, kind: str, batches: int, memory: int) -> int:
    """Join, let go of the output, and return the most that the ledger had on its books."""
    source = stream(kind, relation.row_count, batches)
    operator, source = prepare(source, relation, memory=memory, algorithm=algorithm)
    assert operator is not None
    for _ in operator.join(source):
        pass
    return operator.telemetry.memory_bytes_peak


def main(location: str, algorithm: str, kind: str, memory: int, batches: int) -> None:
    relation = ss.Relation.open(location)
    run(relation, algorithm, kind, batches=2, memory=4_000_000)  # loads the kernels
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = status("VmRSS")
    booked = run(relation, algorithm, kind, batches, memory)
    print(json.dumps({"growth": status("VmHWM") - before, "booked": booked}))


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5]))
