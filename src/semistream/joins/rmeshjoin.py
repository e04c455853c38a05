"""R-MESHJOIN: MESHJOIN whose window is filled whenever it has room.

The papers only name it (`xhybridjoin.txt` section 2, `cmeshjoin-front-stage.txt` section 2): a
"reduced" MESHJOIN that splits memory under the real constraints and clarifies how its components
depend on each other. So what follows is ours.

::

    stream ──► all free slots are filled at once ──► window: any number of tuples
                                                         │ a batch leaves k reads after it came
                            R in k reads of ⌈N_R/k⌉ pages

Two things are given up. *That w tuples enter with each read*: Q has a part for each read, as
before, but a part holds whatever came then, from nothing to a whole window. *That the window is a
multiple of k*: it is as large as memory allows, and the disk buffer no larger than k equal reads
need.

With a stream that never pauses both serve a window a cycle. But a stream of finite batches, as
Spark hands them out, is through after ⌈T/window⌉ cycles, where MESHJOIN's staggered entry takes
one more.

Invariants: as for MESHJOIN, a tuple stays for exactly k reads, which together are all of R.

Memory: `semistream.budget.meshjoin.reduced_settings_for_budget`. Cost: k reads for each window.

Degenerate cases: a window of one tuple; R of one read.
"""

from semistream.joins.meshjoin import MeshJoin
from semistream.joins.scanwindow import ScanWindow


class RMeshJoin(MeshJoin):
    """The tactic of R-MESHJOIN."""

    def entering(self, window: ScanWindow) -> int:
        """As many as there is room for."""
        return window.capacity - window.count
