"""Tuples that wait, on their way from one join to the next: a retuning need not drain them.

::

    join that ends      window ──► copies, in the order of Q ──► window      join that follows
                        buffers, no longer in use                buffers, not in use yet

A tuple that waits in an index join has met nothing of R. So it can go on waiting in another index
join, which has another split of the budget, or is another algorithm. Its page keeps its place in Q,
and its load its age. A tuple of a scan join has met a part of R; it can meet the rest, and no page
twice, only in reads that begin and end where the old ones did: that window is drained.

Memory: the copies are no larger than the buffers of the join that ends (input, output and disk
buffer), which it no longer uses, nor than those of the join that follows, which it uses only when
all tuples have entered its window. If more waits than that, or than the new window has slots for,
the join that ends goes on until the rest fits: its first loads resolve most tuples, its last ones
few, so most of what a drain costs is saved even so.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.rowsizes import Widths
from semistream.budget.rules import Settings
from semistream.budget.sizes import Sizes
from semistream.budget.tuplesizes import BLOCK, copied_bytes
from semistream.joins.indexwindow import Ages, IndexWindow
from semistream.memory import MemoryLedger, Reservation


@dataclass(slots=True)
class HandedOver:
    """Tuples that waited in a join that has ended, in memory that is reserved for them."""

    batches: deque[pa.RecordBatch]
    widths: Widths  # that the next window is sized by: all the tuples fit into it
    ages: Ages
    after: int  # the page behind the last one resolved
    memory: Reservation

    @classmethod
    def of(
        cls,
        window: IndexWindow,
        schema: pa.Schema,
        widths: Widths,
        after: int,
        ledger: MemoryLedger,
    ) -> "HandedOver":
        """Copy all tuples of a window, some at a time."""
        memory = ledger.reserve("waiting tuples", handed_over_bytes(window, schema))
        slots = window.in_order()
        batches = deque(
            pa.RecordBatch.from_arrays(window.gather(slots[i : i + BLOCK]), schema=schema)
            for i in range(0, len(slots), BLOCK)
        )
        return cls(batches, widths, window.ages, after, memory)

    def enter(
        self, window: IndexWindow, codes_of: Callable[[pa.RecordBatch], NDArray[np.int64]]
    ) -> None:
        """Let all tuples into a window; their copies are dropped."""
        while self.batches:
            batch = self.batches.popleft()
            assert window.room(batch) == len(batch), "the window was sized for them"
            window.insert(batch, codes_of(batch))
        window.set_ages(self.ages)


def handed_over_bytes(window: IndexWindow, schema: pa.Schema) -> int:
    """Return the size of all that is handed over of a window."""
    copies = copied_bytes(schema, window.average_bytes(), window.count)
    return copies + window.ages.since.nbytes


def buffer_bytes(sizes: Sizes, settings: Settings) -> int:
    """Return the memory of input, output and disk buffer."""
    return settings.input_bytes + settings.output_bytes + sizes.disk_bytes(settings.pages_per_read)
