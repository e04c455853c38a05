"""Which keys may differ between two snapshots of a relation: for what is kept of the older one."""

import numpy as np
from numpy.typing import NDArray

from semistream.relation.deltas import read_delta
from semistream.relation.layout import PartitionInfo
from semistream.relation.relation import Relation


def changed_codes(old: Relation, new: Relation, partition: int) -> NDArray[np.int64] | None:
    """Return the codes of a partition whose rows may differ, ascending; None if any may.

    Cheap while the partition was only upserted: its delta and some key codes are read. None says
    that it was written anew since, or has other columns.
    """
    if old.schema != new.schema or old.partition_count != new.partition_count:
        return None
    before, after = (r.manifest.partitions[partition].seen_from(r.snapshot) for r in (old, new))
    if before == after:
        return np.zeros(0, np.int64)
    if _files(before)[:1] != _files(after)[:1] or after.delta is None:
        return None
    shared = _shared(before, after)
    rows = sum(segment.row_count for segment in after.segments[:shared])
    pages = sum(segment.page_count for segment in after.segments[1:shared])
    content = read_delta(new.store, new.snapshot, after)
    was_dead = np.zeros(rows, np.bool_)
    if before.delta is not None:
        was_dead[:] = read_delta(old.store, old.snapshot, before).dead[:rows]
    died = np.flatnonzero(content.dead[:rows] & ~was_dead)
    moved = content.codes[content.pages >= pages]
    return np.unique(np.concatenate([moved, _codes_of(new, partition, died)]))


def _files(info: PartitionInfo) -> list[tuple[str, str]]:
    return [(segment.home, segment.files) for segment in info.segments]


def _shared(before: PartitionInfo, after: PartitionInfo) -> int:
    """Return how many of the first segments both have."""
    pairs = zip(_files(before), _files(after), strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(_files(before)))


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
