"""MESHJOIN: a cyclic scan of R meshed with a sliding window over the stream.

From "Supporting Streaming Updates in an Active Data Warehouse" (`meshjoin.txt`), section 3.1.

::

              w tuples in                         w tuples out (they have met all of R)
    stream ──────────────►  ┌──────────────────┐ ────────────────►
                            │  window: k · w   │
                            └────────▲─────────┘
                                     │ each read is probed against the whole window
                            ┌────────┴─────────┐
              R:  p0 p1 … ►│ b pages          │► … back to p0 after k = ⌈N_R/b⌉ reads
                            └──────────────────┘

Algorithm (figure 4 of the paper), one iteration:

1. if Q holds k batches, the oldest has met all of R: it leaves (lines 3-6);
2. w tuples of the stream enter H, and Q (lines 7-8);
3. the next b pages are read, and each of their rows is probed against H (lines 2, 9-10).

The driver does the steps; this tactic decides the numbers. The cycle is k reads of b pages, the
last of them shorter where b does not divide N_R. It may start anywhere: with the read that holds
`start_page`.

Invariants: a batch stays for exactly k reads, which together are all of R, each page once. When
the stream ends or pauses, empty batches enter Q, so that the others still leave after k reads.

Memory: equation 1 of the paper, `semistream.budget.meshjoin`. Cost: k reads of R for every k·w
tuples; each tuple costs one insertion, one expiry, and its share of a scan that the whole window
shares. No index is needed, and skew neither helps nor hurts.

Degenerate cases: R of one read (k = 1): a batch enters, is joined and leaves. A budget that
leaves w = 1 still runs. A stream shorter than the window costs one cycle and a bit.
"""

from dataclasses import dataclass, field

from semistream.budget.meshjoin import MeshJoinSettings
from semistream.joins.scanwindow import ScanWindow


@dataclass(slots=True)
class MeshJoin:
    """The tactic of MESHJOIN."""

    settings: MeshJoinSettings
    page_count: int  # N_R
    start_page: int = 0  # the cycle begins with the read that holds it
    _reads_done: int = field(default=0, init=False)

    def leaving(self, window: ScanWindow) -> int:
        """Lines 3-6: once Q is full, its oldest batch leaves."""
        return window.queue.popleft() if len(window.queue) == self.settings.reads_per_cycle else 0

    def entering(self, window: ScanWindow) -> int:
        """Line 7: w tuples enter."""
        return self.settings.tuples_per_read

    def next_pages(self, window: ScanWindow) -> tuple[int, int]:
        """Line 2: the next b pages of the cycle."""
        pages_per_read = self.settings.pages_per_read
        first_read = self.start_page % self.page_count // pages_per_read
        read = (first_read + self._reads_done) % self.settings.reads_per_cycle
        self._reads_done += 1
        first = read * pages_per_read
        return first, min(first + pages_per_read, self.page_count)
