"""``semistream``: the command."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from semistream.cli.arguments import (
    RELATION,
    Commands,
    WithDefaults,
    add_build,
    add_compact,
    add_completion,
    add_doctor,
    add_history,
    add_info,
    add_prune,
    add_verify,
)
from semistream.cli.lab_arguments import add_lab
from semistream.cli.pipeline import add_init, add_run
from semistream.errors import OptionError, SemistreamError
from semistream.extras import needs_extra
from semistream.relation.device import DEVICES
from semistream.relation.failures import remedy, said
from semistream.version import __version__

_EXIT_CODES = (
    "exit codes: 0 done and well; 1 verify found damage, or doctor found something wrong; 2 the "
    "command could not run, for the reason that it prints; 130 interrupted; 141 its output was "
    "closed"
)
_COLUMNS = "columns that the join adds, separated by commas"
_SEED = "the same seed gives the same rows"


def main(argv: list[str] | None = None) -> int:
    """Run a command; errors that a user can correct are printed without a traceback."""
    arguments = parser().parse_args(argv)
    try:
        code = int(arguments.run(arguments))
        sys.stdout.flush()  # here, so that a closed pipe is reported below
        return code
    except SemistreamError as error:
        print(f"semistream: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of a pipe has enough (`semistream … | head`); what is buffered has no reader.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print("semistream: the output was closed before its end", file=sys.stderr)
        return 141  # as shells show a program that SIGPIPE ended
    except OSError as error:
        print(f"semistream: {said(error)}; {remedy(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("semistream: interrupted", file=sys.stderr)
        return 130


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    whole = argparse.ArgumentParser(
        prog="semistream",
        description="Join a fast stream with a master table too big for memory, within a budget.",
        epilog=_EXIT_CODES,
    )
    whole.add_argument("--version", action="version", version=f"semistream {__version__}")
    whole.set_defaults(run=_show_commands)
    commands = whole.add_subparsers(title="commands", metavar="COMMAND")
    _add_demo(commands)
    add_run(commands)
    add_init(commands)
    add_build(commands)
    add_info(commands)
    add_verify(commands)
    add_history(commands)
    add_compact(commands)
    add_prune(commands)
    add_doctor(commands)
    _add_generate(commands)
    _add_calibrate(commands)
    _add_explain(commands)
    _add_bench(commands)
    add_lab(commands)
    add_completion(commands, parser)
    return whole


def _show_commands(_: argparse.Namespace) -> int:
    """Print what there is, for somebody who named no command."""
    parser().print_help()
    return 0


def _add_demo(commands: Commands) -> None:
    demo = commands.add_parser(
        "demo",
        help="enrich a bursty sales stream on Spark, check every row, compare with plain Spark",
        description="Makes a product master and a sales stream, enriches the stream on Spark, "
        "checks every row of the result, and compares the time with plain Spark. It takes some "
        "minutes and about 2 GB of disk; --rows and --sales make it smaller.",
        formatter_class=WithDefaults,
    )
    demo.add_argument("--rows", type=int, default=8_000_000, help="rows of the product master")
    demo.add_argument("--sales", type=int, default=1_000_000, help="rows of the sales stream")
    demo.add_argument("--batches", type=int, default=10, help="micro-batches of the stream")
    demo.add_argument("--memory", default="5%", help="budget: a size, or a share of the master")
    demo.add_argument(
        "--skew",
        type=float,
        default=1.0,
        help="skew of the sales as Zipf exponent: 0 none, 1 strong",
    )
    demo.add_argument("--partitions", type=int, default=2, help="partitions of the relation")
    demo.add_argument("--seed", type=int, default=2026, help=_SEED)
    demo.add_argument("--out", type=Path, default=Path("demo-out"), help="folder for all files")
    demo.set_defaults(run=_run_demo)


def _run_demo(arguments: argparse.Namespace) -> int:
    with needs_extra("demo", "the demo"):
        from semistream.cli.demo import DemoOptions, run_demo

    return run_demo(DemoOptions(**_options(arguments)))


def _add_generate(commands: Commands) -> None:
    generate = commands.add_parser(
        "generate",
        help="write a workload: its relation, and its stream as files or to Kafka, also paced",
        description="WORKLOAD is zipf (the papers' synthetic data), drifting (the same, with "
        "popular keys that change), retail (products and sales), clouds (a substitute for the "
        "papers' cloud reports), tpch-orders or tpch-lineitem. The same options always give the "
        "same rows.",
        epilog="example: semistream generate zipf --relation-rows 1000000 --relation-out "
        "r.parquet --out events --rate 20000 --arrivals bursty",
    )
    generate.add_argument("workload", metavar="WORKLOAD", help="name of the workload; see above")
    generate.add_argument(
        "--out", metavar="TARGET", help="the stream: a folder, or kafka://host:port/topic"
    )
    generate.add_argument(
        "--relation-out", type=Path, metavar="FILE", help="the relation: a .parquet or .csv file"
    )
    rows = generate.add_argument_group("rows")
    rows.add_argument(
        "--rows", type=int, help="rows of the stream (default: 1,000,000; with --rate, no limit)"
    )
    rows.add_argument("--first", type=int, default=0, help="number of the first row (default: 0)")
    rows.add_argument("--relation-rows", type=int, help="rows of the relation")
    rows.add_argument("--exponent", type=float, help="Zipf exponent of the stream's keys")
    rows.add_argument("--seed", type=int, help=_SEED)
    rows.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another option of the workload, such as by_frequency=true, row_bytes=128, scale=10",
    )
    files = generate.add_argument_group("files")
    files.add_argument(
        "--files", type=int, help="number of files (default: 10, and one per million rows)"
    )
    files.add_argument(
        "--format",
        default="parquet",
        metavar="{parquet,ndjson,csv}",
        help="format of the files (default: parquet)",
    )
    pace = generate.add_argument_group("in real time; Ctrl-C stops it")
    pace.add_argument("--rate", type=float, help="rows per second (default: no limit)")
    pace.add_argument(
        "--arrivals",
        default="steady",
        metavar="{steady,bursty,intermittent}",
        help="how rows arrive over time (default: steady)",
    )
    pace.add_argument("--every", type=float, default=1.0, help="seconds between files (default: 1)")
    pace.add_argument("--on", type=float, default=10.0, help="seconds with arrivals (default: 10)")
    pace.add_argument(
        "--off", type=float, default=10.0, help="seconds without arrivals (default: 10)"
    )
    generate.set_defaults(run=_run_generate)


def _run_generate(arguments: argparse.Namespace) -> int:
    from semistream.cli.generate import GenerateOptions, run_generate

    return run_generate(GenerateOptions(**_options(arguments)))


def _add_calibrate(commands: Commands) -> None:
    calibrate = commands.add_parser(
        "calibrate",
        help="measure the cost factors of this machine for a relation, in half a minute",
        description="Runs the joins on the relation for some seconds and measures the cost of each "
        "step. explain and auto use the result, which is stored for this host by device and "
        "schema.",
    )
    calibrate.add_argument("relation", help=RELATION)
    calibrate.add_argument("--columns", help=_COLUMNS)
    calibrate.add_argument(
        "--spark",
        action="store_true",
        help="also run queries on Spark, on this machine, and measure what Spark's part costs; "
        "about two minutes more",
    )
    calibrate.add_argument("--json", action="store_true", help="print the stored factors as JSON")
    calibrate.set_defaults(run=_run_calibrate)


def _run_calibrate(arguments: argparse.Namespace) -> int:
    from semistream.cli.advice import run_calibrate

    columns = _names(arguments.columns)
    return run_calibrate(arguments.relation, columns, arguments.spark, arguments.json)


def _add_explain(commands: Commands) -> None:
    explain = commands.add_parser(
        "explain",
        help="predict what a budget gives: rate of each algorithm, split, least sufficient budget",
        description="Predicts how fast a join with the relation will be in this memory. Nothing is "
        "run. With --spark it predicts a whole query: time of a micro-batch and rows per second.",
        epilog="example: semistream explain products.rel --spark --cores 8 --memory 256MB --batch "
        "100000",
        formatter_class=WithDefaults,
    )
    explain.add_argument("relation", help=RELATION)
    explain.add_argument("--memory", default="64MB", help="budget: a size, or a share such as 5%%")
    explain.add_argument("--rate", type=float, help="tuples per second that arrive")
    explain.add_argument(
        "--latency", help="time from a row's arrival to its output, such as 50ms; needs --rate"
    )
    explain.add_argument(
        "--batch", type=int, metavar="ROWS", help="rows of a micro-batch whose time is predicted"
    )
    spark = explain.add_argument_group("a query on Spark")
    spark.add_argument(
        "--spark",
        action="store_true",
        help="predict what a query delivers: routing, tasks and Spark's own part included",
    )
    spark.add_argument("--cores", type=int, help="cores of all executors (default: this machine's)")
    spark.add_argument(
        "--tasks", type=int, help="tasks of a micro-batch (default: as many as cores)"
    )
    spark.add_argument(
        "--routing",
        choices=["auto", "local", "shuffle"],
        default="auto",
        help="whether rows stay in their tasks (local) or go to the task of their partition",
    )
    skew = explain.add_mutually_exclusive_group()
    skew.add_argument(
        "--skew", type=float, help="skew of the stream's keys as Zipf exponent: 0 none, 1 strong"
    )
    skew.add_argument("--sample", metavar="PATH", help="a Parquet or CSV file of stream rows")
    explain.add_argument("--on", help="the sample's key columns: name, or name=relation_name, …")
    explain.add_argument("--columns", help=_COLUMNS)
    options = explain.add_argument_group("options of the join, to see what each costs")
    options.add_argument(
        "--condition",
        help="a condition beside equal keys, such as 's.quantity >= r.least'; needs --sample",
    )
    options.add_argument("--valid-at", help="the sample's time column, if R has versions of a row")
    options.add_argument("--ordered", metavar="{stream,key}", help="the order that rows leave in")
    options.add_argument(
        "--shed",
        metavar="{uniform,keep-rare}",
        help="join only a sample of the rows if --rate is too high",
    )
    explain.add_argument(
        "--device",
        metavar=f"{{{','.join(DEVICES)}}}",
        help="predict for an emulated device instead of this machine's",
    )
    explain.add_argument("--json", action="store_true", help="print everything as JSON")
    explain.add_argument("--plot", type=Path, metavar="FILE", help="draw a chart: .png or .svg")
    explain.set_defaults(run=_run_explain)


def _run_explain(arguments: argparse.Namespace) -> int:
    from semistream.cli.advice import run_explain

    return run_explain(
        arguments.relation,
        memory=arguments.memory,
        rate=arguments.rate,
        skew=arguments.skew,
        sample=arguments.sample,
        on=arguments.on,
        columns=_names(arguments.columns),
        batch=arguments.batch,
        options=_join_options(arguments),
        on_spark=_on_spark(arguments),
        device=arguments.device,
        as_json=arguments.json,
        plot=arguments.plot,
    )


def _join_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the join that are asked about."""
    names = ("condition", "latency", "valid_at", "ordered", "shed")
    given = {name: getattr(arguments, name) for name in names}
    used = [name for name, value in given.items() if value is not None]
    if used and arguments.spark:
        flag = used[0].replace("_", "-")
        raise OptionError(f"--{flag} is explained for the join alone: leave --spark out")
    return given


