"""A hash table of key codes over a ring of slots: the scan window's H, and `resident`'s table.

::

    bucket → newest slot → … → oldest slot of its chain

Slots are handed out round the ring, so a slot that is not among the `live` newest ones has left,
and a chain ends there. `kernels.py` has the loops; `buckets.py` says which bucket a code is in.

Memory for each slot: code 8 and next 4, in arrays that the caller provides, and its share of the
buckets 4; the scratch space of a probe.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from semistream.joins import kernels
from semistream.joins.buckets import Buckets


class HashTable:
    """Chains of codes by bucket, over a ring of slots."""

    def __init__(
        self,
        buckets: Buckets,
        slot_codes: NDArray[np.int64],
        following: NDArray[np.int32],
        most_pairs: int,
    ) -> None:
        """Make an empty table whose slots keep codes and chains in the given arrays."""
        self._buckets = buckets  # the bucket function
        self._heads = np.full(buckets.count, kernels.NO_SLOT, np.int32)  # newest slot of a chain
        self._following = following  # by slot: the next older one of its chain
        self._following[:] = kernels.NO_SLOT
        self._slot_codes = slot_codes  # by slot
        self._candidates = kernels.make_candidates()  # scratch space of a probe
        self._out_probes = np.empty(most_pairs, np.int64)  # pairs found: indexes of probing codes
        self._out_slots = np.empty(most_pairs, np.int64)  # and slots
        self.newest = -1  # the slot that was used last
        self.live = 0  # slots in use, counted back from the newest

    def insert(self, codes: NDArray[np.int64]) -> None:
        """Add codes at the slots after the newest."""
        first = (self.newest + 1) % len(self._slot_codes)
        chains = (self._slot_codes, self._heads, self._following)
        kernels.insert(codes, first, *chains, *self._buckets.function)
        self.newest = (self.newest + len(codes)) % len(self._slot_codes)
        self.live += len(codes)

    def expire(self, count: int) -> None:
        """Take out the oldest codes: chains end before them from now on."""
        self.live -= count

    def matches(
        self, codes: NDArray[np.int64], is_sorted: bool = False
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield (index into `codes`, slot) of equal codes, at most `most_pairs` at a time.

        `is_sorted` says that the codes ascend, as those of consecutive pages do. The arrays are
        overwritten by the next step.
        """
        kernel = kernels.probe_sorted if is_sorted and self._buckets.is_ordered else kernels.probe
        position = kernels.start_of_probe()
        while not kernels.is_complete(position, len(codes)):
            found = kernel(
                codes,
                position,
                self._candidates,
                self._slot_codes,
                self._heads,
                self._following,
                self.newest,
                self.live,
                *self._buckets.function,
                self._out_probes,
                self._out_slots,
            )
            if found:
                yield self._out_probes[:found], self._out_slots[:found]
