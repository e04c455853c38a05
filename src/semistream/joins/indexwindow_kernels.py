"""The hot loops of the index joins: waiting by page, matching a page.

*The queue of pages.* `newer` and `older` link the requested pages, in the order in which their
longest waiting tuple came. All tuples that belong to a page leave together, so this is the order of
the paper's queue of tuples, in space for pages. The last element is the anchor.
"""

import numpy as np
from numba import uint64

from semistream.budget.tuplesizes import BLOCK
from semistream.jit import njit
from semistream.joins.kernels import NO_SLOT, find_code
from semistream.relation.index_kernels import FIRST, LAST, find_pages, partition_of

COMPLETE = -1  # all pairs of a code are written

_GOLDEN = uint64(0x9E3779B97F4A7C15)
_HALF = uint64(32)


@njit(inline="always")
def bucket_in_page(code, page, per_page):
    """Return which of its page's buckets a code belongs to."""
    spread = (uint64(code) * _GOLDEN) >> _HALF
    return page * per_page + np.int64((spread * uint64(per_page)) >> _HALF)


@njit(cache=True)
def enter(
    codes,
    slots,
    slot_codes,
    heads,
    following,
    per_page,
    waiting,
    newer,
    older,
    index,
):
    """Put codes at free slots and into their pages' chains; a page that was empty queues up."""
    anchor = len(waiting)
    pages = np.empty(BLOCK, np.int64)
    for start in range(0, len(codes), BLOCK):
        # 1. The pages of a block, all at once: searches without branches overlap.
        block = codes[start : start + BLOCK]
        find_pages(block, pages, index)
        for i in range(len(block)):
            # 2. H: the tuple is the newest of its bucket's chain.
            code = block[i]
            slot = slots[start + i]
            page = pages[i]
            bucket = bucket_in_page(code, page, per_page)
            slot_codes[slot] = code
            following[slot] = heads[bucket]
            heads[bucket] = slot
            # 3. Q: the first tuple of a page puts the page at the end.
            if waiting[page] == 0:
                newest = older[anchor]
                newer[newest] = page
                older[page] = newest
                newer[page] = anchor
                older[anchor] = page
            waiting[page] += 1


@njit(cache=True)
def leave(first_page, last_page, waiting, newer, older):
    """Take pages out of the queue, wherever in it they are; no tuple waits for them any more."""
    for page in range(first_page, last_page):
        if waiting[page]:
            newer[older[page]] = newer[page]
            older[newer[page]] = older[page]
            waiting[page] = 0


@njit(cache=True)
def most_urgent(waiting, since, pages_per_read, now, first_page, last_page):
    """Return the last page of the most urgent load that tuples wait for; -1 if none do.

    A load's urgency is the number of tuples that wait for it, times the loads that were made since
    it was first seen with any. Pages ``first_page … last_page - 1`` do not count. `since` has that
    by load, 0 if none wait; it and `now` are 32 bits wide and begin again.
    """
    best, found = 0, -1
    for load in range(len(since)):
        # 1. The tuples of a load.
        first = load * pages_per_read
        tuples, last = 0, -1
        for page in range(first, min(first + pages_per_read, len(waiting))):
            if waiting[page] and not first_page <= page < last_page:
                tuples += waiting[page]
                last = page
        # 2. Since when they wait.
        if tuples == 0:
            continue
        if since[load] == 0:
            since[load] = now
        # 3. Is it the most urgent?
        urgency = tuples * (((now - np.int64(since[load])) & 0xFFFFFFFF) + 1)
        if urgency > best:
            best, found = urgency, last
    return found


