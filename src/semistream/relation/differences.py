"""Which keys may differ between two snapshots of a relation: for what is kept of the older one."""

import numpy as np
from numpy.typing import NDArray

from semistream.relation.deltas import Bits, dead_bits, delta_path, index_of
from semistream.relation.layout import PartitionInfo
from semistream.relation.pagetable import read_columns
from semistream.relation.relation import Relation

_BYTES_PER_CODE = 3 * (8 + 4)  # as read, those that differ, and sorted


def changed_codes(old: Relation, new: Relation, partition: int) -> NDArray[np.int64] | None:
    """Return the codes of a partition whose rows may differ, ascending; None if any may.

    Cheap while the partition was only upserted: deltas and some key codes are read. None says that
    it was written anew since, or has other columns.
    """
    before, after = _partitions(old, new, partition)
    if before is None or after is None:
        return None
    if before == after:
        return np.zeros(0, np.int64)
    # 1. Codes whose rows are in a segment that only one of the snapshots has.
    shared = _shared(before, after)
    rows = sum(segment.row_count for segment in after.segments[:shared])
    pages = sum(segment.page_count for segment in after.segments[1:shared])
    changed, dead = [], np.zeros((2, -(-rows // 8)), np.uint8)
    for i, (relation, info) in enumerate(((old, before), (new, after))):
        codes, first_pages, bits = _read(relation, info)
        changed.append(codes[first_pages >= pages])
        some = bits[: dead.shape[1]]
        dead[i, : len(some)] = some
    # 2. Codes of rows that both have, and that live in one of them only.
    differ = _set_bits(dead[0] ^ dead[1])
    changed.append(_codes_of(new, partition, differ[differ < rows]))
    return np.unique(np.concatenate(changed))


def comparing_bytes(old: Relation, new: Relation, partition: int) -> int:
    """Return about how much memory `changed_codes` needs."""
    found = _partitions(old, new, partition)
    deltas = [(info, info.delta) for info in found if info is not None and info.delta is not None]
    return sum(_BYTES_PER_CODE * d.code_count + info.stored_rows // 4 for info, d in deltas)


def _partitions(
    old: Relation, new: Relation, partition: int
) -> tuple[PartitionInfo, PartitionInfo] | tuple[None, None]:
    """Return what both snapshots have of a partition; nothing if they cannot be compared."""
    if old.schema != new.schema or old.partition_count != new.partition_count:
        return None, None
    before, after = (r.manifest.partitions[partition].seen_from(r.snapshot) for r in (old, new))
    if before == after:
        return before, after
    return (before, after) if _shared(before, after) else (None, None)


def _shared(before: PartitionInfo, after: PartitionInfo) -> int:
    """Return how many of the first segments both have."""
    ours, theirs = ([(s.home, s.files) for s in info.segments] for info in (before, after))
    least = min(len(ours), len(theirs))
    return next((i for i in range(least) if ours[i] != theirs[i]), least)


def _read(
    relation: Relation, info: PartitionInfo
) -> tuple[NDArray[np.int64], NDArray[np.int32], Bits]:
    """Return the codes of a partition's delta, their pages, and which rows are dead, as bits."""
    if info.delta is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.uint8)
    path = delta_path(relation.snapshot, info.delta)
    names = ["code", "page", "dead"]
    found = read_columns(relation.store, path, info.delta.checksum, names)
    return *index_of(found, info.delta), dead_bits(found)


def _set_bits(bits: Bits) -> NDArray[np.int64]:
    """Return the numbers of the bits that are set."""
    some = np.flatnonzero(bits)
    which, bit = np.nonzero(np.unpackbits(bits[some], bitorder="little").reshape(-1, 8))
    numbers: NDArray[np.int64] = some[which] * 8 + bit
    return numbers


def _codes_of(relation: Relation, partition: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the codes of some rows of a partition."""
    reader = relation.reader([], partition)
    found = [np.zeros(0, np.int64)]
    try:
        bounds = reader.row_bounds
        for page in np.unique(np.searchsorted(bounds, rows, "right") - 1).tolist():
            codes = np.empty(int(bounds[page + 1] - bounds[page]), np.int64)
            reader.read_codes(page, page + 1, codes)
            begin, end = np.searchsorted(rows, bounds[page : page + 2]).tolist()
            found.append(codes[rows[begin:end] - bounds[page]])
    finally:
        reader.close()
    return np.concatenate(found)
