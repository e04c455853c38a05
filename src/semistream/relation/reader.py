"""Reads pages of a snapshot into memory that the caller owns.

A `PageReader` spans one partition (in a Spark task) or all of them (embedded): its pages are
numbered 0 … ``page_count`` in one sequence, partition after partition. Each partition has its hot
pages first, if the relation is ordered by frequency, then its clustered pages, sorted by key code
(`semistream.relation.layout`), then its delta pages, if rows were changed. A code is found in two
steps: among `listed_codes`, which name the page, hot or delta; else by a binary search in
`first_codes` over the partition's clustered pages. Rows that are `dead` are dropped. Only the page
table and the requested parts are read. A part of a page is checked against its CRC-32 the first
time this process reads it; files of a snapshot never change.

Memory: the page table, the bitmap of dead rows and the hot index, 12 bytes a hot code, belong to
the reader and are counted by the join (`table_bytes`); the delta index is counted by `PageIndex`,
which needs it. All other bytes go into the caller's buffers. `page_table_bound` gives the most
memory of loading them in advance: one partition after the other, only the needed columns.
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.columns import width_bytes
from semistream.errors import CorruptRelationError, SemistreamError
from semistream.relation.codepages import CodeBits, CodePages, Form
from semistream.relation.device import Reading
from semistream.relation.failures import reading_failed
from semistream.relation.layout import Manifest, PartitionInfo, part_names
from semistream.relation.leases import hold_for_reading
from semistream.relation.listed import Listed
from semistream.relation.mapped import MappedFile
from semistream.relation.openfiles import MOST_OPEN, OpenFiles
from semistream.relation.pagetable import (
    CODES,
    PageTable,
    StoredColumns,
    file_path,
    is_fixed,
    parts_of,
    present_parts,
    read_columns,
)
from semistream.relation.parts import Part, remember_checked
from semistream.relation.storage import NativePageFile, PageFile, Store
from semistream.relation.writer import CODE_BYTES

_SAMPLED_PAGES = 32  # that tell how much of R is in the page cache
_SAMPLED_OF_A_PART = 4  # at the least, if several parts are asked about


class PageReader:
    """The pages of some partitions of a snapshot, as one numbered sequence."""

    def __init__(
        self,
        store: Store,
        manifest: Manifest,
        partitions: Sequence[int],
        columns: Sequence[str],
        reading: Reading | None = None,
    ) -> None:
        """Load the page table for these partitions and columns; no page is read yet."""
        self.manifest = manifest
        self.reading = reading or Reading()  # which device, and how it is read
        self._store = store
        infos = [manifest.partitions[p] for p in partitions]
        self._partitions = [info for info in infos if info.row_count]  # the others have no files
        # Their files: of each partition the base, then its segments of delta pages.
        self._infos = [segment for info in self._partitions for segment in info.segments]
        self._hold = hold_for_reading(store, manifest.snapshot)  # keeps `prune` away
        # Open files, by the position in `_infos` and the kind: key codes or data.
        self._files = OpenFiles(self._open_file, MOST_OPEN if store.is_local else None)
        # The page table, by name of the part; a part without bytes on any page is left out.
        self._parts: dict[str, Part] = {}
        # The greatest size of a part over a number of pages, in its units, once it was asked for.
        self._most_units: dict[tuple[str, int], int] = {}
        # Where the last page of a part ends, by the part's name and the position in `_infos`.
        self._ends: dict[tuple[str, int], int] = {}
        # Rows before each page, and all rows at the end.
        self.row_bounds: NDArray[np.int64] = np.zeros(1, np.int64)
        # The sparse index: the least code of each page.
        self.first_codes: NDArray[np.int64] = np.zeros(0, np.int64)
        # The position in `_infos` of each page's partition.
        self._file_index: NDArray[np.int32] = np.zeros(0, np.int32)
        self._listed = Listed(store, manifest.snapshot, self._partitions, self._read_table)
        # A bit for each row: whether it is dead, not a row of R any more; empty if none is.
        self.dead: NDArray[np.uint8] = self._listed.read_dead()
        self._load(present_parts(store, manifest, self._infos, parts_of(manifest, columns)))

    @property
    def page_count(self) -> int:
        """N_R of the papers: the number of pages that a cycle reads."""
        return len(self.row_bounds) - 1

    @property
    def row_count(self) -> int:
        """The number of rows on the pages."""
        return int(self.row_bounds[-1])

    @property
    def code_range(self) -> tuple[int, int]:
        """The least and the greatest key code, or (0, -1) without rows."""
        if not self._infos:
            return (0, -1)
        return (
            min(info.first_code for info in self._infos),
            max(info.last_code for info in self._infos),
        )

    def may_hold(self, codes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which codes the range of codes and the empty partitions do not rule out."""
        first, last = self.code_range
        possible: NDArray[np.bool_] = (codes >= first) & (codes <= last)
        has_pages = np.zeros(len(self.manifest.partitions), np.bool_)
        has_pages[[info.index for info in self._infos]] = True
        return possible if has_pages.all() else possible & has_pages[codes % len(has_pages)]

    @property
    def has_unique_codes(self) -> bool:
        """Whether no two rows share a key code."""
        return all(info.most_duplicates <= 1 for info in self._infos)

    @property
    def rows_per_key(self) -> float:
        """The average number of rows of a key."""
        return self.row_count / max(1, sum(info.distinct_codes for info in self._infos))

    @property
    def hot_codes(self) -> NDArray[np.int64]:
        """The hot index: the codes on hot pages, ascending and each once."""
        return self._listed.hot_codes

    @property
    def hot_pages(self) -> NDArray[np.int32]:
        """The hot page of each hot code."""
        return self._listed.hot_pages

    def listed_codes(self) -> CodePages:
        """Return the codes on hot and delta pages with their pages; read and merged anew."""
        return self._listed.merged(self.code_range)

    def listed_bits(self) -> CodeBits | None:
        """Return which codes are on hot and delta pages; None where that takes much memory."""
        return self._listed.bits(self.code_range) if self.listed_form.bits_bytes else None

    def split_listed(self, first: int, last: int) -> Iterator[tuple[int, int, bool]]:
        """Split pages into clustered ones and those of listed codes, which are marked."""
        return self._listed.split(first, last)

    @property
    def listed_form(self) -> Form:
        """The form and the size of what `listed_codes` returns."""
        return self._listed.form(self.code_range)

    def partition_page_bounds(self) -> NDArray[np.int64]:
        """Return each partition's first and last (exclusive) clustered page; equal without any."""
        bounds = np.zeros((len(self.manifest.partitions), 2), np.int64)
        for at, info in zip(self._listed.starts, self._partitions, strict=True):
            bounds[info.index] = at + info.hot_pages, at + info.page_count
        return bounds

    def clustered_stretches(self) -> list[tuple[int, int]]:
        """Return the runs of pages, first and last (exclusive), in which codes ascend."""
        ends = np.cumsum([info.page_count for info in self._infos]).tolist()
        return [
            (end - info.page_count + info.hot_pages, end)
            for end, info in zip(ends, self._infos, strict=True)
        ]

    def places_in_partition(self, pages: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the position of each of these pages in its own partition."""
        places: NDArray[np.int64] = pages - np.searchsorted(
            self._file_index, self._file_index[pages]
        )
        return places

    def crowding(self, shift: int) -> float:
        """Return the number of rows that share ``code >> shift`` with a row, averaged over rows."""
        if not self.row_count:
            return 0.0
        squares = sum(info.squared_loads[shift] for info in self._infos)
        # Partitions interleave: a run of codes is spread over all of them.
        return squares * len(self._partitions) / self.row_count

    @property
    def table_bytes(self) -> int:
        """Memory of the page table, the sparse index, the hot index and the bitmap."""
        return (
            self.row_bounds.nbytes
            + self.first_codes.nbytes
            + self._file_index.nbytes
            + self.dead.nbytes
            + self.hot_codes.nbytes
            + self.hot_pages.nbytes
            + sum(part.own_bytes for part in self._parts.values())
            + self._store.buffer_bytes
        )

    def part_bytes(self, part: str, first: int, last: int) -> int:
        """Return the size of a part of pages ``first … last - 1``; 0 for an absent validity."""
        return self._parts[part].size_bytes(first, last) if part in self._parts else 0

    def most_part_bytes(self, part: str, page_count: int) -> int:
        """Return the greatest size of a part over any `page_count` consecutive pages."""
        span = min(page_count, self.page_count)
        if not span or part not in self._parts:
            return 0
        ends = self._parts[part].ends
        # Parts of a fixed width share their ends, the running row count.
        key = ("" if ends is self.row_bounds else part, span)
        if key not in self._most_units:
            self._most_units[key] = int((ends[span:] - ends[: len(ends) - span]).max())
        return self._most_units[key] * self._parts[part].unit_bytes

    def page_sizes(self) -> NDArray[np.int64]:
        """Return the size in bytes of each page: its key codes, and the columns that are read."""
        sizes = np.zeros(self.page_count, np.int64)
        for part in self._parts.values():
            sizes += np.diff(part.ends) * part.unit_bytes
        return sizes

    def check_again(self) -> None:
        """Compare all pages with their checksums, also those that this process has checked."""
        for part in self._parts.values():
            part.checked[:] = False

    def average_value_bytes(self, column: str) -> float:
        """Return the size of a value of a stored column, averaged over all rows."""
        index = self.manifest.schema.get_field_index(column)
        names = part_names(index, self.manifest.schema.field(index).type).values()
        total = sum(self.part_bytes(name, 0, self.page_count) for name in names)
        return total / max(1, self.row_count)

    def has_nulls(self, column: str) -> bool:
        """Return whether any page has a null in a column that is read."""
        index = self.manifest.schema.get_field_index(column)
        names = part_names(index, self.manifest.schema.field(index).type)
        return "validity" not in names or names["validity"] in self._parts

    def pages_per_stretch(self, columns: Sequence[str]) -> float:
        """Return the number of pages of a column that lie together, averaged over columns."""
        names = [name for name in parts_of(self.manifest, columns) if name in self._parts]
        if not names or not self.page_count:
            return float(max(1, self.page_count))
        pieces = [
            sum(1 for _ in self._stretches(self._parts[n], 0, self.page_count)) for n in names
        ]
        return self.page_count * len(pieces) / sum(pieces)

    def read_codes(self, first: int, last: int, out: NDArray[np.int64]) -> int:
        """Read the key codes of pages ``first … last - 1``; return their number."""
        return self.read_part(CODES, first, last, out.view(np.uint8)) // CODE_BYTES

    def read_part(self, name: str, first: int, last: int, out: NDArray[np.uint8]) -> int:
        """Read a part of pages ``first … last - 1`` back to back into `out`; return its bytes."""
        part = self._parts[name]
        view = out.data
        for a, b in self._stretches(part, first, last):
            at = part.size_bytes(first, a)
            size = part.size_bytes(a, b)
            if size == 0:
                continue
            file = self._file(int(self._file_index[a]), name)
            try:
                got = file.read_into(int(part.offsets[a]), view[at : at + size])
            except OSError as error:
                raise self._failure(int(self._file_index[a]), name, error) from error
            if got < size:
                reached = int(part.ends[a]) + got // part.unit_bytes
                self._report_damage(name, int(np.searchsorted(part.ends, reached, "right")) - 1)
        pages = np.arange(first, last)
        starts = (part.ends[first:last] - part.ends[first]) * part.unit_bytes
        self.check_pages(part, pages, out, starts)
        return part.size_bytes(first, last)

    @property
    def reads_values(self) -> bool:
        """Whether a request costs so little that single values can be read."""
        return self._store.is_local and self.reading.device is None

    @property
    def may_map(self) -> bool:
        """Whether rows can be looked at where they lie in the page cache."""
        return self.reads_values and self.reading.in_place

    @property
    def most_gap_bytes(self) -> int:
        """How many bytes between two parts are read rather than skipped."""
        is_queried = self._store.is_queried
        return 0 if is_queried else self.reading.most_gap_bytes(self._store.is_local)

    def part(self, name: str) -> Part | None:
        """Return the places of a part of all pages; None if no page has it."""
        return self._parts.get(name)

    def end_in_file(self, pages: NDArray[np.int64], first: int) -> int:
        """Return up to which of some pages, which ascend, all lie in one file."""
        file_index = self._file_index[pages[first]]
        return int(np.searchsorted(pages, np.searchsorted(self._file_index, file_index, "right")))

    def descriptor_of(self, pages: NDArray[np.int64]) -> int | None:
        """Return a descriptor of the data file of some pages, which ascend, to read them natively.

        None if they lie in several files, or the file is not read as it is. It is valid until the
        reader is asked for another page.
        """
        file_index = int(self._file_index[pages[0]])
        if file_index != self._file_index[pages[-1]]:
            return None
        file = self._file(file_index, "data")
        return file.descriptor if isinstance(file, NativePageFile) else None

    def uncached_share(self, rng: np.random.Generator) -> float:
        """Return the share of R that is not in the page cache, by a sample of its pages.

        Another one each time: asking whether a page is there may bring it there.
        """
        if not self.page_count:
            return 0.0
        pages = np.unique(rng.integers(0, self.page_count, _SAMPLED_PAGES))
        cached = tried = 0
        for part in self._parts.values():
            for file_index in np.unique(self._file_index[pages]).tolist():
                some = pages[self._file_index[pages] == file_index]
                cached += self._file(file_index, part.name).count_cached(part.offsets[some])
                tried += len(some)
        return 1 - cached / tried

    def map_cached(self, parts: Sequence[Part], pages: NDArray[np.int64]) -> MappedFile | None:
        """Map the file in which parts of some pages lie, if these are in the page cache.

        Few of them are asked about. The pages lie in one file.
        """
        if not self.may_map:
            return None
        sampled = max(_SAMPLED_OF_A_PART, _SAMPLED_PAGES // len(parts))
        some = pages[:: -(-len(pages) // sampled)]
        offsets = np.concatenate([part.offsets[some] for part in parts])
        file_index = int(self._file_index[pages[0]])
        end = max(self._end_of(part, file_index) for part in parts)
        return self._file(file_index, parts[0].name).map_cached(offsets, end)

    def _end_of(self, part: Part, file_index: int) -> int:
        """Return where a part of the last page in a file ends."""
        key = (part.name, file_index)
        if key not in self._ends:
            pages = np.flatnonzero(self._file_index == file_index)
            self._ends[key] = int((part.offsets[pages] + part.sizes_of(pages)).max())
        return self._ends[key]

    def read_requests(
        self, part: Part, page: int, requests: NDArray[np.int64], out: NDArray[np.uint8]
    ) -> None:
        """Read requests (offset, size, place in `out`) from the file of a page."""
        file_index = int(self._file_index[page])
        try:
            complete = self._file(file_index, part.name).read_all(requests, out)
        except OSError as error:
            raise self._failure(file_index, part.name, error) from error
        if not complete:
            self._report_damage(part.name, page)

    def check_pages(
        self,
        part: Part,
        pages: NDArray[np.int64],
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
    ) -> None:
        """Compare a part of some pages, which begins at `starts`, with its checksums, once."""
        damaged = part.first_damaged(pages, data, starts)
        if damaged is not None:
            self._report_damage(part.name, damaged)

    def announce(self, name: str, first: int, last: int) -> None:
        """Say that a part of pages ``first … last - 1`` will be read soon."""
        part = self._parts.get(name)
        if part is not None:
            for a, b in self._stretches(part, first, last):
                file = self._file(int(self._file_index[a]), name)
                file.announce(int(part.offsets[a]), part.size_bytes(a, b))

    def close(self) -> None:
        """Close all files, and allow the snapshot to be pruned."""
        self._files.close()
        self._hold.release()

    def _load(self, names: list[str]) -> None:
        """Fill the page table, partition after partition."""
        page_count = sum(info.page_count for info in self._infos)
        if not page_count:
            return
        table = PageTable(page_count, names)
        self.row_bounds = np.zeros(page_count + 1, np.int64)
        self.first_codes = np.empty(page_count, np.int64)
        counts = [info.page_count for info in self._infos]
        self._file_index = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        at = 0
        for info in self._infos:
            found = self._read_page_table(info, names)
            pages = slice(at, at + info.page_count)
            rows = found["rows"]
            self.row_bounds[at + 1 : at + 1 + info.page_count] = rows
            self.first_codes[pages] = found["first_code"]
            table.offsets[CODES][pages] = _code_offsets(rows, info.hot_pages)
            table.fill(pages, found)
            at += info.page_count
        np.cumsum(self.row_bounds, out=self.row_bounds)
        self._parts[CODES] = self._part(table, CODES, CODE_BYTES)
        for name in names:
            if is_fixed(name):
                self._parts[name] = self._part(table, name, self._width(name))
            elif table.ends[name].any():
                self._parts[name] = self._part(table, name)

    def _width(self, name: str) -> int:
        """Return the bytes of a row of a part in which all rows have as many."""
        index, _, kind = name.partition(".")
        return 4 if kind == "lengths" else width_bytes(self.manifest.schema.field(int(index)).type)

    def _part(self, table: "PageTable", name: str, unit_bytes: int | None = None) -> Part:
        """Return a part; without `unit_bytes` its sizes differ from row to row."""
        ends = self.row_bounds
        if unit_bytes is None:
            ends, unit_bytes = table.ends[name], 1
            np.cumsum(ends, out=ends)
        checksums = table.checksums[name]
        files = [self._store.path(self._path(info, name)) for info in self._infos]
        checked = remember_checked(tuple(files), [info.page_count for info in self._infos])
        checked |= self._store.is_queried  # there are no checksums
        return Part(name, table.offsets[name], ends, unit_bytes, checksums, checked)

    def _read_page_table(self, info: PartitionInfo, names: list[str]) -> StoredColumns:
        path, checksum = self._path(info, "pages"), info.page_table_checksum
        found = self._read_table("page table", path, checksum, PageTable.columns(names))
        if len(found["rows"]) != info.page_count:
            raise self._unreadable("page table", path, "its number of pages is not the manifest's")
        return found

    def _read_table(self, what: str, path: str, checksum: int, columns: list[str]) -> StoredColumns:
        """Read columns of a file of arrays, or raise why that is not possible."""
        try:
            return read_columns(self._store, path, checksum, columns)
        except OSError as error:
            raise self._explained(path, error) from error
        except (pa.ArrowException, KeyError, ValueError, IndexError) as error:
            raise self._unreadable(what, path, str(error)) from error

    def _unreadable(self, what: str, path: str, why: str) -> CorruptRelationError:
        return CorruptRelationError(
            f"the {what} {self._store.path(path)} cannot be read ({why}); "
            f"rebuild snapshot {self.manifest.snapshot}"
        )

    def _stretches(self, part: Part, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Split a range of pages into runs that lie together in one file."""
        # Offsets ascend from page to page, but for one step back behind the hot pages: a range
        # that is as long in the file as its pages together lies in one piece.
        end = int(part.offsets[last - 1]) + part.size_bytes(last - 1, last)
        in_one_file = self._file_index[first] == self._file_index[last - 1]
        if in_one_file and end - int(part.offsets[first]) == part.size_bytes(first, last):
            yield (first, last)
            return
        sizes = np.diff(part.ends[first:last]) * part.unit_bytes
        apart = (part.offsets[first : last - 1] + sizes != part.offsets[first + 1 : last]) | (
            self._file_index[first : last - 1] != self._file_index[first + 1 : last]
        )
        bounds = [first, *(np.flatnonzero(apart) + first + 1).tolist(), last]
        yield from itertools.pairwise(bounds)

    def _file(self, file_index: int, part: str) -> PageFile:
        try:
            return self._files.get((file_index, CODES if part == CODES else "data"))
        except OSError as error:
            raise self._failure(file_index, part, error) from error

    def _open_file(self, key: tuple[int, str]) -> PageFile:
        file_index, kind = key
        path = self._path(self._infos[file_index], kind)
        return self.reading.open(self._store.open_pages(path), path)

    def _failure(self, file_index: int, part: str, error: OSError) -> SemistreamError:
        kind = CODES if part == CODES else "data"
        return self._explained(self._path(self._infos[file_index], kind), error)

    def _explained(self, path: str, error: OSError) -> SemistreamError:
        refusal = self._hold.lease.refusal
        return reading_failed(self._store, self.manifest.snapshot, path, error, refusal)

    def _report_damage(self, part: str, page: int) -> None:
        file_index = int(self._file_index[page])
        info = self._infos[file_index]
        page_in_partition = page - sum(i.page_count for i in self._infos[:file_index])
        kind = "codes" if part == CODES else "data"
        if part == CODES:
            what = "key codes"
        else:
            index, _, part_kind = part.partition(".")
            what = f"column {self.manifest.schema.field(int(index)).name!r} ({part_kind})"
        raise CorruptRelationError(
            f"page {page_in_partition} of partition {info.index} is damaged: its {what} in "
            f"{self._store.path(self._path(info, kind))} do not match their checksum or are cut "
            f"off; rebuild snapshot {self.manifest.snapshot}"
        )

    def _path(self, info: PartitionInfo, kind: str) -> str:
        return file_path(self.manifest, info, kind)


def _code_offsets(rows: NDArray[np.int64], hot_pages: int) -> NDArray[np.int64]:
    """Return where the codes of each page of a partition lie: those of hot pages come last.

    >>> _code_offsets(np.array([2, 5, 4]), 1).tolist()
    [72, 0, 40]
    """
    rolled = np.roll(rows, -hot_pages) if hot_pages else rows
    offsets: NDArray[np.int64] = (np.cumsum(rolled) - rolled) * CODE_BYTES
    return np.roll(offsets, hot_pages) if hot_pages else offsets
