"""How a budget is split: the shares that all algorithms begin with, and the parts they share.

Measured on R of 3.5M × 120 B at 1 %, 5 % and 10 % (`docs/decisions.md`). With a smaller disk buffer
the fixed cost of a read weighs more, with a larger one fewer tuples share it. `auto` chooses by the
cost model instead (`cost/tuning.py`).
"""

from bisect import bisect_right
from dataclasses import dataclass

from semistream.budget.sizes import Sizes
from semistream.errors import BudgetError
from semistream.units import format_bytes

MOST_OUTPUT_ROWS = 16_384
LEAST_OUTPUT_ROWS = 64
LEAST_OUTPUT_BYTES = 64 << 10
OUTPUT_SHARE = 1 / 8
DISK_SHARE = 1 / 4
# For what is made of the source's batch on its way into the window, a slice of it at a time.
INPUT_SHARE = 1 / 64
LEAST_INPUT_BYTES = 4096
MOST_INPUT_BYTES = 4 << 20
FRONT_SHARE = 1 / 6


@dataclass(frozen=True, slots=True)
class Split:
    """How a budget is to be split, where the model has decided; the rest goes to the window."""

    pages_per_read: int | None = None  # b
    front_bytes: int | None = None  # for the front stage, where there is one
    pinned_pages: int | None = None  # l, where pages are pinned
    tuples_per_read: int | None = None  # w of MESHJOIN
    most_tuples: int | None = None  # of the stream, for look-ups: the window need not have more
    # HYBRIDJOIN reads the pages of the oldest tuple, as in its paper, or the most urgent ones; None
    # is as usual: the most urgent ones, with pinned pages those of the oldest.
    oldest_picks: bool | None = None
    paper_cache: bool = False  # the front stage admits and evicts as in its paper
    equal_parts: bool = False  # of X-HYBRIDJOIN's disk buffer: as many pinned pages as others


USUAL = Split()


@dataclass(frozen=True, slots=True)
class Spare:
    """What the page table, the input and the output buffer leave of a budget."""

    output_rows: int
    output_bytes: int
    input_bytes: int
    size_bytes: int

    @classmethod
    def usual(cls, sizes: Sizes, budget_bytes: int) -> "Spare":
        """Return what is left beside an output buffer of the usual share."""
        share = int(budget_bytes * OUTPUT_SHARE)
        rows = max(LEAST_OUTPUT_ROWS, min(MOST_OUTPUT_ROWS, share // sizes.output_row_bytes))
        output = max(least_output_bytes(sizes), min(share, rows * sizes.output_row_bytes))
        return cls._beside(sizes, budget_bytes, rows, output, input_bytes(budget_bytes))

    @classmethod
    def tightest(cls, sizes: Sizes, budget_bytes: int) -> "Spare":
        """Return what is left beside the least input and output buffers."""
        output = least_output_bytes(sizes)
        return cls._beside(sizes, budget_bytes, LEAST_OUTPUT_ROWS, output, LEAST_INPUT_BYTES)

    @classmethod
    def _beside(
        cls, sizes: Sizes, budget_bytes: int, rows: int, output_bytes: int, input_bytes: int
    ) -> "Spare":
        left = budget_bytes - sizes.table_bytes - output_bytes - input_bytes
        return cls(rows, output_bytes, input_bytes, left)

    @property
    def buffers(self) -> tuple[int, int, int]:
        """Output rows, output bytes and input bytes, as settings have them."""
        return self.output_rows, self.output_bytes, self.input_bytes

    def pages(self, sizes: Sizes, least: int, requested: int | None) -> int:
        """Return b: as requested, or the usual share of what is spare; at least `least`."""
        pages = requested
        if pages is None:
            pages = most_pages(sizes, int(self.size_bytes * DISK_SHARE))
        return max(least, min(pages, sizes.page_count))

    def tuples_beside(self, sizes: Sizes, used_bytes: int) -> int:
        """Return how many waiting tuples fit beside `used_bytes`; negative if none."""
        return (self.size_bytes - used_bytes - sizes.window_base_bytes) // sizes.tuple_bytes


def front_share(budget_bytes: int, least_bytes: int, split: Split) -> int:
    """Return the front stage's share of a budget: as requested, or as usual, if the rest is enough.

    `least_bytes` is the least that the back stage can run in.
    """
    share = split.front_bytes
    share = int(budget_bytes * FRONT_SHARE) if share is None else share
    return max(0, min(share, budget_bytes - least_bytes))


def input_bytes(budget_bytes: int) -> int:
    """Return the share of the input in a budget."""
    usual = int(budget_bytes * INPUT_SHARE)
    return max(LEAST_INPUT_BYTES, min(MOST_INPUT_BYTES, usual))


def least_output_bytes(sizes: Sizes) -> int:
    """Return the least output buffer: some rows, of average width if that is little; the widest."""
    usual = min(LEAST_OUTPUT_ROWS * sizes.output_row_bytes, LEAST_OUTPUT_BYTES)
    return max(usual, sizes.widest_row_bytes)


def fixed_bytes(sizes: Sizes) -> int:
    """Return the size of the page table and the least input and output buffers."""
    return sizes.table_bytes + least_output_bytes(sizes) + LEAST_INPUT_BYTES


def most_pages(sizes: Sizes, size_bytes: int) -> int:
    """Return the most pages whose disk buffer fits into `size_bytes`; it may be none."""
    return bisect_right(range(1, sizes.page_count + 1), size_bytes, key=sizes.disk_bytes)


def too_small(name: str, sizes: Sizes, budget_bytes: int, least: int, pages: int) -> BudgetError:
    """Return the error for a budget that is less than the least."""
    return BudgetError(
        f"{name} cannot run in {format_bytes(budget_bytes)}; it needs at least "
        f"{format_bytes(least)} here: {format_bytes(sizes.table_bytes)} for the page table and "
        f"index, {format_bytes(sizes.disk_bytes(pages))} for a disk buffer of {pages} "
        f"page{'s' * (pages > 1)}, "
        f"{format_bytes(sizes.window_base_bytes)} for the window and "
        f"{format_bytes(sizes.tuple_bytes)} for each tuple that waits in it, "
        f"{format_bytes(least_output_bytes(sizes))} for the output, "
        f"{format_bytes(LEAST_INPUT_BYTES)} for the input.",
        least,
    )
