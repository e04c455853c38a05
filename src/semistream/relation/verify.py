"""Verifying a snapshot: every byte against its checksum, every key code against its place.

Readers check the checksum of a page when they first read it, and only of the columns they need.
This reads all of them, a few megabytes at a time, and goes on after damage, so that the result
names all of it. Beyond checksums it checks what joins rely on and a wrong build would break:

1.  every code belongs to its partition (code mod P),
2.  codes ascend within each page, and from page to page where pages are clustered,
3.  each page begins with the code that the page table says,
4.  rows of hot keys lie where the hot index says, and nowhere else,
5.  rows, distinct codes, and the least and the greatest code are those of the manifest,
6.  the live rows of a code that was changed lie on the delta pages that the delta index says, and
    nowhere else.

The base of a partition and each segment of delta pages are verified by themselves, then the delta.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.errors import CorruptRelationError, StorageError
from semistream.relation.deltas import read_delta
from semistream.relation.hot import find
from semistream.relation.layout import Manifest, PartitionInfo
from semistream.relation.pagetable import CODES, parts_of
from semistream.relation.reader import PageReader
from semistream.relation.storage import Store
from semistream.relation.writer import CODE_BYTES

_CHUNK_BYTES = 8 << 20  # of pages that are read at a time
Progress = Callable[[int, int], None]  # bytes verified, bytes of all


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of `Relation.verify`; true if nothing is wrong."""

    snapshot: str  # its id
    row_count: int
    page_count: int
    size_bytes: int  # that were read
    problems: list[str] = field(default_factory=list)  # what is wrong, a sentence each

    def __bool__(self) -> bool:
        """Whether the snapshot is intact."""
        return not self.problems


def verify(store: Store, manifest: Manifest, progress: Progress | None = None) -> Verification:
    """Read all of a snapshot and return what is wrong with it."""
    total = sum(segment.size_bytes for segment in manifest.segments)
    problems: list[str] = []
    done = 0
    for info in manifest.partitions:
        for segment in info.segments:
            before = done
            for size in _verify_segment(store, manifest, segment, problems):
                done += size
                if progress:
                    progress(done, total)
            done = before + segment.size_bytes  # also if it could not be read to its end
        if info.delta is not None and not problems:
            problems += _verify_delta(store, manifest, info)
    rows = sum(info.live_rows for info in manifest.partitions)
    pages = sum(segment.page_count for segment in manifest.segments)
    return Verification(manifest.snapshot, rows, pages, total, problems)


def _verify_delta(store: Store, manifest: Manifest, info: PartitionInfo) -> list[str]:
    """Return what is wrong with the delta index and the dead rows of a partition."""
    where = f"the delta of partition {info.index}"
    try:
        content = read_delta(store, manifest.snapshot, info)
        reader = PageReader(store, manifest, [info.index], [])
    except (OSError, ValueError, KeyError, IndexError, pa.ArrowException) as error:
        return [f"{where} cannot be read ({error}); rebuild snapshot {manifest.snapshot}"]
    except (CorruptRelationError, StorageError) as error:
        return [str(error)]
    wrong: list[str] = []
    codes_seen, pages_seen = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    try:
        for first, last in _pieces(reader, info):
            codes = np.empty(int(reader.row_bounds[last] - reader.row_bounds[first]), np.int64)
            reader.read_codes(first, last, codes)
            rows = np.arange(reader.row_bounds[first], reader.row_bounds[last])
            live = ~content.dead[rows]
            if first < info.page_count:
                if (find(content.codes, codes[live]) >= 0).any():
                    wrong.append(f"{where} leaves rows alive that it has replaced")
            else:
                pages = np.searchsorted(reader.row_bounds, rows[live], "right") - 1
                codes_seen.append(codes[live])
                pages_seen.append(pages - info.page_count)
    finally:
        reader.close()
    codes, places = np.unique(np.concatenate(codes_seen), return_index=True)
    pages = np.concatenate(pages_seen)[places]
    if not (np.array_equal(codes, content.codes) and np.array_equal(pages, content.pages)):
        wrong.append(f"{where} does not find the rows that are on delta pages")
    assert info.delta is not None
    if int(content.dead.sum()) != info.delta.dead_rows:
        wrong.append(f"{where} has another number of dead rows than was written down")
    return [f"{what}; rebuild snapshot {manifest.snapshot}" for what in dict.fromkeys(wrong)]


