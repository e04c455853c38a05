"""MESHJOIN's memory equation, and the split of a budget that follows from it.

`meshjoin.txt`, equation 1::

    M = b·v_P + w·v_S + w·(N_R/b)·sizeof(ptr) + w·f·(N_R/b)·v_S  ≤  M_max

Ours, with the symbols bound in `semistream.cost.sizes`::

    M = disk_bytes(b) + w·k·tuple_bytes + window_base_bytes
        + output_rows·output_row_bytes + table_bytes,   k = ⌈N_R/b⌉

The paper's second term, a buffer for the next w tuples, is missing: tuples go from the source's
batch straight into H. The last three terms are ours: nothing that takes memory is left out.
"""

from bisect import bisect_right
from dataclasses import dataclass

from semistream.cost.sizes import Sizes
from semistream.errors import BudgetError
from semistream.units import format_bytes

MOST_OUTPUT_ROWS = 16_384
LEAST_OUTPUT_ROWS = 64
OUTPUT_SHARE = 1 / 16
# Measured on R of 3.5M × 120 B at 1 %, 5 % and 10 %: with a smaller disk buffer the fixed cost of
# an iteration weighs more, with a larger one the window shrinks, which is what amortises the scan.
DISK_SHARE = 1 / 4


@dataclass(frozen=True, slots=True)
class MeshJoinSettings:
    """The operating parameters of MESHJOIN."""

    pages_per_read: int  # b
    tuples_per_read: int  # w
    reads_per_cycle: int  # k = ⌈N_R/b⌉
    output_rows: int

    @property
    def window_tuples(self) -> int:
        """w·N_R/b: how many stream tuples share each read of R."""
        return self.tuples_per_read * self.reads_per_cycle


def memory_bytes(sizes: Sizes, settings: MeshJoinSettings) -> int:
    """Return what MESHJOIN takes with these settings (equation 1)."""
    return (
        sizes.disk_bytes(settings.pages_per_read)
        + sizes.window_bytes(settings.window_tuples)
        + settings.output_rows * sizes.output_row_bytes
        + sizes.table_bytes
    )


def least_memory_bytes(sizes: Sizes) -> int:
    """Return the least budget MESHJOIN can run in: w = 1 and the b that then takes least."""
    return min(
        memory_bytes(sizes, MeshJoinSettings(b, 1, _reads(sizes, b), LEAST_OUTPUT_ROWS))
        for b in _doubling(sizes.page_count)
    )


def settings_for_budget(sizes: Sizes, budget_bytes: int) -> MeshJoinSettings:
    """Split a budget between disk buffer, window and output, or say what would be enough."""
    least = least_memory_bytes(sizes)
    if budget_bytes < least:
        raise BudgetError(_too_small(sizes, budget_bytes, least), least)
    output_rows = int(budget_bytes * OUTPUT_SHARE) // sizes.output_row_bytes
    output_rows = max(LEAST_OUTPUT_ROWS, min(MOST_OUTPUT_ROWS, output_rows))
    spare = budget_bytes - sizes.table_bytes - output_rows * sizes.output_row_bytes
    pages = _most_pages(sizes, int(spare * DISK_SHARE))
    settings = _with_pages(sizes, pages, output_rows, spare)
    return settings if settings.tuples_per_read >= 1 else _tightest(sizes, budget_bytes)


def _tightest(sizes: Sizes, budget_bytes: int) -> MeshJoinSettings:
    """Return settings for a budget in which the usual shares leave no room for a window."""
    spare = budget_bytes - sizes.table_bytes - LEAST_OUTPUT_ROWS * sizes.output_row_bytes
    candidates = (
        _with_pages(sizes, b, LEAST_OUTPUT_ROWS, spare) for b in _doubling(sizes.page_count)
    )
    settings = max(candidates, key=lambda s: s.window_tuples)
    assert settings.tuples_per_read >= 1, "the least budget leaves room for w = 1"
    return settings


def _most_pages(sizes: Sizes, size_bytes: int) -> int:
    """Return the most pages whose disk buffer takes at most so much, but at least one."""
    fitting = bisect_right(range(1, sizes.page_count + 1), size_bytes, key=sizes.disk_bytes)
    return max(1, fitting)


def _with_pages(sizes: Sizes, pages: int, output_rows: int, spare: int) -> MeshJoinSettings:
    """Return b = `pages` with the largest w that fits (equation 1 solved for w)."""
    reads = _reads(sizes, pages)
    tuples_bytes = spare - sizes.disk_bytes(pages) - sizes.window_base_bytes
    tuples = max(0, tuples_bytes // (reads * sizes.tuple_bytes))
    return MeshJoinSettings(pages, tuples, reads, output_rows)


def _reads(sizes: Sizes, pages: int) -> int:
    return -(-sizes.page_count // pages)


def _doubling(page_count: int) -> list[int]:
    """Return 1, 2, 4, … up to all pages; between these the split hardly changes."""
    powers = [1 << i for i in range(max(1, page_count).bit_length())]
    return [*(p for p in powers if p < page_count), max(1, page_count)]


def _too_small(sizes: Sizes, budget_bytes: int, least: int) -> str:
    return (
        f"meshjoin cannot run in {format_bytes(budget_bytes)}; it needs at least "
        f"{format_bytes(least)} here: {format_bytes(sizes.table_bytes)} for the page table, "
        f"{format_bytes(sizes.disk_bytes(1))} for one page, "
        f"{format_bytes(sizes.window_base_bytes)} for the window and "
        f"{format_bytes(sizes.tuple_bytes)} for each tuple in it (one per read of a cycle), "
        f"{format_bytes(LEAST_OUTPUT_ROWS * sizes.output_row_bytes)} for the output. Raise memory "
        f"to {least} bytes or more, or build the relation with more partitions."
    )
