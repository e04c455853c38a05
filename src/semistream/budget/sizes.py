"""The sizes of a join's parts in memory: the numbers of every memory equation."""

from collections.abc import Callable
from dataclasses import dataclass


def _none(size_bytes: int) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the structures of a join over one relation and one stream schema.

    ===================  ======================================================================
    field                symbol in `meshjoin.txt`, table 1
    ===================  ======================================================================
    `page_count`         N_R
    `disk_bytes(b)`      b · v_P; only the columns that are read count, so v_P depends on them
    `pinned_bytes(l)`    l · v_P of `xhybridjoin.txt`: pages that stay in memory
    `cached_rows(m)`     h_R of `cmeshjoin-front-stage.txt`: rows in a front stage of m bytes
    `tuple_bytes`        f · v_S + sizeof(ptr): a waiting tuple in H, with its place in Q
    `window_base_bytes`  (not in the paper) the fixed overhead of a window
    `output_row_bytes`   (not in the paper) a row of the output buffer
    `widest_row_bytes`   (not in the paper) the widest row that the output buffer must hold
    `table_bytes`        (not in the paper) the page table with index and checksums
    `least_pages`        (not in the paper) the least b that the index joins can do with
    ===================  ======================================================================
    """

    page_count: int
    disk_bytes: Callable[[int], int]
    pinned_bytes: Callable[[int], int]
    tuple_bytes: int
    window_base_bytes: int
    output_row_bytes: int
    table_bytes: int
    least_pages: int = 1
    widest_row_bytes: int = 0
    cached_rows: Callable[[int], int] = _none

    def window_bytes(self, tuples: int) -> int:
        """Return the size of a window of this many tuples."""
        return tuples * self.tuple_bytes + self.window_base_bytes
