"""The mutants: each a single edit that makes the product wrong, and the tests that must notice.

An edit is a text that occurs exactly once in its file, and what takes its place. Keep the texts
short, so that they outlive changes around them; one that is no longer found is an error of the run.
"""

from dataclasses import dataclass

_CONTRACT = "tests/contract/test_operators.py"
_CHANGE = "tests/unit/relation/test_change.py"
_READ_PLAN = ("tests/unit/relation/test_readplan.py",)
_SEQUENCE = "tests/contract/test_sequences.py::test_a_sequence_of_changes"
_SPARSE = ("tests/unit/joins/test_diskbuffer.py",)
_VERDICTS = "tests/unit/lab/test_verdicts.py"


@dataclass(frozen=True)
class Mutant:
    """One edit, and the tests of which at least one must fail with it."""

    name: str
    file: str  # below src/semistream
    old: str
    new: str
    tests: tuple[str, ...]


def short(*algorithms: str) -> tuple[str, ...]:
    """Return the contract under short memory, for some algorithms."""
    return tuple(f"{_CONTRACT}::test_oracle_when_memory_is_short[{a}]" for a in algorithms)


def contract(test: str, *parameters: str) -> tuple[str, ...]:
    """Return a test of the contract suite, for some parameters."""
    return tuple(f"{_CONTRACT}::{test}[{p}]" for p in parameters)


