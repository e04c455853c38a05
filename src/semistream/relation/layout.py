"""The files of a relation, and the manifest that describes a snapshot.

::

    products.rel/
      CURRENT                          the id of the snapshot that readers open
      snapshots/<id>/manifest.json     what this module reads and writes
      snapshots/<id>/part-….codes      key codes of a partition, sorted, 8 bytes a row
      snapshots/<id>/part-….data       extents: the parts of each column, page after page
      snapshots/<id>/part-….pages      the page table: rows, first code, offsets, checksums

A *page* is a run of rows of at most ``page_bytes`` (a single wider row gets a page of its own).
An *extent* is a run of pages whose columns lie together, so that reading one column of many
consecutive pages is one read. The page table's first codes are the sparse clustered index.
"""

import base64
import json
import zlib
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from semistream.columns import Encoding, encoding_of
from semistream.errors import CorruptRelationError, RelationFormatError
from semistream.keys import KeyCoder

FORMAT_VERSION = 1
CURRENT = "CURRENT"
SNAPSHOTS = "snapshots"

PARTS = {
    Encoding.FIXED: ("values", "validity"),
    Encoding.BYTES: ("lengths", "data", "validity"),
    Encoding.NESTED: ("message",),
}


def snapshot_path(snapshot: str, name: str = "") -> str:
    """Return the path of a snapshot's file inside the relation."""
    return f"{SNAPSHOTS}/{snapshot}/{name}".rstrip("/")


def part_names(field_index: int, dtype: pa.DataType) -> dict[str, str]:
    """Return part → name in the page table, for the column at this place in the schema."""
    return {part: f"{field_index}.{part}" for part in PARTS[encoding_of(dtype)]}


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """What the manifest knows about one partition."""

    index: int
    files: str  # the common prefix of its file names; empty if it has no rows
    row_count: int
    page_count: int
    size_bytes: int
    distinct_codes: int
    most_duplicates: int
    first_code: int
    last_code: int
    # For each shift 0 … 63: the sum, over all values v of (code >> shift), of (rows with v)².
    squared_loads: tuple[int, ...] = (0,) * 64
    page_table_checksum: int = 0  # CRC-32 of the .pages file


@dataclass(frozen=True, slots=True)
class Manifest:
    """One snapshot of a relation."""

    snapshot: str
    created_at: str
    schema: pa.Schema
    key: tuple[str, ...]
    page_bytes: int
    null_keys_dropped: int
    partitions: tuple[PartitionInfo, ...]

    @property
    def coder(self) -> KeyCoder:
        """The coder that made the stored key codes."""
        return KeyCoder.for_columns([self.schema.field(k).type for k in self.key], self.key)

    @property
    def stored_fields(self) -> list[int]:
        """Indexes of the columns that are stored; a lone integer key is kept as its code only."""
        implied = self.key[0] if self.coder.is_exact else None
        return [i for i, field in enumerate(self.schema) if field.name != implied]

    def to_json(self) -> str:
        """Return the manifest as text."""
        body = {
            "format_version": FORMAT_VERSION,
            "snapshot": self.snapshot,
            "created_at": self.created_at,
            "key": list(self.key),
            "page_bytes": self.page_bytes,
            "null_keys_dropped": self.null_keys_dropped,
            "columns": {field.name: str(field.type) for field in self.schema},
            "arrow_schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
            "partitions": [asdict(p) for p in self.partitions],
        }
        return json.dumps({**body, "checksum": _checksum(body)}, indent=1)

    @classmethod
    def from_json(cls, text: bytes, where: str) -> "Manifest":
        """Read a manifest, or say what is wrong with it."""
        try:
            body: dict[str, Any] = json.loads(text)
            version = int(body["format_version"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptRelationError(_damaged(where, error)) from error
        if version > FORMAT_VERSION:
            raise RelationFormatError(
                f"{where} has format {version}, but this version of semistream reads up to "
                f"{FORMAT_VERSION}; upgrade semistream, or rebuild the relation with this version"
            )
        try:
            if body.pop("checksum") != _checksum(body):
                raise ValueError("its checksum does not match")
            return cls._from_body(body)
        except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise CorruptRelationError(_damaged(where, error)) from error

    @classmethod
    def _from_body(cls, body: dict[str, Any]) -> "Manifest":
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(body["arrow_schema"])))
        return cls(
            snapshot=body["snapshot"],
            created_at=body["created_at"],
            schema=schema,
            key=tuple(body["key"]),
            page_bytes=body["page_bytes"],
            null_keys_dropped=body["null_keys_dropped"],
            partitions=tuple(PartitionInfo(**p) for p in body["partitions"]),
        )


def _checksum(body: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(body).encode())


def _damaged(where: str, error: Exception) -> str:
    return f"{where} is not a manifest ({error}); rebuild it"
