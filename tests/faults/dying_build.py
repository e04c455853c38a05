"""Run as a program: rebuild a relation and die by SIGKILL, or by a full disk, at a given stage."""

import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import semistream as ss
from semistream.relation import build

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
BATCHES = 20
STAGES = ["reading", "spooling", "writing", "manifest", "current"]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def source(stage: str) -> Iterator[pa.RecordBatch]:
    for i in range(BATCHES):
        if stage in ("reading", "spooling") and i == BATCHES // 2:
            die()
        ids = np.arange(1_000) + 1_000 * i
        yield pa.record_batch([pa.array(ids), pa.array([f"new {n}" for n in ids])], schema=SCHEMA)


def die_while_writing(location: Path) -> None:
    """Wait for the page table of some partition; hundreds of partitions are still to come."""
    old = set(location.rglob("*.pages"))
    while set(location.rglob("*.pages")) <= old:
        time.sleep(0.001)
    die()


def die_at(event: str, name: str) -> None:
    """Die as soon as Python is about to open a file of a name, or to rename one to it."""

    def watch(happened: str, details: tuple[Any, ...]) -> None:
        paths = [os.path.basename(p) for p in details if isinstance(p, str)]  # noqa: PTH119
        if happened == event and any(p.lstrip(".").startswith(name) for p in paths):
            die()

    sys.addaudithook(watch)


def main(location: Path, stage: str) -> None:
    if stage == "spooling":
        build.SPOOL_BYTES = 10_000
    elif stage == "writing":
        threading.Thread(target=die_while_writing, args=[location], daemon=True).start()
    elif stage == "manifest":
        die_at("open", "manifest.json-")
    elif stage == "current":
        die_at("os.rename", "CURRENT")
    elif stage.isdigit():  # a disk on which no file can get larger than this
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(stage), int(stage)))
    reader = pa.RecordBatchReader.from_batches(SCHEMA, source(stage))
    ss.build_relation(reader, location, key="id", partitions=400 if stage == "writing" else 2)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
