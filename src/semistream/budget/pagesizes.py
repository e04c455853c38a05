"""The size of R's pages in the disk buffer: their key codes, and the columns that are fetched."""

from collections.abc import Sequence

from semistream.budget.rowsizes import NESTED_COPIES
from semistream.columns import Encoding, encoding_of, width_bytes
from semistream.relation.layout import part_names
from semistream.relation.pagetable import CODES, parts_of
from semistream.relation.read_kernels import UNIT_BYTES
from semistream.relation.reader import PageReader
from semistream.relation.writer import CODE_BYTES

_ALIGN = 64
MOST_PLANNED_BYTES = 1 << 21
MOST_MAPPED_BYTES = 4 * UNIT_BYTES
_GAPS_IN_BUFFER = 16


def disk_buffer_bytes(
    reader: PageReader, columns: Sequence[str], pages: int, tallies: bool = False
) -> int:
    """Return the size of a disk buffer of this many pages."""
    arena = arena_bytes(reader, columns, pages)
    codes = reader.most_part_bytes(CODES, pages)
    return codes + arena + (codes // CODE_BYTES if tallies else 0)


def arena_bytes(reader: PageReader, columns: Sequence[str], pages: int) -> int:
    """Return the size of the memory that columns of this many pages are read into."""
    if reader.reading.whole_pages:
        return sum(slab_bytes(reader, c, pages) for c in reader.manifest.schema.names)
    return max((max(_slab_parts(reader, c, pages)) for c in columns), default=0)


def planned_parts(reader: PageReader, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the parts of pages that look-ups read: the key codes, and those of some columns."""
    return (CODES, *parts_of(reader.manifest, columns))


def planned_shares(reader: PageReader, parts: Sequence[str], pages: int) -> tuple[int, int]:
    """Return the sizes of the buffers of look-ups, for the key codes and other parts of `pages`.

    Each is at most `MOST_PLANNED_BYTES`, which fits the processor's cache, or more where requests
    are expensive, so that a few of the gaps between pages fit too. A page always fits.
    """
    most_bytes = max(MOST_PLANNED_BYTES, _GAPS_IN_BUFFER * reader.most_gap_bytes)
    codes, *others = (
        max(min(reader.most_part_bytes(p, pages), most_bytes), reader.most_part_bytes(p, 1))
        for p in parts
    )
    return codes, max([codes, *others])


def planned_mapping(reader: PageReader, pages: int) -> int:
    """Return how much of a file look-ups may map at a time, in the disk buffer of `pages`.

    None of a file that cannot be mapped.
    """
    return mapped_bytes(reader.most_part_bytes(CODES, pages)) if reader.may_map else 0


def mapped_bytes(codes_bytes: float) -> int:
    """Return how much may be mapped, given the size of the key codes of a disk buffer's pages.

    That is what they take beyond a buffer, in whole units, and at least two.
    """
    units = int(min(codes_bytes - MOST_PLANNED_BYTES, MOST_MAPPED_BYTES) // UNIT_BYTES)
    return UNIT_BYTES * units if units > 1 else 0


def planned_bytes(reader: PageReader, parts: Sequence[str], pages: int) -> int:
    """Return the size of all."""
    return sum(planned_shares(reader, parts, pages)) + planned_mapping(reader, pages)


def slab_bytes(reader: PageReader, column: str, pages: int) -> int:
    """Return the most memory of one column over any run of this many pages."""
    return sum(_slab_parts(reader, column, pages))


def _slab_parts(reader: PageReader, column: str, pages: int) -> tuple[int, int]:
    """Return the same in two parts: lengths with the starts of rows, and everything else."""
    schema = reader.manifest.schema
    index = schema.get_field_index(column)
    if index not in reader.manifest.stored_fields:
        return 0, 0
    names = part_names(index, schema.field(index).type)
    sizes = {
        part: aligned_bytes(reader.most_part_bytes(name, pages)) for part, name in names.items()
    }
    row_bytes = reader.most_part_bytes(CODES, pages)  # 8 bytes a row, as the start of a row
    if "validity" in names and reader.most_part_bytes(names["validity"], reader.page_count):
        sizes["validity"] += aligned_bytes(row_bytes // 8)
    lengths = sizes.pop("lengths", 0)
    return lengths + aligned_bytes(row_bytes) * (lengths > 0), sum(sizes.values())


def widest_row_bytes(reader: PageReader, columns: Sequence[str]) -> int:
    """Return a bound on the size of a row's variable-width values when they are fetched.

    A value is no larger than the largest page of its column; a wide row has a page of its own.
    """
    schema = reader.manifest.schema
    size = 0
    for index in (schema.get_field_index(column) for column in columns):
        names = part_names(index, schema.field(index).type)
        if "data" in names:
            size += reader.most_part_bytes(names["data"], 1)
        elif "message" in names:
            size += NESTED_COPIES * reader.most_part_bytes(names["message"], 1)
    return size


def value_bytes(reader: PageReader, column: str) -> float:
    """Return the size of a value of a relation's column in memory, on average over its pages."""
    dtype = reader.manifest.schema.field(column).type
    if encoding_of(dtype) is Encoding.FIXED:
        return width_bytes(dtype)
    return reader.average_value_bytes(column)


def aligned_bytes(size: int) -> int:
    """Return a size rounded up, so that whatever follows is aligned."""
    return -(-size // _ALIGN) * _ALIGN
