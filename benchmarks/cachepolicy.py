"""The front stage's two cache policies, ours and the paper's, by counted device time.

R is read as the papers do, whole pages at a time, from an emulated disk; computing is not counted.
Rates and hit ratios are those of the second half of the stream. In the last stream all keys change
their popularity after a quarter of it.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import semistream as ss
from benchmarks.report import Report
from semistream.embedded import prepare
from semistream.joins.protocols import Operator
from semistream.relation.device import EmulatedDevice, Reading
from semistream.workload.zipf import scatter, zipf_ranks

POLICIES = ("competing", "paper")
ALGORITHMS = ("cmeshjoin", "chybridjoin")
SHARES = (0.03, 0.1)
STREAMS = {"Zipf 0.5": 0.5, "Zipf 1": 1.0, "Zipf 1.2": 1.2, "Zipf 1, redrawn": 1.0}
_DEVICE = "hdd-2007"
_TIMES = 10  # smaller than in the papers: R, and the cost of a request
_BATCH_ROWS = 4_096


def main() -> None:
    """Compare the policies for all streams, algorithms and budgets."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cachepolicy", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the stream, to try it out")
    scale = 5 if parser.parse_args().quick else 1
    relation_rows, stream_rows = 350_000, 1_000_000 // scale
    report = Report("cachepolicy", {"relation_rows": relation_rows, "stream_rows": stream_rows})
    rows = []
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder:
        keys = np.arange(relation_rows)
        table = pa.table({"k": keys, **{f"c{i}": keys * 3 + i for i in range(14)}})
        place = Path(folder) / "r.rel"
        relation = ss.build_relation(table, place, key="k", partitions=1, page_size="16KB")
        for name, exponent in STREAMS.items():
            stream = _keys(name, exponent, relation_rows, stream_rows)
            for algorithm in ALGORITHMS:
                for share in SHARES:
                    about = (relation, stream, algorithm, share)
                    found = {policy: _measured(*about, policy) for policy in POLICIES}
                    for policy, (rate, hits) in found.items():
                        contestant = f"{algorithm}, {policy}"
                        figures = {"stream": name, "share": share, "rate": rate, "hits": hits}
                        report.add(contestant, **figures)
                    (ours, hits), (papers, paper_hits) = (found[policy] for policy in POLICIES)
                    ratios = [f"{hits:.1%}", f"{paper_hits:.1%}"]
                    rates = [f"{ours:,.0f}", f"{papers:,.0f}", f"{ours / papers:.2f}"]
                    rows.append([name, algorithm, f"{share:.0%}", *ratios, *rates])
    columns = ["stream", "algorithm", "memory", "hits, ours", "hits, paper"]
    columns += ["tuples/s, ours", "tuples/s, paper", "ours / paper"]
    report.show(f"Cache policies, counted time on {_DEVICE}", columns, rows)


def _keys(name: str, exponent: float, domain: int, total: int) -> np.ndarray:
    """Return the stream's keys."""
    keys = scatter(zipf_ranks(np.random.default_rng(3), total, domain, exponent), domain)
    if "redrawn" in name:
        keys[total // 4 :] = (keys[total // 4 :] + domain // 3) % domain
    return keys


def _measured(
    relation: ss.Relation, stream: np.ndarray, algorithm: str, share: float, policy: str
) -> tuple[float, float]:
    """Return tuples per second of the device's time, and the hit ratio, of the second half."""
    device = EmulatedDevice.named(_DEVICE).shrunk(_TIMES)
    read = relation.read_by(Reading(device, whole_pages=True))
    half: list[tuple[float, int]] = []  # time and hits when half of the stream has been read
    started: list[Operator] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, len(stream), _BATCH_ROWS):
            if first >= len(stream) // 2 and not half:
                half.append((device.now_s, started[0].telemetry.front_hits))
            keys = stream[first : first + _BATCH_ROWS]
            yield pa.record_batch({"k": keys, "n": np.arange(first, first + len(keys))})

    settings = {"cache_policy": policy}
    memory = int(share * relation.size_bytes)
    about = {"columns": ["c0", "c1"], "algorithm": algorithm, "settings": settings}
    operator, source = prepare(batches(), read, memory=memory, **about)
    assert operator is not None
    started.append(operator)
    seen = np.zeros(len(stream), np.bool_)
    for batch in operator.join(source):
        numbers = batch.column("n").to_numpy()
        seen[numbers] = True
        if not np.array_equal(batch.column("c1").to_numpy(), stream[numbers] * 3 + 1):
            raise AssertionError("a wrong answer")
    if not seen.all() or operator.telemetry.output_rows != len(stream):
        raise AssertionError("rows are missing")
    (at_half_s, hits_at_half), later = half[0], len(stream) - len(stream) // 2
    hits = (operator.telemetry.front_hits - hits_at_half) / later
    return later / (device.now_s - at_half_s), hits


if __name__ == "__main__":
    main()