MUTANTS = (
    # the lab
    Mutant(
        "lab: the best verdict of any seed counts",
        "lab/runner.py",
        "verdict = max(verdicts",
        "verdict = min(verdicts",
        (f"{_VERDICTS}::test_the_worst_verdict_of_any_seed_counts",),
    ),
    Mutant(
        "lab: a claim about the paper's equation is judged on our model",
        "lab/findings/xhybridjoin.py",
        '(shares["printed"], 1.0)',
        '(shares["model"], 1.0)',
        (f"{_VERDICTS}::test_equation_9_as_printed_chooses_hardly_any_pinned_part",),
    ),
    Mutant(
        "lab: bursts are judged for the first seed alone",
        "lab/findings/hybridjoin.py",
        "for name in FLOWS]",
        "for name in FLOWS[:1]]",
        (f"{_VERDICTS}::test_each_seeds_bursts_are_judged_and_not_their_mean",),
    ),
    Mutant(
        "lab: real cloud reports are not judged",
        "lab/common.py",
        "STAND_IN if lab.clouds is None else REAL_REPORTS",
        "STAND_IN",
        (f"{_VERDICTS}::test_real_reports_are_judged",),
    ),
    Mutant(
        "lab: MESHJOIN goes on before its next tuples have arrived",
        "lab/latency.py",
        "if needed > 1 or now == requested_at:",
        "if now == requested_at:",
        ("tests/unit/lab/test_streams.py::test_meshjoin_waits_for_its_next_tuples",),
    ),
    # joins: the scans
    Mutant(
        "MESHJOIN: a batch leaves one read early",
        "joins/meshjoin.py",
        "== self.settings.reads_per_cycle else 0",
        "== max(1, self.settings.reads_per_cycle - 1) else 0",
        short("meshjoin"),
    ),
    Mutant(
        "MESHJOIN: a cycle of several reads leaves out the last",
        "joins/meshjoin.py",
        "% self.settings.reads_per_cycle",
        "% max(1, self.settings.reads_per_cycle - 1)",
        short("rmeshjoin"),
    ),
    Mutant(
        "joins: the window is not drained at the end of the stream",
        "joins/streamjoin.py",
        "return stream.is_exhausted and self._window.count == 0",
        "return stream.is_exhausted",
        short("meshjoin"),
    ),
    # joins: what all share
    Mutant(
        "a tuple whose code another key shares is no miss",
        "joins/emission.py",
        "slots[tuples.matched[slots] & kernels.MATCHED == 0]",
        "slots[tuples.matched[slots] == 0]",
        ("tests/unit/joins/test_frontstage.py::test_a_key_that_shares_its_code_with_another",),
    ),
    Mutant(
        "a code that another key has is observed as missing",
        "joins/emission.py",
        "|= kernels.SHARES_CODE",
        "|= 0",
        ("tests/unit/joins/test_frontstage.py::test_a_key_that_shares_its_code_with_another",),
    ),
    Mutant(
        "hashed keys are not compared",
        "joins/emission.py",
        "if not same.all():",
        "if False:",
        ("tests/unit/joins/test_frontstage.py::test_a_key_that_shares_its_code_with_another",),
    ),
    Mutant(
        "rows without a key are looked up",
        "joins/stream.py",
        "can_match & self._may_hold(codes)",
        "self._may_hold(codes)",
        contract("test_intermittent_input", "meshjoin"),
    ),
    Mutant(
        "a lone row that cannot match is dropped",
        "joins/stream.py",
        "_unmatchable:\n            self._unmatchable.append(",
        "_unmatchable and unmatchable > 1:\n            self._unmatchable.append(",
        contract("test_batch_sizes_do_not_matter", "meshjoin-left-1"),
    ),
    Mutant(
        "a slot that held a null stays null",
        "joins/rows.py",
        "1 if validity is None else validity",
        "self._validity[slots] if validity is None else validity",
        ("tests/unit/joins/test_rows.py", *short("hybridjoin")),
    ),
    Mutant(
        "nested rows come out in the order of their chunks",
        "joins/rows.py",
        "back[order] = np.arange(len(order))",
        "back[:] = np.arange(len(order))",
        short("meshjoin"),
    ),
    Mutant(
        "pages of an extent without nulls are all null",
        "joins/slab.py",
        "out[:] = 1",
        "out[:] = 0",
        ("tests/unit/relation/test_relation.py",),
    ),
    # joins: the output
    Mutant(
        "output: pieces are not cut by their bytes",
        "joins/output.py",
        'np.searchsorted(ends, before + limit, "right")',
        "count",
        ("tests/unit/joins/test_output.py",),
    ),
    Mutant(
        "output: only the bytes of one side count",
        "joins/output.py",
        "sum(varying[1:], varying[0])",
        "varying[0]",
        ("tests/unit/joins/test_output.py",),
    ),
    Mutant(
        "output: whatever its bytes, all fits at once",
        "joins/output.py",
        "varying + count * self.row_bytes <= limit",
        "varying > 0",
        ("tests/unit/joins/test_output.py",),
    ),
    # joins: the front stages
    Mutant(
        "front stage: a key of several wide rows loses some of them",
        "joins/frontstage.py",
        "while fitting and self._same_key(",
        "while False and self._same_key(",
        ("tests/unit/joins/test_frontstage.py::test_keys_of_wide_rows_are_kept_whole",),
    ),
    Mutant(
        "front stage: the same, in the contract suite",
        "joins/frontstage.py",
        "while fitting and self._same_key(",
        "while False and self._same_key(",
        short("offline"),
    ),
    Mutant(
        "front stage: rows for which there was no room count as cached",
        "joins/frontstage.py",
        "self._evict(places[fitting:])",
        "self._evict(places[:0])",
        short("cmeshjoin", "chybridjoin"),
    ),
    Mutant(
        "front stage: of a key of several rows the first is stored for each",
        "joins/frontstage.py",
        "whole[candidates]] + nth",
        "whole[candidates]]",
        short("cmeshjoin"),
    ),
    Mutant(
        "front stage: a run of rows that goes on elsewhere is cached as a whole key",
        "joins/front_kernels.py",
        "is_whole = first > 0 and",
        "is_whole = first == 0 or",
        ("tests/unit/joins/test_frontstage.py::test_only_whole_keys_are_counted",),
    ),
    Mutant(
        "front stage: a key that is evicted leaves rows behind",
        "joins/front_kernels.py",
        "if table[at, w] == code:",
        "if w == way:",
        short("cmeshjoin", "chybridjoin"),
    ),
    Mutant(
        "pinned pages: a key that goes on on the next page is answered at once",
        "joins/pinned.py",
        "places[codes == self._index.first_code_after(pages)] = _NOWHERE",
        "pass",
        short("xhybridjoin"),
    ),
    Mutant(
        "pinned pages: a page that was evicted still counts as pinned",
        "joins/pinned.py",
        "self._place_of[self._page_at[place]] = _NOWHERE",
        "pass",
        short("xhybridjoin"),
    ),
    # joins: the index
    Mutant(
        "index joins: tuples leave before the last of their pages",
        "joins/indexjoin.py",
        "self._index.end(resolved - 1) > last",
        "self._index.end(resolved - 1) > last + 1",
        short("hybridjoin", "binlj"),
    ),
    Mutant(
        "index joins: the last page of a long run is not read",
        "joins/indexjoin.py",
        "range(page, end, self._pages_per_read)",
        "range(page, max(page + 1, end - 1), self._pages_per_read)",
        short("hybridjoin", "inlj"),
    ),
    Mutant(
        "index joins: the next page is not read for keys that run on",
        "joins/indexwindow_kernels.py",
        "end = min(ends[page], end_page) if len(ends) else page + 1",
        "end = page + 1",
        _SPARSE,
    ),
    Mutant(
        "index joins: codes that were not read are searched",
        "joins/indexwindow_kernels.py",
        "last = run_ends[max(page, first_page) - first_page] - 1",
        "last = len(codes) - 1",
        _SPARSE,
    ),
    Mutant(
        "index joins: codes of all pages of a load are read",
        "joins/indexjoin.py",
        "if self._relation.reading.read_ahead:\n            return None",
        "if first >= 0:\n            return None",
        (
            "tests/unit/joins/test_diskbuffer.py::test_a_load_for_one_page_reads_its_codes[ssd-0.25]",
        ),
    ),
    Mutant(
        "disk buffer: gaps are read whatever the device costs",
        "joins/row_kernels.py",
        "if gap <= most_gap and gap == in_file:",
        "if gap == in_file:",
        ("tests/unit/joins/test_diskbuffer.py::test_devices_differ_as_their_costs_do",),
    ),
    Mutant(
        "cost model: a gap is one page shorter",
        "cost/kernels.py",
        "max(0, j - most_gap - 1)",
        "max(0, j - most_gap)",
        ("tests/unit/cost/test_conditions.py::test_runs_are_those_of_all_cases",),
    ),
    Mutant(
        "page index: a key of many pages ends on the second",
        "relation/pageindex.py",
        'codes[1:], "right")',
        'codes[1:], "left")',
        short("hybridjoin", "inlj"),
    ),
    Mutant(
        "page kernels: a match is skipped when the output is full",
        "joins/indexwindow_kernels.py",
        "return found, row\n",
        "return found, row + 1\n",
        short("hybridjoin"),
    ),
    # joins: the hash table
    Mutant(
        "hash table: a tuple that has just left is found",
        "joins/kernels.py",
        "& (age < live) &",
        "& (age <= live) &",
        ("tests/unit/joins/test_kernels.py",),
    ),
    Mutant(
        "hash table: a match is skipped when the output is full",
        "joins/kernels.py",
        "resume = row\n",
        "resume = row + 1\n",
        ("tests/unit/joins/test_kernels.py",),
    ),
    # relation
    Mutant(
        "build: rows without a key are kept",
        "relation/build.py",
        "np.where(has_key, codes % len(self._batches), -1)",
        "codes % len(self._batches)",
        ("tests/unit/relation/test_relation.py::test_only_rows_without_a_key",),
    ),
    Mutant(
        "writer: a hot key whose rows come in two batches is cut in two",
        "relation/writer.py",
        "may_go_on = self._hot.holds(codes[-1:])[0]",
        "may_go_on = False",
        (
            "tests/unit/relation/test_hot.py::test_the_index_finds_every_hot_row_and_the_bounds_all_others",
        ),
    ),
    Mutant(
        "writer: a page that is exactly full begins another",
        "relation/writer.py",
        "filled + sizes[i] > page_bytes",
        "filled + sizes[i] >= page_bytes",
        ("tests/unit/relation/test_relation.py::test_cut_pages",),
    ),
    Mutant(
        "hot keys: one row less than the share is hot",
        "relation/hot.py",
        "<= most_hot_rows(row_count)",
        "< most_hot_rows(row_count)",
        ("tests/unit/relation/test_hot.py::test_the_choice_of_hot_keys",),
    ),
    Mutant(
        "reader: hot pages are read from where clustered ones lie",
        "relation/reader.py",
        "return np.roll(offsets, hot_pages)",
        "return offsets",
        ("tests/formats",),
    ),
    Mutant(
        "parts: damaged pages are not noticed",
        "relation/parts.py",
        "!= self.checksums[page]:",
        "!= self.checksums[page] and False:",
        ("tests/faults/test_damage.py::test_flipped_value",),
    ),
    Mutant(
        "reader: the greatest key is taken for missing",
        "relation/reader.py",
        "(codes <= last)",
        "(codes < last)",
        short("meshjoin"),
    ),
    Mutant(
        "manifest: the first release's cannot be read",
        "relation/layout.py",
        'body.get("order", "key")',
        'body["order"]',
        ("tests/formats",),
    ),
    Mutant(
        "manifest: a damaged one is believed",
        "relation/layout.py",
        'body.pop("checksum") != _checksum(body)',
        'body.pop("checksum") is None',
        ("tests/faults/test_damage.py::test_no_flipped_bit_goes_unnoticed[manifest.json-7]",),
    ),
    # relation: commits and leases
    Mutant(
        "draft: one that may be current is removed",
        "relation/draft.py",
        "self._may_be_current = True",
        "pass",
        ("tests/faults/test_commits.py::test_the_switch_fails_but_took_effect",),
    ),
    Mutant(
        "draft: one that has lost its files becomes current",
        "relation/draft.py",
        "if missing:",
        "if False:",
        ("tests/faults/test_commits.py::test_a_build_whose_draft_was_removed_is_not_published",),
    ),
    Mutant(
        "leases: a snapshot in use is pruned",
        "relation/leases.py",
        "elif lease.kind in kinds:",
        'elif lease.kind == "prune":',
        ("tests/unit/relation/test_leases.py::test_what_a_join_reads_is_kept",),
    ),
    Mutant(
        "prune: a reader that comes while it looks is not seen",
        "relation/prune.py",
        'used = lease.others("read", "build")',
        "used = []",
        ("tests/unit/relation/test_prune.py::test_a_reader_that_comes_while_a_prune_looks",),
    ),
    Mutant(
        "leases: a reader does not wait for a prune",
        "relation/leases.py",
        'not self.refusal and self.others("prune")',
        "False",
        ("tests/unit/relation/test_prune.py::test_a_reader_waits_for_a_prune_that_goes_on",),
    ),
    Mutant(
        "prune: a newer snapshot that someone went back from is taken for left over",
        "relation/prune.py",
        "snapshot > current and leases.has_dead_build(store, snapshot, now)",
        "snapshot > current",
        ("tests/faults/test_build_dies.py::test_a_build_that_runs_is_not_left_over",),
    ),
    Mutant(
        "spool: the folder of a build that runs is removed by the next",
        "relation/spoolfiles.py",
        ".is_gone()",
        ".pid > 0",
        ("tests/faults/test_build_dies.py::test_a_build_that_runs_is_not_left_over",),
    ),
    Mutant(
        "build: a rebuild does not keep the partitions",
        "relation/build.py",
        "partitions_at(location) or DEFAULT_PARTITIONS",
        "DEFAULT_PARTITIONS",
        ("tests/unit/relation/test_build.py",),
    ),
    Mutant(
        "leases: a reader makes the folder that it does not see",
        "relation/leases.py",
        "check_is_seen(store, CURRENT)  # before",
        "pass  # before",
        ("tests/unit/relation/test_places.py::test_a_folder_that_a_task_does_not_see",),
    ),
    Mutant(
        "places: the endpoint of the environment is not used",
        "relation/places.py",
        "options = {name: value for name, value in defaults.items() if value} | options",
        "pass",
        ("tests/unit/relation/test_places.py::test_s3_of_the_environment",),
    ),
    # relation: verify
    Mutant(
        "verify: pages that do not ascend from one piece to the next are not seen",
        "relation/verify.py",
        "ascends[0] = codes[0] >= self._last",
        "pass",
        ("tests/unit/relation/test_verify.py::test_codes_in_a_wrong_place",),
    ),
    Mutant(
        "verify: what was read before is not read again",
        "relation/verify.py",
        "reader.check_again()",
        "pass",
        ("tests/unit/relation/test_verify.py::test_damage_is_named_and_the_rest_is_still_read",),
    ),
    # keys, columns, memory
    Mutant(
        "keys: only the last column of a key may be null",
        "keys.py",
        "has_key &= validity.view(np.bool_)",
        "has_key = validity.view(np.bool_)",
        ("tests/unit/test_keys.py", *short("hybridjoin")),
    ),
    Mutant(
        "keys: only the last column of a key is compared",
        "keys.py",
        "same &= pc.equal(a, b)",
        "same = pc.equal(a, b)",
        ("tests/unit/test_keys.py",),
    ),
    Mutant(
        "columns: a slice of texts begins at the start of its buffer",
        "columns.py",
        "[offsets[0] : offsets[-1]]",
        "[: offsets[-1] - offsets[0]]",
        ("tests/unit/test_columns.py",),
    ),
    Mutant(
        "columns: a slice of numbers begins at the start of its buffer",
        "columns.py",
        "start = storage.offset * dtype.itemsize",
        "start = 0",
        ("tests/unit/test_columns.py",),
    ),
    Mutant(
        "columns: a slice of unions is sized from the start of its array",
        "columns.py",
        "dtype, here = array.type, slice(array.offset, array.offset + len(array))",
        "dtype, here = array.type, slice(0, len(array))",
        ("tests/unit/test_columns.py::test_a_slice_of_unions_is_stored_without_the_rest",),
    ),
    Mutant(
        "columns: each child of a dense union is sized from its start",
        "columns.py",
        "at = np.frombuffer(buffers[2], np.int32)[here][rows]",
        "at = np.arange(len(rows))",
        ("tests/unit/test_columns.py::test_a_slice_of_unions_is_stored_without_the_rest",),
    ),
    Mutant(
        "ledger: the peak is what is held last",
        "memory.py",
        "max(self.peak_bytes, self.held_bytes)",
        "self.held_bytes",
        ("tests/unit/test_memory.py",),
    ),
    Mutant(
        "ledger: the last byte of a budget cannot be reserved",
        "memory.py",
        "if delta_bytes > self.available_bytes:",
        "if delta_bytes >= self.available_bytes > 0:",
        ("tests/unit/test_memory.py",),
    ),
    # advice
    Mutant(
        "auto: the batch at which it changes its mind is lost",
        "advice/sampling.py",
        "self._pending = batch\n",
        "self._pending = None\n",
        short("auto"),
    ),
    Mutant(
        "auto: any demand is another one",
        "advice/watch.py",
        "max(moves) > _MOVED",
        "max(moves) >= 0",
        ("tests/unit/advice/test_auto.py::test_choices_are_remembered",),
    ),
    Mutant(
        "auto: the peak of two joins is the sum of theirs",
        "joins/telemetry.py",
        'max(a, b) if name.endswith("_peak") else a + b',
        "a + b",
        ("tests/unit/advice/test_auto.py::test_changes_lose_nothing",),
    ),
    # spark
    Mutant(
        "enrich: each task gets the whole budget",
        "spark/routing.py",
        "self.memory_bytes // tasks",
        "self.memory_bytes",
        (
            "tests/spark/test_enrich.py::test_a_budget_too_small_for_all_of_r_is_refused_on_the_driver",
        ),
    ),
    Mutant(
        "enrich: a task joins the partition of its own number",
        "spark/tasks.py",
        "return int(first.column(first.num_columns - 1)[0].as_py())",
        'return __import__("pyspark").TaskContext.get().partitionId()',
        ("tests/spark/test_enrich.py::test_coalesce_after_the_join",),
    ),
    Mutant(
        "enrich: rows stay in their tasks, but the budget is checked for one partition",
        "spark/routing.py",
        "tried.join_bytes, whole=route.joins_all",
        "tried.join_bytes, whole=False",
        (
            "tests/spark/test_routing.py::test_auto_shuffles_when_the_memory_does_not_hold_all_of_the_page_table",
        ),
    ),
    Mutant(
        "enrich: peaks of tasks that never run at once are summed",
        "spark/metrics.py",
        'if name.endswith("_peak"):',
        "if False:",
        ("tests/spark/test_routing.py::test_a_shuffle_to_more_tasks_than_cores_keeps_the_memory",),
    ),
    Mutant(
        "warm: what was saved of another snapshot is used",
        "joins/keptfront.py",
        "saved.snapshot != snapshot or ",
        "",
        ("tests/unit/joins/test_keptfront.py::test_what_was_saved_of_something_else_is_not_used",),
    ),
    Mutant(
        "warm: rows that changed are kept for the next snapshot",
        "joins/keptfront.py",
        "cache.forget(saved.changed)",
        "pass",
        (
            "tests/unit/joins/test_keptfront.py::test_rows_that_did_not_change_are_kept_for_the_next_snapshot",
        ),
    ),
    Mutant(
        "warm: rows of a segment that was folded into a newer one count as unchanged",
        "relation/differences.py",
        "changed.append(codes[first_pages >= pages])",
        "changed.append(codes[first_pages >= pages] if i else codes[:0])",
        ("tests/unit/relation/test_change.py::test_which_keys_changed",),
    ),
    Mutant(
        "warm: look-ups show keys of several rows to the front stage",
        "joins/lookupjoin.py",
        "self._learning.is_active and self._index.is_unique",
        "self._learning.is_active",
        ("tests/unit/joins/test_keptfront.py::test_micro_batches_agree_with_the_oracles",),
    ),
    Mutant(
        "warm: nothing is learned of the last rows of a stream",
        "joins/lookupjoin.py",
        "outlives=True",
        "outlives=False",
        ("tests/unit/joins/test_keptfront.py::test_a_cache_continues_where_the_last_one_ended",),
    ),
    Mutant(
        "warm: the used part of an arena is not restored",
        "joins/rows.py",
        "self._arena[: len(used)] = used",
        "pass",
        ("tests/unit/joins/test_keptfront.py::test_micro_batches_agree_with_the_oracles",),
    ),
    Mutant(
        "warm: files of places that have moved stay for ever",
        "spark/warmfiles.py",
        "is_replaced or int(number) < version - _KEPT_VERSIONS",
        "is_replaced",
        (
            "tests/spark/test_warm.py::test_files_of_another_snapshot_and_of_places_that_moved_are_removed",
        ),
    ),
    Mutant(
        "warm: folders of owners that are gone stay",
        "spark/warmfiles.py",
        "all(owner.is_gone() for owner in owners) or idle_s > _IDLE_S",
        "idle_s > _IDLE_S",
        ("tests/spark/test_warm.py::test_folders_are_removed_when_their_owner_is_gone",),
    ),
    Mutant(
        "spreading: hot rows go to the task of their partition",
        "spark/spreading.py",
        "F.when(is_hot, anywhere)",
        "F.when(is_hot, partition_expression(coder, key, partitions))",
        (
            "tests/spark/test_spreading.py::test_the_longest_task_is_not_much_longer_than_the_others",
        ),
    ),
    Mutant(
        "merging: the last small pieces are lost",
        "spark/merging.py",
        "        if self._waiting:",
        "        if False:",
        ("tests/spark/test_merging.py::test_small_pieces_become_batches_of_the_usual_rows",),
    ),
    Mutant(
        "enrich: the budget is checked for any partition, not the largest",
        "advice/feasible.py",
        "None if whole else largest_partition(relation)",
        "None if whole else 0",
        (
            "tests/unit/advice/test_feasible.py::test_the_memory_that_is_asked_for_is_enough_and_no_less_is",
        ),
    ),
    Mutant(
        "enrich: a budget is refused by the usual widths of texts, not the least",
        "advice/feasible.py",
        "least = Widths((1.0,) * count, (0,) * count)",
        "least = stream_widths(relation, spec)",
        ("tests/unit/advice/test_feasible.py::test_only_what_no_stream_could_do_with_is_refused",),
    ),
    Mutant(
        "enrich: the error of a task is dropped with its telemetry",
        "spark/failures.py",
        "F.when(text.isNotNull(), F.raise_error(text)).otherwise(condition)",
        "condition & text.isNull()",
        ("tests/spark/test_failures.py::test_the_message_comes_first",),
    ),
    Mutant(
        "workers: any version of semistream will do",
        "spark/workers.py",
        'if answer["version"] != __version__:',
        "if False:",
        ("tests/spark/test_workers.py::test_what_the_driver_says_about_its_workers",),
    ),
    # Look-ups and the read plan
    Mutant(
        "read plan: a page after a gap is taken from the gap",
        "relation/read_kernels.py",
        "starts[at - first] = used + gap",
        "starts[at - first] = used",
        _READ_PLAN,
    ),
    Mutant(
        "read plan: gaps are read however wide they are",
        "relation/read_kernels.py",
        "if count == 0 or gap < 0 or gap > most_gap:",
        "if count == 0 or gap < 0:",
        ("tests/unit/joins/test_lookupjoin.py",),
    ),
    Mutant(
        "read plan: a second file is read as if it were the first",
        "relation/readplan.py",
        "view = self._read(part, pages[:end], at)",
        "view = self._read(part, pages, at)",
        _READ_PLAN,
    ),
    Mutant(
        "read plan: single values are read without a checksum",
        "relation/readplan.py",
        "return not is_dense and bool(part.checked[pages].all())",
        "return not is_dense",
        _READ_PLAN,
    ),
    Mutant(
        "read plan: one checked page vouches for those beside it",
        "relation/parts.py",
        "if checked.all():",
        "if checked.any():",
        _READ_PLAN,
    ),
    Mutant(
        "read plan: nested values of a later view have the sizes of an earlier one",
        "joins/plannedrows.py",
        "before = np.append(0, ends)[page]",
        "before = 0 * np.append(0, ends)[page]",
        ("tests/unit/joins/test_plannedrows.py",),
    ),
    Mutant(
        "look-ups: duplicates on the next page are not looked for",
        "joins/lookup_kernels.py",
        "if page >= last or first_codes[page] != code:",
        "if True:",
        ("tests/unit/joins/test_lookupjoin.py",),
    ),
    Mutant(
        "look-ups: the first guess may be a later duplicate",
        "joins/lookup_kernels.py",
        "if codes[guess] == code and codes[guess - 1] != code:",
        "if codes[guess] == code:",
        ("tests/unit/joins/test_lookupjoin.py",),
    ),
    Mutant(
        "look-ups: a full output forgets where it stopped",
        "joins/lookup_kernels.py",
        "position[0], position[1] = request, row",
        "position[0], position[1] = request, -1",
        ("tests/unit/joins/test_lookupjoin.py",),
    ),
    # join options
    Mutant(
        "a condition is computed, but pairs that fail it stay",
        "joins/emission.py",
        "if not held.all():",
        "if False:",
        ("tests/contract/test_conditions.py::test_the_version_that_was_valid[cmeshjoin]",),
    ),
    Mutant(
        "ranges: a tuple at the lower bound is no candidate",
        "joins/candidates.py",
        'np.searchsorted(self.values, low, "left")',
        'np.searchsorted(self.values, low, "right")',
        ("tests/contract/test_without_keys.py::test_as_duckdb[s.x = r.high]",),
    ),
    Mutant(
        "versions: one that begins where another ends is refused",
        "relation/validity.py",
        "overlaps = ends[one] > begins[other]",
        "overlaps = ends[one] >= begins[other]",
        ("tests/unit/relation/test_validity.py::test_overlaps_are_refused_with_the_key",),
    ),
    Mutant(
        "ordered output: rows whose turn it is leave as they came",
        "joins/ordering.py",
        "pa.array(order[first : first + _MOST_ROWS])",
        "pa.array(np.sort(order)[first : first + _MOST_ROWS])",
        ("tests/contract/test_order.py::test_the_order_of_the_stream[hybridjoin]",),
    ),
    # relations that change
    Mutant(
        "changes: pairs with dead rows are emitted",
        "joins/liverows.py",
        "if len(dead) else len(rows)",
        "if not len(dead) else len(rows)",
        (f"{_CHANGE}::test_segments_stay_few_and_are_folded_in", f"{_CHANGE}::test_compact"),
    ),
    Mutant(
        "changes: rows of another key with the same code are lost",
        "relation/upsert.py",
        "is_other = ~self._same(theirs, table, first)",
        "is_other = np.zeros(len(old), np.bool_)",
        tuple(f"{_SEQUENCE}[{seed}]" for seed in range(1002, 1030) if seed % 4 > 1),
    ),
    Mutant(
        "changes: a writer replaces what another has written meanwhile",
        "relation/draft.py",
        "if current != self.replaces:",
        "if False:",
        (f"{_CHANGE}::test_the_slower_writer_is_refused_and_loses_nothing",),
    ),
    Mutant(
        "changes: prune removes files that other snapshots share",
        "relation/prune.py",
        "if name not in shared:",
        "if name:",
        (f"{_CHANGE}::test_prune_leaves_shared_files",),
    ),
    Mutant(
        "changes: a hot key that was changed is looked for on its hot page",
        "relation/listed.py",
        "is_hot &= find(codes, self.hot_codes) < 0",
        "is_hot &= True",
        (f"{_CHANGE}::test_refresh_keeps_what_the_build_was_given",),
    ),
    Mutant(
        "changes: a key's rows on further delta pages are not read",
        "relation/pageindex.py",
        "self._find_ends(reader.clustered_stretches())",
        "self._find_ends([(a, b) for a, b in bounds.tolist()])",
        (f"{_CHANGE}::test_a_key_whose_rows_fill_several_delta_pages",),
    ),
    Mutant(
        "changes: a snapshot that a replay needs is pruned",
        "relation/pins.py",
        "snapshot is not None and now - entry.modified_at < PIN_S",
        "snapshot is not None and now - entry.modified_at < 0",
        (f"{_CHANGE}::test_pins",),
    ),
    Mutant(
        "changes: a repeated micro-batch reads the current snapshot",
        "spark/following.py",
        'snapshot = _pin(planned, query, int(batch), context.getLocalProperty(_RUN) or "")',
        "snapshot = planned.store.read(CURRENT).decode()",
        ("tests/spark/test_change.py::test_a_repeated_micro_batch_reads_what_it_first_read",),
    ),
    # several relations, and rows that wait
    Mutant(
        "star: all relations that are shuffled share one shuffle",
        "spark/starplan.py",
        "return (spec.stream_key, types, relation.partition_count, planned.route.spread)",
        "return types",
        ("tests/spark/test_star.py::test_relations_with_the_same_key_share_a_shuffle",),
    ),
    Mutant(
        "star: each relation reports the metrics of the first",
        "spark/metrics.py",
        "number * _VALUES",
        "0",
        ("tests/spark/test_star.py::test_in_a_stream_each_relation_has_its_own_metrics",),
    ),
    Mutant(
        "held rows stay in the state when they leave",
        "spark/waiting.py",
        "            self._held.removeKey((due, number))\n",
        "",
        ("tests/spark/test_waiting.py",),
    ),
    Mutant(
        "a damaged snapshot is read again for ever",
        "relation/pins.py",
        "    if mark is not None and mark != run:\n        _pin_again",
        "    if False:\n        _pin_again",
        ("tests/unit/relation/test_pins.py",),
    ),
    # shedding, urgency, the front stage of a retuned join
    Mutant(
        "shedding: rows that are kept weigh no more than they are",
        "joins/shedding.py",
        "np.where(numbers < share, 1 / share, 0.0)",
        "np.where(numbers < share, 1.0, 0.0)",
        ("tests/contract/test_shed.py::test_sums_and_counts_are_unbiased",),
    ),
    Mutant(
        "shedding: frequent keys are not told from rare ones",
        "joins/shedding.py",
        "frequency = least / total",
        "frequency = 1 / total",
        ("tests/contract/test_shed.py::test_rare_keys_are_kept_and_the_share_is_met",),
    ),
    Mutant(
        "shedding: what decides on a slice decides on all",
        "joins/shedding.py",
        "self._issued += count",
        "self._issued = count - count",
        ("tests/contract/test_shed.py::test_a_run_is_repeated_however_the_stream_is_cut",),
    ),
    Mutant(
        "HYBRIDJOIN: how long tuples have waited does not count",
        "joins/indexwindow_kernels.py",
        "            since[load] = now",
        "            since[load] = 1",
        ("tests/unit/joins/test_indexjoin.py::test_the_most_urgent_load_is_read",),
    ),
    Mutant(
        "HYBRIDJOIN: a load that was read stays as old as it was",
        "joins/indexwindow_kernels.py",
        "            since[load] = 0",
        "            since[load] += 0",
        ("tests/unit/joins/test_indexjoin.py::test_the_most_urgent_load_is_read",),
    ),
    Mutant(
        "front stage: rows of another cache are taken over under other keys",
        "joins/frontstage.py",
        "_stored(codes[some], tallies, sizes, columns)",
        "_stored(codes[some][::-1], tallies, sizes, columns)",
        ("tests/unit/joins/test_frontstage.py::test_a_cache_takes_the_rows_of_another_over",),
    ),
    # pipelines
    Mutant(
        "sinks: a micro-batch that is repeated is written again",
        "databases/writing.py",
        "fetchall()[0][0]) >= number",
        "fetchall()[0][0]) > number",
        ("tests/databases/test_writing.py",),
    ),
    Mutant(
        "pipelines: the field on is a boolean",
        "pipeline/reading.py",
        "if each[0] != _BOOLEAN",
        "if each[0] is not None",
        ("tests/unit/pipeline/test_model.py",),
    ),
)
