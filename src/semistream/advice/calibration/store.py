"""Stored calibrations: one file for each host, device, relation's schema and stream's schema."""

import hashlib
import json
import os
import socket
import tempfile
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from semistream.advice.calibration.record import Calibration
from semistream.cost.factors import CostFactors, FrontCosts, IoCurve, RequestCosts, StepCosts
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec

FOLDER_VARIABLE = "SEMISTREAM_CACHE"
_FORMAT = 5


def store(calibration: Calibration, relation: Relation, spec: JoinSpec) -> Path:
    """Keep a calibration for this host."""
    content = json.dumps({"format": _FORMAT, **asdict(calibration)}, indent=1)
    return write_atomically(_path(relation, spec), content)


def write_atomically(path: Path, content: str) -> Path:
    """Write a file that readers see whole or not at all; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(content)
    Path(file.name).replace(path)
    return path


def load(relation: Relation, spec: JoinSpec) -> Calibration | None:
    """Return what is stored for this host, a relation's device and a join's schema, if anything.

    If nothing is for streams like this one, one for others is still better than none.
    """
    path = _path(relation, spec)
    if path.exists():
        return _read(path)
    others = sorted(path.parent.glob("*.json"), key=lambda p: p.stat().st_mtime, reverse=True)
    found = (_read(other) for other in others)
    return next((c for c in found if c is not None), None)


def _read(path: Path) -> Calibration | None:
    about = path.stat()
    return _read_once(path, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=64)
def _read_once(path: Path, modified_ns: int, size: int) -> Calibration | None:
    """Read a file, unless this process has read it and it was not replaced."""
    try:
        stored = json.loads(path.read_text())
        if stored.pop("format") != _FORMAT:
            return None
        return Calibration(**{**stored, "factors": _factors(stored["factors"])})
    except (ValueError, KeyError, TypeError):
        return None  # of another version, or cut off: ignored


def device_of(relation: Relation) -> str:
    """Return what distinguishes the device of a relation from others on this host."""
    if "://" in relation.location:
        return "/".join(relation.location.split("/")[:3])
    return f"device {Path(relation.location).stat().st_dev}"


def _path(relation: Relation, spec: JoinSpec) -> Path:
    """Return the file of the calibration for a device and a schema: types matter, names do not."""
    added = [relation.schema.field(name).type for name in spec.columns]
    key = [relation.schema.field(name).type for name in relation.key]
    about = [
        device_of(relation),
        [str(t) for t in key],
        sorted(str(t) for t in added),
        relation.manifest.page_bytes,
        relation.reading.whole_pages,
        spec.adds_columns,
    ]
    stream = [str(t) for t in spec.stream_schema.types]
    return host_folder() / _digest(about) / f"{_digest(stream)}.json"


def host_folder() -> Path:
    """Return the folder of what was measured on this host."""
    cache = os.environ.get(FOLDER_VARIABLE) or str(
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "semistream"
    )
    return Path(cache) / "calibration" / socket.gethostname()


def _digest(about: object) -> str:
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:12]


def _factors(stored: dict[str, Any]) -> CostFactors:
    def points(name: str, kind: type[Any]) -> tuple[Any, ...]:
        return tuple(kind(**point) for point in stored[name])

    io: dict[str, Any] = stored["io"]
    return CostFactors(
        IoCurve(tuple(io["sizes_bytes"]), tuple(io["seconds"]), io["seek_s"]),
        points("scan", StepCosts),
        points("index", StepCosts),
        points("front", FrontCosts),
        points("pinned", FrontCosts),
        stored["resident_s"],
        points("look_up", StepCosts),
        RequestCosts(**stored["requests"]),
    )