@njit(cache=True)
def forget_loads(first_page, last_page, waiting, since, pages_per_read):
    """Note of the loads of these pages that no tuple waits for them, if none is left elsewhere."""
    for load in range(first_page // pages_per_read, -(-last_page // pages_per_read)):
        first = load * pages_per_read
        left = 0
        for page in range(first, min(first + pages_per_read, len(waiting))):
            if not first_page <= page < last_page:
                left += waiting[page]
        if left == 0 and load < len(since):
            since[load] = 0


@njit(cache=True)
def slots_in_order(newer, heads, per_page, following, out_slots):
    """Write the slots of all tuples, page after page in the order of the queue."""
    anchor = len(newer) - 1
    count = 0
    page = newer[anchor]
    while page != anchor:
        for bucket in range(page * per_page, (page + 1) * per_page):
            slot = heads[bucket]
            while slot != NO_SLOT:
                out_slots[count] = slot
                count += 1
                slot = following[slot]
        page = newer[page]


@njit(cache=True)
def keep_ages(waiting, since, pages_per_read, now, out_since, out_pages_per_read, out_now):
    """Write since when the tuples of each load wait, given that of loads of another size."""
    for page in range(len(waiting)):
        first_seen = np.int64(since[page // pages_per_read])
        if waiting[page] == 0 or first_seen == 0:
            continue
        # 1. The age in loads of the other size, and since when that is.
        age = ((now - first_seen) & 0xFFFFFFFF) * pages_per_read // out_pages_per_read
        stamp = max(1, (out_now - age) & 0xFFFFFFFF)
        # 2. The oldest page of a load counts.
        load = page // out_pages_per_read
        other = (out_now - np.int64(out_since[load])) & 0xFFFFFFFF
        if out_since[load] == 0 or age > other:
            out_since[load] = stamp


@njit(cache=True)
def first_outside(first_page, last_page, newer):
    """Return the first page in the queue that is not among these, or the anchor."""
    anchor = len(newer) - 1
    page = newer[anchor]
    while page != anchor and first_page <= page < last_page:
        page = newer[page]
    return page


@njit(cache=True)
def next_requested(waiting, start):
    """Return the first requested page from `start` on, round the end."""
    page = start
    while waiting[page] == 0:
        page += 1
        if page == len(waiting):
            page = 0
    return page


@njit(cache=True)
def requested_pages(first_page, last_page, end_page, waiting, ends, out_pages):
    """Find the pages that the tuples of some pages need, up to `end_page`; return how many.

    `ends` says up to which page the codes of each page may lie; empty if that is the next one.
    """
    count = 0
    after = first_page  # the page behind the last one found
    for page in range(first_page, last_page):
        if waiting[page]:
            end = min(ends[page], end_page) if len(ends) else page + 1
            for needed in range(max(page, after), end):
                out_pages[count] = needed
                count += 1
            after = max(after, end)
    return count


@njit(cache=True)
def end_of_group(first_page, last_page, waiting, most):
    """Return the end of a group of pages for which at most `most` tuples wait, or of one page."""
    page = first_page + 1
    total = waiting[first_page]
    while page < last_page and total + waiting[page] <= most:
        total += waiting[page]
        page += 1
    return page


@njit(cache=True)
def take_chains(
    first_page,
    last_page,
    heads,
    per_page,
    slot_codes,
    following,
    out_slots,
    out_codes,
    out_pages,
):
    """Take the tuples of some pages out of the table, as many as fit; return how many.

    All chains are followed at once, a step at a time, so that their misses overlap. Call again for
    the same pages until it returns 0.
    """
    # 1. The head of every chain, page after page; a page is begun only if all its heads fit.
    taken = 0
    for page in range(first_page, last_page):
        if taken + per_page > len(out_slots) and taken:
            break
        for bucket in range(page * per_page, (page + 1) * per_page):
            if taken == len(out_slots):
                break
            out_slots[taken] = heads[bucket]
            out_pages[taken] = page
            taken += heads[bucket] != NO_SLOT
            heads[bucket] = NO_SLOT
    # 2. The rest of the chains: the output is its own queue, each tuple appends the next older one.
    # When it is full, what is left of a chain goes back to its bucket, for the next call.
    at = 0
    while at < taken:
        slot = out_slots[at]
        older = following[slot]
        out_codes[at] = slot_codes[slot]
        if older != NO_SLOT:
            if taken < len(out_slots):
                out_slots[taken] = older
                out_pages[taken] = out_pages[at]
                taken += 1
            else:
                heads[bucket_in_page(out_codes[at], out_pages[at], per_page)] = older
        at += 1
    return taken


@njit(inline="always")
def write_run(codes, row, last, index, code, found, out_rows, out_indexes):
    """Write the pairs of a code from its first row on; return the next place for a pair, and the
    row at which the output was full, or `COMPLETE`."""
    while row <= last and codes[row] == code:
        if found == len(out_rows):
            return found, row
        out_rows[found] = row
        out_indexes[found] = index
        found += 1
        row += 1
    return found, COMPLETE


@njit(cache=True)
def match_pages(
    codes,
    requested,
    pages,
    row_bounds,
    run_ends,
    parts,
    first_page,
    last_page,
    position,
    out_rows,
    out_indexes,
):
    """Find requested codes among the codes of some pages; return how many pairs there are.

    Writes (row, index into requested) pairs and stops when the output is full; `position` is
    ``[next requested, first match of it still to be written]``, zeros at first, and is updated in
    place. Complete when ``position[0] == len(requested)``. A code's first match lies on its page
    or, on a clustered page of the base, on the page after it in its partition; or, if these were
    read before, at the very start. Codes are there up to the row that `run_ends` says of the page.
    """
    found = 0
    index, resume = position[0], position[1]
    base = row_bounds[first_page]
    while index < len(requested):
        # 1. Bound the search to the pages on which the code's first match can be.
        page = pages[index]
        last = run_ends[max(page, first_page) - first_page] - 1
        part = partition_of(requested[index], parts)
        is_clustered = parts[part, FIRST] <= page < parts[part, LAST]
        beyond = min(page + 2, last_page, parts[part, LAST]) if is_clustered else page + 1
        low = max(0, row_bounds[page] - base)
        high = max(low, min(last, row_bounds[beyond] - base - 1))
        # 2. Find it and write its run of equal codes; go on there when the output was full.
        row = max(resume, find_code(codes, low, high, requested[index]))
        found, resume = write_run(
            codes, row, last, index, requested[index], found, out_rows, out_indexes
        )
        if resume != COMPLETE:
            break
        index += 1
    position[0], position[1] = index, resume
    return found


@njit(cache=True)
def match_pinned(requested, places, pinned_codes, row_counts, position, out_rows, out_indexes):
    """Find requested codes on the pinned pages they belong to; return how many pairs there are.

    Writes (row, index into requested) pairs, a row being counted through all places. `position` is
    as for `match_pages`. A code whose place is negative is skipped.
    """
    codes = pinned_codes.reshape(-1)
    found = 0
    index, resume = position[0], position[1]
    while index < len(requested):
        place = places[index]
        if place >= 0 and row_counts[place]:
            first = place * pinned_codes.shape[1]
            last = first + row_counts[place] - 1
            row = max(resume, find_code(codes, first, last, requested[index]))
            found, resume = write_run(
                codes, row, last, index, requested[index], found, out_rows, out_indexes
            )
            if resume != COMPLETE:
                break
        index += 1
    position[0], position[1] = index, resume
    return found


@njit(cache=True)
def count_demand(pages, demand):
    """Count how often each page is requested."""
    for page in pages:
        demand[page] += np.uint32(1)
