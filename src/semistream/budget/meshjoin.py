"""The memory equation of MESHJOIN and of R-MESHJOIN, and the split of a budget that follows.

`meshjoin.txt`, equation 1::

    M = b·v_P + w·v_S + w·(N_R/b)·sizeof(ptr) + w·f·(N_R/b)·v_S  ≤  M_max

Ours, with the symbols bound in `semistream.budget.sizes`::

    M = disk_bytes(b) + w·k·tuple_bytes + window_base_bytes
        + input_bytes + output_bytes + table_bytes,   k = ⌈N_R/b⌉

In the place of the paper's second term, a buffer for the next w tuples, is `input_bytes`: tuples go
from the source's batch straight into H, a slice of it at a time. The last terms are ours: all
memory is counted.

R-MESHJOIN has a window of any size in the place of w·k.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from semistream.budget.sizes import Sizes
from semistream.budget.split import (
    LEAST_INPUT_BYTES,
    LEAST_OUTPUT_ROWS,
    USUAL,
    Spare,
    Split,
    fixed_bytes,
    least_output_bytes,
    too_small,
)
from semistream.errors import BudgetError


@dataclass(frozen=True, slots=True)
class MeshJoinSettings:
    """The operating parameters of MESHJOIN."""

    pages_per_read: int  # b
    window_tuples: int  # w·k: how many stream tuples share each read of R
    reads_per_cycle: int  # k = ⌈N_R/b⌉
    output_rows: int
    output_bytes: int = 0  # these two have no part in predictions
    input_bytes: int = 0

    @property
    def places(self) -> int:
        """How many tuples can wait."""
        return self.window_tuples

    @property
    def pinned_pages(self) -> int:
        """A scan pins none."""
        return 0

    @property
    def tuples_per_read(self) -> int:
        """w: how many tuples enter with each read."""
        return self.window_tuples // self.reads_per_cycle


def memory_bytes(sizes: Sizes, settings: MeshJoinSettings) -> int:
    """Return the memory of MESHJOIN with these settings (equation 1)."""
    return (
        sizes.disk_bytes(settings.pages_per_read)
        + sizes.window_bytes(settings.window_tuples)
        + settings.input_bytes
        + settings.output_bytes
        + sizes.table_bytes
    )


def least_memory_bytes(sizes: Sizes) -> int:
    """Return the least budget of MESHJOIN: w = 1, and the b that then needs least memory."""
    buffers = (LEAST_OUTPUT_ROWS, least_output_bytes(sizes), LEAST_INPUT_BYTES)
    return min(
        memory_bytes(sizes, MeshJoinSettings(b, k, k, *buffers))
        for b in _doubling(sizes.page_count)
        for k in [_reads(sizes, b)]
    )


def settings_for_budget(sizes: Sizes, budget_bytes: int, split: Split = USUAL) -> MeshJoinSettings:
    """Split a budget between disk buffer, window and output; raise an error if it is too small."""
    least = least_memory_bytes(sizes)
    if budget_bytes < least:
        raise too_small("meshjoin", sizes, budget_bytes, least, 1)
    settings = _split(sizes, budget_bytes, split, _with_pages, lambda s: s.window_tuples)
    return settings if split.tuples_per_read is None else _entering(settings, split.tuples_per_read)


def _entering(settings: MeshJoinSettings, tuples_per_read: int) -> MeshJoinSettings:
    """Return the settings with a w that was asked for, which must fit."""
    if tuples_per_read > settings.tuples_per_read:
        raise BudgetError(
            f"{tuples_per_read} tuples per read were asked for, but this budget has room for "
            f"{settings.tuples_per_read}, with {settings.reads_per_cycle} reads in a cycle. Lower "
            "tuples_per_read, raise disk_buffer, or raise memory"
        )
    return replace(settings, window_tuples=tuples_per_read * settings.reads_per_cycle)


def least_reduced_bytes(sizes: Sizes) -> int:
    """Return the least budget R-MESHJOIN can run in: one page and one tuple."""
    return fixed_bytes(sizes) + sizes.disk_bytes(1) + sizes.window_bytes(1)


def reduced_settings_for_budget(
    sizes: Sizes, budget_bytes: int, split: Split = USUAL
) -> MeshJoinSettings:
    """Split a budget for R-MESHJOIN under the constraint that pages and reads are whole numbers.

    A cycle of k reads needs no disk buffer larger than ⌈N_R/k⌉ pages: what MESHJOIN's last, shorter
    read leaves unused goes to the window, and so does the remainder beyond w·k.
    """
    least = least_reduced_bytes(sizes)
    if budget_bytes < least:
        raise too_small("rmeshjoin", sizes, budget_bytes, least, 1)
    # This near the least budget it is the number of reads that counts.
    return _split(
        sizes, budget_bytes, split, _with_equal_reads, lambda s: s.window_tuples / s.reads_per_cycle
    )


def _split(
    sizes: Sizes,
    budget_bytes: int,
    split: Split,
    with_pages: Callable[[Sizes, int, Spare], MeshJoinSettings],
    worth: Callable[[MeshJoinSettings], float],
) -> MeshJoinSettings:
    """Return the usual split or, where that leaves no room for a window, the one worth most."""
    spare = Spare.usual(sizes, budget_bytes)
    settings = with_pages(sizes, spare.pages(sizes, 1, split.pages_per_read), spare)
    if settings.window_tuples:
        return settings
    spare = Spare.tightest(sizes, budget_bytes)
    settings = max((with_pages(sizes, b, spare) for b in _doubling(sizes.page_count)), key=worth)
    assert settings.window_tuples, "the least budget leaves room for a window"
    return settings


def _with_equal_reads(sizes: Sizes, pages: int, spare: Spare) -> MeshJoinSettings:
    """Return equal reads, as many as there are of `pages` pages, and the window that then fits."""
    reads = _reads(sizes, pages)
    pages = -(-sizes.page_count // reads)
    tuples = max(0, spare.tuples_beside(sizes, sizes.disk_bytes(pages)))
    reads = _reads(sizes, pages)
    return MeshJoinSettings(pages, tuples, reads, *spare.buffers)


def _with_pages(sizes: Sizes, pages: int, spare: Spare) -> MeshJoinSettings:
    """Return b = `pages` with the largest w that fits (equation 1 solved for w)."""
    reads = _reads(sizes, pages)
    tuples = max(0, spare.tuples_beside(sizes, sizes.disk_bytes(pages)))
    window = tuples // reads * reads
    return MeshJoinSettings(pages, window, reads, *spare.buffers)


def _reads(sizes: Sizes, pages: int) -> int:
    return -(-sizes.page_count // pages)


def _doubling(page_count: int) -> list[int]:
    """Return 1, 2, 4, … up to all pages; between these the split hardly changes."""
    powers = [1 << i for i in range(max(1, page_count).bit_length())]
    return [*(p for p in powers if p < page_count), max(1, page_count)]