def _on_spark(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Return the options of a query on Spark; None if it is not asked about."""
    given = {"cores": arguments.cores, "tasks": arguments.tasks, "routing": arguments.routing}
    if arguments.spark:
        return given
    used = [f"--{name}" for name, value in given.items() if value not in (None, "auto")]
    if used:
        raise OptionError(f"{used[0]} is for a query on Spark: add --spark")
    return None


def _add_bench(commands: Commands) -> None:
    bench = commands.add_parser(
        "bench",
        help="measure how far predictions are off",
        description="Runs many joins or queries, and compares the time of each with what explain "
        "predicts for it.",
        formatter_class=WithDefaults,
    )
    bench.add_argument(
        "what",
        choices=["model", "spark"],
        help="joins without Spark (model), or queries on Spark",
    )
    bench.add_argument(
        "--device",
        default="hdd-2007",
        choices=["real", *DEVICES],
        help="for model: this machine's device (real), or an emulated one with its own clock",
    )
    bench.add_argument("--rows", type=int, default=350_000, help="for model: rows of the relation")
    bench.add_argument("--quick", action="store_true", help="fewer runs")
    bench.add_argument("--out", type=Path, metavar="FILE", help="write the tables as Markdown")
    bench.set_defaults(run=_run_bench)


def _run_bench(arguments: argparse.Namespace) -> int:
    if arguments.what == "spark":
        with needs_extra("spark", "semistream bench spark"):
            from semistream.cli.bench_spark import run_bench_spark

        return run_bench_spark(arguments.quick, arguments.out)
    from semistream.cli.bench import run_bench_model

    return run_bench_model(arguments.rows, arguments.device, arguments.quick, arguments.out)


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a command by name."""
    return {name: value for name, value in vars(arguments).items() if name != "run"}


def _names(text: str | None) -> list[str] | None:
    return None if text is None else text.split(",")


if __name__ == "__main__":
    sys.exit(main())
