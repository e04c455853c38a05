"""X-HYBRIDJOIN: HYBRIDJOIN with a part of the disk buffer that is not swapped.

From `xhybridjoin.txt`, section 4.

::

                      ┌─ disk buffer ─────────────┐
    stream ─────────► │ pinned: l pages           │ ──► joined rows, misses at once
       others wait    ├───────────────────────────┤
       window ──────► │ swappable: b pages        │ ──► joined rows, misses
         oldest picks └───────────────────────────┘

Algorithm (algorithm 1 of the paper): the pinned part is filled (line 1); then, over and over, as
many tuples enter as have left (lines 4-7), those that match the pinned part leave (lines 8-14),
and HYBRIDJOIN's step follows on the swappable part (lines 15-23).

What is ours: a tuple that belongs to a pinned page is resolved before it enters, so it takes no
slot (`joins/pinned.py`), and the pinned pages are chosen from what the stream requests. The paper's
two ways to size the parts are two budget rules (`budget/rules.py`): both parts equal (section 4,
`EQUAL_PARTS`), or each of its own size (section 6). The driver pins as many pages as the settings
say, so the tactic is HYBRIDJOIN's. Without pinned pages this is HYBRIDJOIN.

Invariants: HYBRIDJOIN's; besides, a tuple that a pinned page resolves never waits.

Memory: equations 1 and 4, `semistream.budget.xhybridjoin`. Cost: `semistream.cost.xhybridjoin`,
HYBRIDJOIN's for the tuples that no pinned page resolves; with R sorted by frequency that is a small
part of a skewed stream, with R sorted by key a page has few hot rows among many cold ones.

Degenerate cases: a budget without room for a pinned page; l pages that are all of R.
"""

from semistream.joins.hybridjoin import HybridJoin


class XHybridJoin(HybridJoin):
    """The tactic of X-HYBRIDJOIN: that of HYBRIDJOIN, with settings that pin pages."""
