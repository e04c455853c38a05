"""``semistream run`` and ``semistream init``: pipelines from files."""

import argparse
import json
import logging
from pathlib import Path

from semistream.cli.arguments import Commands
from semistream.errors import OptionError
from semistream.extras import needs_extra


def add_run(commands: Commands) -> None:
    """Add ``semistream run``."""
    run = commands.add_parser(
        "run",
        help="run a pipeline: from a source through steps to a sink, as a file describes it",
        description="Runs a pipeline until it ends. On SIGTERM the micro-batch that runs is "
        "finished, and the next start goes on after it. `semistream init` writes a file to begin "
        "with.",
    )
    run.add_argument("pipeline", nargs="?", type=Path, help="the pipeline file, YAML")
    run.add_argument(
        "--dry-run",
        action="store_true",
        help="show what would run: each step, the predicted rate of each join, and Spark's plan",
    )
    run.add_argument(
        "--schema",
        action="store_true",
        help="print the JSON schema of pipeline files, for editors, and end",
    )
    run.set_defaults(run=_run)


def add_init(commands: Commands) -> None:
    """Add ``semistream init``."""
    init = commands.add_parser(
        "init",
        help="write a pipeline file for the retail example, with a comment on each field",
        description="Writes a pipeline file to begin with. Each field has a comment; put your own "
        "files, columns and sink in. A file that exists is not overwritten.",
    )
    init.add_argument(
        "pipeline",
        nargs="?",
        type=Path,
        default=Path("pipeline.yml"),
        help="the file to write (default: pipeline.yml)",
    )
    init.set_defaults(run=_init)


def _init(arguments: argparse.Namespace) -> int:
    from semistream.pipeline.example import write_example

    write_example(arguments.pipeline)
    print(
        f"wrote {arguments.pipeline}; its first lines say how to make the data of the example. "
        f"Then: semistream run {arguments.pipeline} --dry-run"
    )
    return 0


def _run(arguments: argparse.Namespace) -> int:
    with needs_extra("spark", "semistream run"):
        from semistream.pipeline.model import Pipeline, schema
    if arguments.schema:
        print(json.dumps(schema(), indent=1))
        return 0
    if arguments.pipeline is None:
        raise OptionError("name the pipeline file: semistream run pipeline.yml")
    pipeline = Pipeline.read(arguments.pipeline)
    with needs_extra("spark", "semistream run"):
        from semistream.spark.pipeline.dryrun import dry_run
        from semistream.spark.pipeline.running import run_pipeline
    logging.getLogger("SQLQueryContextLogger").disabled = True  # what it logs is printed as well
    if arguments.dry_run:
        print(dry_run(pipeline))
        return 0
    run_pipeline(pipeline)
    print(f"{pipeline.name}: ended in order; the next start goes on from here")
    return 0
