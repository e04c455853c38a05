"""The memory of `resident`, which holds all of R."""

from semistream.budget.pagesizes import slab_bytes, widest_row_bytes
from semistream.relation.reader import PageReader

_TABLE_BYTES_PER_ROW = 8 + 4 + 4
_BUFFER_BYTES = 1 << 20  # for input and output together, at least


def least_memory_bytes(reader: PageReader, columns: tuple[str, ...]) -> int:
    """Return the least budget to hold all of R's rows with these columns and to emit the widest."""
    widest = widest_row_bytes(reader, columns)
    return reader.table_bytes + held_bytes(reader, columns) + max(_BUFFER_BYTES, 2 * widest)


def held_bytes(reader: PageReader, columns: tuple[str, ...]) -> int:
    """Return the size of the hash table and of the columns, for all rows of R."""
    columns_bytes = sum(slab_bytes(reader, c, reader.page_count) for c in columns)
    return reader.row_count * _TABLE_BYTES_PER_ROW + columns_bytes
