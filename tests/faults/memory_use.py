"""Run as a program: join streams within budgets and print by how much the process grew each time.

Reads cases as JSON from standard input, each a `Case` and where its relation is, and prints a line
of JSON for each. The stream is made before the process is measured: its batches belong to the
source, not to the join. What was freed goes back to the system before each case.
"""

import ctypes
import gc
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import semistream as ss
from semistream.advice.auto import AUTO
from semistream.advice.choice import CHOICES
from semistream.embedded import prepare
from semistream.errors import BudgetError
from tests.faults.memory_workloads import Case, relation_table


def status(field: str) -> int:
    """Return a size from the process's status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return 1024 * int(value.split()[0])
    raise KeyError(field)


def free_memory() -> int:
    """Give free memory back to the system, forget the peak, and return the size of the process."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def run(case: Case, relation: ss.Relation, batches: list[pa.RecordBatch]) -> dict[str, Any]:
    """Join, check each output batch and let go of it; return the counters."""
    options = {"how": case.how, "memory": case.memory, "algorithm": case.algorithm}
    options |= case.options
    most_bytes = 0
    try:
        operator, source = prepare(batches, relation, **options)
        assert operator is not None
        for batch in operator.join(source):
            batch.validate(full=True)
            most_bytes = max(most_bytes, batch.get_total_buffer_size())
    except BudgetError as error:
        return {"error": str(error)}
    counted = operator.telemetry
    return {
        "reserved": counted.memory_bytes_peak,
        "matched": counted.matched_pairs,
        "missed": counted.missed_rows,
        "retunings": counted.retunings,
        "most_bytes": most_bytes,
    }


def warm_up(case: Case) -> None:
    """Load the kernels and the libraries that a join of such columns needs."""
    small = replace(case, shape="small", rows=3_000, batch_rows=500, stream="even", share=0.0)
    with tempfile.TemporaryDirectory() as folder:
        relation = ss.build_relation(
            relation_table("small", case.kind), folder, key="k", partitions=2, page_size="4KB"
        )
        # `auto` may run any of them.
        names = [*CHOICES] if case.algorithm == AUTO else []
        for memory in (400_000, 30_000_000):  # `auto` holds R in memory or does not
            for name in [case.algorithm, *names]:
                run(replace(small, memory=memory, algorithm=name), relation, small.batches())


def main() -> None:
    cases = [(Case(**about["case"]), about["relation"]) for about in json.loads(sys.stdin.read())]
    # What is compiled or loaded later would count as growth.
    kinds = {(case.kind, case.algorithm, str(case.options)): case for case, _ in cases}
    for case in kinds.values():
        warm_up(case)
    for case, location in cases:
        relation = ss.Relation.open(location)
        batches = case.batches()
        expected = case.expected(batches)
        before = free_memory()
        found = run(case, relation, batches)
        found["growth"] = status("VmHWM") - before
        del batches
        print(json.dumps({**found, "expected": expected}), flush=True)


if __name__ == "__main__":
    main()
