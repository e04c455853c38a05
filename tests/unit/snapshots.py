"""Relations of several snapshots, and lease files as other processes would write them."""

import json
import os
from pathlib import Path

import pyarrow as pa

import semistream as ss
from semistream.relation.leases import Holder

DAY_S = 86_400.0
TABLE = pa.table({"id": list(range(20)), "text": ["x"] * 20})


def build(location: Path) -> ss.Relation:
    return ss.build_relation(TABLE, location, key="id", partitions=2)


def lease_files(relation: ss.Relation) -> list[Path]:
    return list((Path(relation.location) / "leases").glob("*/*"))


def make_older(path: Path, seconds: float) -> None:
    modified_at = path.stat().st_mtime - seconds
    os.utime(path, (modified_at, modified_at))


def manifest(relation: ss.Relation) -> Path:
    return Path(relation.location) / "snapshots" / relation.snapshot / "manifest.json"


def is_there(relation: ss.Relation) -> bool:
    return manifest(relation).exists()


def write_lease(relation: ss.Relation, kind: str, **changes: object) -> Path:
    """Write a lease as a process of another machine would."""
    holder = Holder("other-host", "another machine", 1, "1")
    body = {name: getattr(holder, name) for name in Holder.__slots__} | changes
    folder = Path(relation.location) / "leases" / relation.snapshot
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"0123.{kind}"
    path.write_text(json.dumps(body))
    return path
