"""X-HYBRIDJOIN: HYBRIDJOIN with a part of the disk buffer that is not swapped.

From `xhybridjoin.txt`, section 4.

::

                      ┌─ disk buffer ─────────────┐
    stream ─────────► │ pinned: l pages           │ ──► joined rows, misses at once
       others wait    ├───────────────────────────┤
       room ────────► │ swappable: b pages        │ ──► joined rows, misses
         oldest picks └───────────────────────────┘

Algorithm (algorithm 1 of the paper): the pinned part is filled (line 1); then, over and over, as
many tuples enter as have left (lines 4-7), those that match the pinned part leave (lines 8-14),
and HYBRIDJOIN's step follows on the swappable part (lines 15-23).

What is ours: a tuple at home on a pinned page is settled before it enters, so it takes no slot
(`joins/pinned.py`), and the pinned pages are chosen from what the stream asks for. The paper's two
sizes: both parts equal (section 4), or each of its own size (section 6). Without pinned pages this
is HYBRIDJOIN.

Memory: equations 1 and 4, `semistream.cost.xhybridjoin`. Cost: HYBRIDJOIN's for the tuples that
no pinned page settles; with R sorted by frequency that is a small part of a skewed stream, with R
sorted by key a page has few hot rows among many cold ones.
"""

from semistream.budget.indexjoin import IndexJoinSettings
from semistream.budget.sizes import Sizes
from semistream.budget.split import USUAL, Split
from semistream.budget.xhybridjoin import equal_parts, tuned_parts
from semistream.joins.hybridjoin import HybridJoin


class XHybridJoin(HybridJoin):
    """The tactic of X-HYBRIDJOIN, tuned, or with both parts of one size."""

    def __init__(self, *, has_equal_parts: bool = False) -> None:
        """Choose between the paper's two ways to size the parts."""
        self._split = equal_parts if has_equal_parts else tuned_parts

    def settings(
        self, sizes: Sizes, budget_bytes: int, least_pages: int, split: Split = USUAL
    ) -> IndexJoinSettings:
        """Split the budget."""
        return self._split(sizes, budget_bytes, least_pages, split)
