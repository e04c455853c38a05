"""Mutants of pipelines: dead letters, the orderly stop, Delta tables, surrogate keys, held rows."""

from tests.mutants.mutant import Mutant

PIPELINES = (
    Mutant(
        "pipelines: dead letters are counted and not written",
        "spark/pipeline/running.py",
        "            if dead:\n",
        "            if dead > total:\n",
        ("tests/spark/test_pipeline.py::test_files_to_parquet_with_dead_letters_and_a_restart",),
    ),
    Mutant(
        "pipelines: dead letters go to the sink, too",
        "spark/pipeline/running.py",
        "sound = rows.filter(column(REASON).isNull())",
        "sound = rows.filter(F.lit(True))",
        ("tests/spark/test_pipeline.py::test_files_to_parquet_with_dead_letters_and_a_restart",),
    ),
    Mutant(
        "pipelines: the share of dead letters is not limited",
        "spark/pipeline/running.py",
        "dead > limits.share * total:",
        "dead > total:",
        (
            "tests/spark/test_pipeline.py::test_too_many_dead_letters_stop_the_query_and_nothing_is_written",
        ),
    ),
    Mutant(
        "pipelines: a predicate drops dead letters",
        "spark/pipeline/stepping.py",
        "column(REASON).isNotNull() | holds",
        "holds",
        ("tests/spark/test_pipeline.py::test_files_to_parquet_with_dead_letters_and_a_restart",),
    ),
    Mutant(
        "pipelines: a key of the wrong form is a null",
        "spark/pipeline/stepping.py",
        "column(ours).isNotNull() & key.isNull(), said",
        "F.lit(False), said",
        ("tests/spark/test_pipeline.py::test_files_to_parquet_with_dead_letters_and_a_restart",),
    ),
    Mutant(
        "pipelines: SIGTERM ends the process at once",
        "spark/pipeline/stopping.py",
        "_SIGNALS = (signal.SIGTERM,)",
        "_SIGNALS: tuple[signal.Signals, ...] = ()",
        (
            "tests/spark/test_pipeline.py::test_sigterm_ends_the_micro_batch_and_the_next_start_goes_on",
        ),
    ),
    Mutant(
        "pipelines: a micro-batch after the stop is noted as ended",
        "spark/pipeline/running.py",
        'raise StoppedError(f"micro-batch {number} came after the stop; nothing is written")',
        "return",
        ("tests/spark/test_stopping.py",),
    ),
    Mutant(
        "pipelines: the stop does not wait for the micro-batch that runs",
        "spark/pipeline/stopping.py",
        "not self._is_idle.wait(_POLL_S)",
        "not self._is_idle",
        ("tests/spark/test_stopping.py",),
    ),
    Mutant(
        "pipelines: the stop does not wait until Spark has noted the end",
        "spark/pipeline/stopping.py",
        "and not self._is_noted(query)",
        "and not query.isActive",
        ("tests/spark/test_stopping.py",),
    ),
    Mutant(
        "pipelines: a failure in the last micro-batch is not reported",
        "spark/pipeline/running.py",
        "if batches.failure is not None:  # of",
        "if batches.failure is batches:  # of",
        ("tests/spark/test_stopping.py",),
    ),
    Mutant(
        "pipelines: a repeated micro-batch is appended to Delta again",
        "tables.py",
        "                return None\n        counted",
        "                pass\n        counted",
        ("tests/spark/test_pipeline.py::test_a_batch_that_is_repeated_is_written_once",),
    ),
    Mutant(
        "pipelines: a Delta stream reads the last version again",
        "tables.py",
        "if version <= after or operation in _REARRANGING",
        "if version < after or operation in _REARRANGING",
        ("tests/spark/test_pipeline.py::test_a_delta_table_as_a_source",),
    ),
    Mutant(
        "pipelines: rows that Delta rearranges come again",
        "tables.py",
        "if version <= after or operation in _REARRANGING",
        "if version <= after",
        ("tests/spark/test_pipeline.py::test_a_delta_table_as_a_source",),
    ),
    Mutant(
        "pipelines: surrogate keys: the last number is given again",
        "spark/surrogates.py",
        "np.arange(last + 1, last + 1 + new.num_rows)",
        "np.arange(last, last + new.num_rows)",
        ("tests/spark/test_pipeline.py::test_surrogate_keys_of_several_sources_are_given_once",),
    ),
    Mutant(
        "pipelines: surrogate keys: the last number is not noted",
        "spark/surrogates.py",
        "folded=(stream, last + new.num_rows)",
        "folded=(stream, last)",
        ("tests/spark/test_pipeline.py::test_surrogate_keys_of_several_sources_are_given_once",),
    ),
    Mutant(
        "pipelines: surrogate keys: the slower of two writers fails",
        "spark/surrogates.py",
        "if attempt == _ATTEMPTS - 1:",
        "if attempt < _ATTEMPTS:",
        (
            "tests/spark/test_pipeline.py::test_of_two_writers_of_surrogate_keys_the_slower_looks_again",
        ),
    ),
    Mutant(
        "pipelines: hold: expired rows go to the sink",
        "spark/pipeline/stepping.py",
        'isin("missing", "expired")',
        'isin("missing")',
        ("tests/spark/test_pipeline_hold.py",),
    ),
)
