"""The delta of a partition: which codes have their rows on delta pages, and which rows are dead.

`semistream.relation.layout` says what delta pages are. Beside them a partition has one ``.delta``
file, written anew by each upsert that touches the partition: an Arrow table of one row, with three
columns of bytes::

    code     int64     each code with live rows on delta pages, ascending
    page     int32     the page on which the rows of that code begin, counted from the first delta
                       page of the partition
    dead     1 bit     of each row of the partition, base and segments: whether it is dead

Joins that scan R read only the last one. Those that read pages by index merge the first two of all
their partitions with the hot index (`CodePages`).

Memory: a bit a row of R where rows are dead; the merged index is `semistream.relation.codepages`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from semistream.jit import njit
from semistream.relation.layout import Delta, PartitionInfo, snapshot_path
from semistream.relation.pagetable import StoredColumns, read_columns
from semistream.relation.storage import Store

Codes = NDArray[np.int64]
Bits = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class DeltaContent:
    """What a ``.delta`` file holds."""

    codes: Codes  # ascending
    pages: NDArray[np.int32]  # of each code, from the partition's first delta page
    dead: NDArray[np.bool_]  # by row of the partition


def delta_path(snapshot: str, delta: Delta) -> str:
    """Return the path of a ``.delta`` file inside the relation of a manifest's `snapshot`."""
    return snapshot_path(delta.home or snapshot, f"{delta.files}.delta")


def write_delta(
    store: Store,
    snapshot: str,
    files: str,
    segments: Sequence[PartitionInfo],
    content: DeltaContent,
) -> Delta:
    """Write the ``.delta`` file of a partition into a new snapshot; it is durable."""
    columns = {
        "code": content.codes.tobytes(),
        "page": content.pages.tobytes(),
        "dead": np.packbits(content.dead, bitorder="little").tobytes(),
    }
    schema = pa.schema([(name, pa.large_binary()) for name in columns])
    arrays = [pa.array([value], pa.large_binary()) for value in columns.values()]
    image = pa.BufferOutputStream()
    with pa.ipc.new_file(image, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    body = image.getvalue()
    file = store.create(snapshot_path(snapshot, f"{files}.delta"))
    try:
        file.write(body)
        file.commit()
    finally:
        file.abandon()
    return Delta(
        segments=tuple(segments),
        files=files,
        code_count=len(content.codes),
        dead_rows=int(np.count_nonzero(content.dead)),
        checksum=crc32(body),
    )


def read_delta(store: Store, snapshot: str, info: PartitionInfo) -> DeltaContent:
    """Read all of a ``.delta`` file; `ValueError` or an error of Arrow if it is damaged."""
    assert info.delta is not None
    found = read_columns(
        store, delta_path(snapshot, info.delta), info.delta.checksum, ["code", "page", "dead"]
    )
    dead = np.unpackbits(dead_bits(found), count=info.stored_rows, bitorder="little")
    return DeltaContent(*index_of(found, info.delta), dead.view(np.bool_))


def index_of(found: StoredColumns, delta: Delta) -> tuple[Codes, NDArray[np.int32]]:
    """Return codes and pages of a ``.delta`` file, as views."""
    codes: Codes = np.frombuffer(_bytes(found, "code"), np.int64)
    pages: NDArray[np.int32] = np.frombuffer(_bytes(found, "page"), np.int32)
    if len(codes) != delta.code_count or len(pages) != delta.code_count:
        raise ValueError("its number of codes is not the manifest's")
    return codes, pages


def dead_bits(found: StoredColumns) -> Bits:
    """Return the bitmap of a ``.delta`` file, as a view."""
    return np.frombuffer(_bytes(found, "dead"), np.uint8)


def _bytes(found: StoredColumns, name: str) -> Any:
    return found.first(name).as_buffer()


@njit(cache=True)
def copy_bits(source, count, target, at):  # type: ignore[no-untyped-def]
    """Copy bits to another place, which may be anywhere within a byte; the target is zero there."""
    shift = at % 8
    to = at // 8
    for i in range((count + 7) // 8):
        byte = np.uint16(source[i])
        left = count - 8 * i
        if left < 8:
            byte &= np.uint16((1 << left) - 1)
        moved = byte << np.uint16(shift)
        target[to + i] |= np.uint8(moved & 0xFF)
        if moved > 0xFF:
            target[to + i + 1] |= np.uint8(moved >> 8)


@njit(cache=True)
def keep_live(dead, first_row, rows, others):  # type: ignore[no-untyped-def]
    """Keep the pairs whose row is not dead, in place; return how many there are.

    Rows are counted from `first_row`.
    """
    kept = 0
    for i in range(len(rows)):
        row = rows[i] + first_row
        is_live = (dead[row >> 3] >> np.uint8(row & 7)) & 1 == 0
        rows[kept] = rows[i]
        others[kept] = others[i]
        kept += is_live
    return kept


def are_live(dead: Bits, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of some rows are not dead; all, if there is no bitmap."""
    if not len(dead):
        return np.ones(len(rows), np.bool_)
    live: NDArray[np.bool_] = (dead[rows >> 3] >> (rows & 7).astype(np.uint8)) & 1 == 0
    return live
