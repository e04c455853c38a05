"""A hash table of key codes over a ring of slots: the scan window's H, and `resident`'s table.

::

    bucket → newest slot → … → oldest slot of its chain

Slots are handed out round the ring, so a slot that is not among the `live` newest ones has left,
and a chain ends there. `kernels.py` has the loops; `buckets.py` says which bucket a code is in.

*Listed codes*, those with rows on hot and delta pages, can be kept in chains of their own. Their
tuples match no row of a clustered page, and no other tuple matches a row of a hot or delta page. So
a page is probed against one kind of chain only, and each tuple is looked at once in a cycle.

Memory for each slot: code 8 and next 4, in arrays that the caller provides, and its share of the
buckets 4, and 1 more with listed codes; the scratch space of a probe.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from semistream.joins import kernels
from semistream.joins.buckets import Buckets
from semistream.relation.codepages import CodeBits


class HashTable:
    """Chains of codes by bucket, over a ring of slots."""

    def __init__(
        self,
        buckets: Buckets,
        slot_codes: NDArray[np.int64],
        following: NDArray[np.int32],
        most_pairs: int,
        listed: CodeBits | None = None,
    ) -> None:
        """Make an empty table whose slots keep codes and chains in the given arrays."""
        self._buckets = buckets  # the bucket function
        self._listed = listed  # codes that are kept apart
        self._listed_buckets = buckets.coarser()  # their bucket function
        count = buckets.count + (0 if listed is None else self._listed_buckets.count)
        # The newest slot of each chain; those of listed codes come last.
        self._heads = np.full(count, kernels.NO_SLOT, np.int32)
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
        if self._listed is None:
            kernels.insert(codes, first, *chains, *self._buckets.function)
        else:
            apart = (self._listed_buckets.shift, self._buckets.count)
            bits = (self._listed.bits, self._listed.base)
            kernels.insert_apart(codes, first, *chains, *self._buckets.function, *apart, *bits)
        self.newest = (self.newest + len(codes)) % len(self._slot_codes)
        self.live += len(codes)

    def expire(self, count: int) -> None:
        """Take out the oldest codes: chains end before them from now on."""
        self.live -= count

    def matches(
        self, codes: NDArray[np.int64], is_sorted: bool = False, are_listed: bool = False
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield (index into `codes`, slot) of equal codes, at most `most_pairs` at a time.

        `is_sorted` says that the codes ascend, as those of consecutive pages do; `are_listed` that
        they are of hot or delta pages, where listed codes are kept apart. The arrays are
        overwritten by the next step.
        """
        kernel = kernels.probe_sorted if is_sorted and self._buckets.is_ordered else kernels.probe
        buckets, heads = self._buckets, self._heads[: self._buckets.count]
        if are_listed and self._listed is not None:
            buckets, heads = self._listed_buckets, self._heads[self._buckets.count :]
        position = kernels.start_of_probe()
        while not kernels.is_complete(position, len(codes)):
            found = kernel(
                codes,
                position,
                self._candidates,
                self._slot_codes,
                heads,
                self._following,
                self.newest,
                self.live,
                *buckets.function,
                self._out_probes,
                self._out_slots,
            )
            if found:
                yield self._out_probes[:found], self._out_slots[:found]
