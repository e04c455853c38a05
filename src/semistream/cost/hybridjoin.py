"""The memory equation of HYBRIDJOIN and of the index joins, and the split of a budget.

`hybridjoin.txt`, equation 1::

    M = v_P + α/(α+β)·(M − v_P) + β/(α+β)·(M − v_P)      disk buffer, hash table, queue

Ours, with the symbols bound in `semistream.cost.sizes`::

    M = disk_bytes(b) + h_S·tuple_bytes + window_base_bytes
        + output_rows·output_row_bytes + table_bytes

where h_S is how many tuples wait; `tuple_bytes` covers both of the paper's shares, hash table and
queue. The paper reads one page at a time (b = 1).
"""

from bisect import bisect_right
from dataclasses import dataclass

from semistream.cost.sizes import Sizes
from semistream.errors import BudgetError
from semistream.units import format_bytes

MOST_OUTPUT_ROWS = 16_384
LEAST_OUTPUT_ROWS = 64
OUTPUT_SHARE = 1 / 16
# One load serves all tuples at home on its pages, so what a load costs besides reading is shared by
# the more tuples, the more pages it has; what it takes from the room is shared by the fewer.
DISK_SHARE = 1 / 8


@dataclass(frozen=True, slots=True)
class IndexJoinSettings:
    """The operating parameters of a join that reads pages by index."""

    pages_per_read: int  # b
    waiting_tuples: int  # h_S
    output_rows: int


def least_memory_bytes(sizes: Sizes, least_pages: int) -> int:
    """Return the least budget an index join can run in: one waiting tuple."""
    return (
        sizes.disk_bytes(least_pages)
        + sizes.window_bytes(1)
        + LEAST_OUTPUT_ROWS * sizes.output_row_bytes
        + sizes.table_bytes
    )


def settings_for_budget(
    name: str, sizes: Sizes, budget_bytes: int, least_pages: int, most_tuples: int | None = None
) -> IndexJoinSettings:
    """Split a budget between disk buffer, waiting room and output, or say what would be enough."""
    least = least_memory_bytes(sizes, least_pages)
    if budget_bytes < least:
        raise BudgetError(
            f"{name} cannot run in {format_bytes(budget_bytes)}; it needs at least "
            f"{format_bytes(least)} here: {format_bytes(sizes.table_bytes)} for the page table and "
            f"index, {format_bytes(sizes.disk_bytes(least_pages))} for the disk buffer, "
            f"{format_bytes(sizes.window_bytes(1))} for a waiting tuple and "
            f"{format_bytes(LEAST_OUTPUT_ROWS * sizes.output_row_bytes)} for the output. Raise "
            f"memory to {least} bytes or more, or build the relation with more partitions.",
            least,
        )
    output_rows = int(budget_bytes * OUTPUT_SHARE) // sizes.output_row_bytes
    output_rows = max(LEAST_OUTPUT_ROWS, min(MOST_OUTPUT_ROWS, output_rows))
    spare = budget_bytes - sizes.table_bytes - output_rows * sizes.output_row_bytes
    pages = bisect_right(
        range(1, sizes.page_count + 1), int(spare * DISK_SHARE), key=sizes.disk_bytes
    )
    pages = max(least_pages, pages)
    tuples = (spare - sizes.disk_bytes(pages) - sizes.window_base_bytes) // sizes.tuple_bytes
    if tuples < 1:
        pages, output_rows = least_pages, LEAST_OUTPUT_ROWS
        spare = budget_bytes - sizes.table_bytes - output_rows * sizes.output_row_bytes
        tuples = (spare - sizes.disk_bytes(pages) - sizes.window_base_bytes) // sizes.tuple_bytes
    tuples = tuples if most_tuples is None else min(tuples, most_tuples)
    return IndexJoinSettings(pages, tuples, output_rows)
