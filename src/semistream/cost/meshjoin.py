"""MESHJOIN's memory equation, and the split of a budget that follows from it.

`meshjoin.txt`, equation 1::

    M = b·v_P + w·v_S + w·(N_R/b)·sizeof(ptr) + w·f·(N_R/b)·v_S  ≤  M_max

Ours, with the symbols bound in `semistream.cost.sizes`::

    M = disk_bytes(b) + w·k·tuple_bytes + output_rows·output_row_bytes + table_bytes,  k = ⌈N_R/b⌉

The paper's second term, a buffer for the next w tuples, is missing: tuples go from the source's
batch straight into H. The last two terms are ours: nothing that takes memory is left out.
"""

from dataclasses import dataclass

from semistream.cost.sizes import Sizes
from semistream.errors import BudgetError
from semistream.units import format_bytes

MOST_OUTPUT_ROWS = 16_384
LEAST_OUTPUT_ROWS = 64
# Shares of the budget. Measured: a larger disk buffer takes from the window, which is what
# amortises the scan; a smaller one pays the fixed cost of an iteration too often.
OUTPUT_SHARE = 1 / 16
DISK_SHARE = 1 / 16
MOST_DISK_BYTES = 2 << 20


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
        + int(settings.window_tuples * sizes.tuple_bytes)
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
        raise BudgetError(_too_small(sizes, budget_bytes, least))
    output_rows = int(budget_bytes * OUTPUT_SHARE) // sizes.output_row_bytes
    output_rows = max(LEAST_OUTPUT_ROWS, min(MOST_OUTPUT_ROWS, output_rows))
    spare = budget_bytes - sizes.table_bytes - output_rows * sizes.output_row_bytes
    wanted = min(MOST_DISK_BYTES, int(spare * DISK_SHARE))
    candidates = [_with_pages(sizes, b, output_rows, spare) for b in _doubling(sizes.page_count)]
    fitting = [s for s in candidates if s.tuples_per_read >= 1]
    if not fitting:
        return _tightest(sizes, budget_bytes)
    within = [s for s in fitting if sizes.disk_bytes(s.pages_per_read) <= wanted]
    return within[-1] if within else fitting[0]


def _tightest(sizes: Sizes, budget_bytes: int) -> MeshJoinSettings:
    """Return settings for a budget that only the least output buffer fits into."""
    spare = budget_bytes - sizes.table_bytes - LEAST_OUTPUT_ROWS * sizes.output_row_bytes
    candidates = (
        _with_pages(sizes, b, LEAST_OUTPUT_ROWS, spare) for b in _doubling(sizes.page_count)
    )
    return next(s for s in candidates if s.tuples_per_read >= 1)


def _with_pages(sizes: Sizes, pages: int, output_rows: int, spare: int) -> MeshJoinSettings:
    """Return b = `pages` with the largest w that fits (equation 1 solved for w)."""
    reads = _reads(sizes, pages)
    window_bytes = spare - sizes.disk_bytes(pages)
    tuples = int(window_bytes / (reads * sizes.tuple_bytes)) if window_bytes > 0 else 0
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
        f"{format_bytes(sizes.tuple_bytes)} for each waiting tuple (one per read of a cycle) and "
        f"{format_bytes(LEAST_OUTPUT_ROWS * sizes.output_row_bytes)} for the output. Raise memory "
        f"to {least} bytes or more, or build the relation with more partitions."
    )