def _pieces(reader: PageReader, info: PartitionInfo) -> Iterator[tuple[int, int]]:
    """Cut the pages of a partition into pieces, the base apart from delta pages."""
    bounds, first = reader.row_bounds, 0
    while first < reader.page_count:
        end = int(np.searchsorted(bounds, bounds[first] + _CHUNK_BYTES // CODE_BYTES, "right")) - 1
        end = max(first + 1, end)
        if first < info.page_count:
            end = min(end, info.page_count)
        yield first, end
        first = end


def _verify_segment(
    store: Store, manifest: Manifest, info: PartitionInfo, problems: list[str]
) -> Iterator[int]:
    """Verify one segment; yield the size in bytes of each piece once it was read."""
    info = replace(info, delta=None)
    alone = [info if p.index == info.index else p for p in manifest.partitions]
    manifest = replace(manifest, partitions=tuple(alone))
    try:
        reader = PageReader(store, manifest, [info.index], manifest.schema.names)
    except (CorruptRelationError, StorageError) as error:
        problems.append(str(error))
        return
    try:
        reader.check_again()
        yield from _Partition(reader, info, problems).verify()
    except StorageError as error:  # the device fails: the rest of the partition would, too
        problems.append(str(error))
    finally:
        reader.close()


class _Partition:
    """One partition while it is verified."""

    def __init__(self, reader: PageReader, info: PartitionInfo, problems: list[str]) -> None:
        self._reader = reader
        self._info = info
        self._problems = problems  # what is wrong; this adds to it
        names = parts_of(reader.manifest, reader.manifest.schema.names)
        self._parts = [name for name in names if reader.part_bytes(name, 0, reader.page_count)]
        self._buffer = np.empty(0, np.uint8)
        self._is_readable = True  # whether all codes so far could be read
        self._last: int | None = None  # the last code of the clustered pages so far
        self._distinct = 0  # codes so far
        self._hot_seen = 0  # codes of hot pages so far
        self._range = (2**63 - 1, -(2**63))  # the least and the greatest code so far

    def verify(self) -> Iterator[int]:
        ends = np.cumsum(self._reader.page_sizes())
        first = 0
        while first < self._reader.page_count:
            before = int(ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + _CHUNK_BYTES, "right")))
            # Hot and clustered pages are apart: they follow different rules.
            if first < self._info.hot_pages:
                last = min(last, self._info.hot_pages)
            self._verify_pages(first, last)
            yield int(ends[last - 1]) - before
            first = last
        self._verify_totals()

    def _verify_pages(self, first: int, last: int) -> None:
        codes = self._read(CODES, first, last)
        if codes is None:
            self._is_readable = False
        else:
            self._verify_codes(codes.view(np.int64), first, last)
        for name in self._parts:
            self._read(name, first, last)

    def _read(self, name: str, first: int, last: int) -> NDArray[np.uint8] | None:
        """Return a part of some pages; None if it is damaged, which is noted."""
        size = self._reader.part_bytes(name, first, last)
        if size > len(self._buffer):
            self._buffer = np.empty(-(-size // CODE_BYTES) * CODE_BYTES, np.uint8)
        try:
            self._reader.read_part(name, first, last, self._buffer)
        except CorruptRelationError as error:
            self._problems.append(str(error))
            return None
        return self._buffer[:size]

    def _verify_codes(self, codes: NDArray[np.int64], first: int, last: int) -> None:
        partitions = len(self._reader.manifest.partitions)
        bounds = self._reader.row_bounds[first : last + 1] - self._reader.row_bounds[first]
        starts = bounds[:-1]
        self._expect(
            codes % partitions == self._info.index, first, bounds, "has rows of other partitions"
        )
        is_hot = first < self._info.hot_pages
        ascends = np.ones(len(codes), np.bool_)
        ascends[1:] = codes[1:] >= codes[:-1]
        if is_hot:
            ascends[starts] = True
        elif self._last is not None:
            ascends[0] = codes[0] >= self._last
        self._expect(ascends, first, bounds, "is not in the order of its key codes")
        self._expect(
            codes[starts] == self._reader.first_codes[first:last],
            first,
            np.arange(last - first + 1),
            "does not begin with the key code that the page table says",
        )
        self._verify_hot(codes, first, bounds, is_hot)
        self._range = min(self._range[0], int(codes.min())), max(self._range[1], int(codes.max()))
        is_new = is_hot or codes[0] != self._last
        self._distinct += int((codes[1:] != codes[:-1]).sum()) + int(is_new)
        if not is_hot:
            self._last = int(codes[-1])

    def _verify_hot(
        self, codes: NDArray[np.int64], first: int, bounds: NDArray[np.int64], is_hot: bool
    ) -> None:
        index = self._reader.hot_codes
        if not len(index):
            return
        places = np.minimum(np.searchsorted(index, codes), len(index) - 1)
        listed = index[places] == codes
        if is_hot:
            pages = np.repeat(np.arange(first, first + len(bounds) - 1), np.diff(bounds))
            found = listed & (self._reader.hot_pages[places] == pages)
            self._expect(found, first, bounds, "has rows that the hot index does not find")
            self._hot_seen += len(np.unique(codes))
        else:
            self._expect(~listed, first, bounds, "has rows that belong on a hot page")

    def _expect(
        self, holds: NDArray[np.bool_], first: int, bounds: NDArray[np.int64], what: str
    ) -> None:
        """Note the first page for which something does not hold."""
        if not holds.all():
            row = int(np.argmin(holds))
            page = first + int(np.searchsorted(bounds, row, "right")) - 1
            self._note(f"page {page} of partition {self._info.index} {what}")

    def _verify_totals(self) -> None:
        if not self._is_readable:
            return
        info, reader = self._info, self._reader
        found = {
            "rows": (reader.row_count, info.row_count),
            "distinct key codes": (self._distinct, info.distinct_codes),
            "least key code": (self._range[0], info.first_code),
            "greatest key code": (self._range[1], info.last_code),
            "hot key codes": (self._hot_seen, len(reader.hot_codes)),
        }
        for what, (is_, should_be) in found.items():
            if is_ != should_be:
                self._note(
                    f"partition {info.index} has {is_:,} as its {what}, where {should_be:,} was "
                    "written down"
                )

    def _note(self, what: str) -> None:
        snapshot = self._reader.manifest.snapshot
        self._problems.append(f"{what}; rebuild snapshot {snapshot}")
