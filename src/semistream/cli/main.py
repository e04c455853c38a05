"""``semistream``: the command."""

import argparse
import sys
from pathlib import Path

from semistream.errors import SemistreamError
from semistream.relation.build import DEFAULT_PAGE_BYTES, DEFAULT_PARTITIONS, BuildOptions
from semistream.version import __version__


def main(argv: list[str] | None = None) -> int:
    """Run a command; errors that a user can mend are printed without a traceback."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except SemistreamError as error:
        print(f"semistream: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("semistream: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="semistream",
        description="Join a fast stream with a master table too big for memory, within a budget.",
    )
    parser.add_argument("--version", action="version", version=f"semistream {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_build(commands)
    _add_generate(commands)
    _add_calibrate(commands)
    _add_explain(commands)
    _add_bench(commands)
    _add_lab(commands)
    return parser


def _add_demo(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    demo = commands.add_parser(
        "demo",
        help="enrich a bursty sales stream on Spark, prove it exact, compare with plain Spark",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    demo.add_argument("--rows", type=int, default=8_000_000, help="rows of the product master")
    demo.add_argument("--sales", type=int, default=4_000_000, help="rows of the sales stream")
    demo.add_argument("--batches", type=int, default=10, help="micro-batches of the stream")
    demo.add_argument("--memory", default="5%", help="budget: a size, or a share of the master")
    demo.add_argument("--skew", type=float, default=1.0, help="Zipf exponent of the sales")
    demo.add_argument("--partitions", type=int, default=2, help="partitions of the relation")
    demo.add_argument("--seed", type=int, default=2026, help="the same seed, the same rows")
    demo.add_argument("--out", type=Path, default=Path("demo-out"), help="where everything goes")
    demo.set_defaults(run=_run_demo)


def _run_demo(arguments: argparse.Namespace) -> int:
    from semistream.cli.demo import DemoOptions, run_demo

    options = {k: v for k, v in vars(arguments).items() if k != "run"}
    return run_demo(DemoOptions(**options))


def _add_build(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    build = commands.add_parser(
        "build",
        help="build a relation from Parquet or CSV, without Spark",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    build.add_argument("source", help="a Parquet or CSV file or folder")
    build.add_argument("relation", help="where the relation goes: a path, or a URI such as s3://…")
    build.add_argument("--key", required=True, help="key columns, separated by commas")
    build.add_argument("--partitions", type=int, default=DEFAULT_PARTITIONS)
    build.add_argument("--page-size", default=str(DEFAULT_PAGE_BYTES), help="such as 64KiB")
    build.add_argument(
        "--order",
        default="key",
        metavar="{key,frequency}",
        help="how the rows lie: by key, or with those that the stream asks for most in front, on "
        "pages that a join can keep in memory; frequency needs --sample",
    )
    build.add_argument(
        "--sample",
        metavar="PATH",
        help="a Parquet or CSV file or folder with some rows of the stream, to count how often "
        "each key is asked for; has the key columns under the names of --key",
    )
    build.set_defaults(run=_run_build)


def _run_build(arguments: argparse.Namespace) -> int:
    from semistream.cli.build import run_build

    options = BuildOptions(
        arguments.key.split(","),
        arguments.partitions,
        arguments.page_size,
        arguments.order,
        arguments.sample,
    )
    return run_build(arguments.source, arguments.relation, options)


def _add_generate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    generate = commands.add_parser(
        "generate",
        help="write a workload: its relation, and its stream as files or to Kafka, also paced",
        description="WORKLOAD is zipf (the papers' synthetic data), drifting (the same, with "
        "popular keys that change), retail (products and sales), clouds (a stand-in for the "
        "papers' cloud reports), tpch-orders or tpch-lineitem. The same options give the same "
        "rows again.",
        epilog="example: semistream generate zipf --relation-rows 1000000 --relation-out "
        "r.parquet --out events --rate 20000 --arrivals bursty",
    )
    generate.add_argument("workload", metavar="WORKLOAD", help="which one; see above")
    generate.add_argument(
        "--out", metavar="TARGET", help="the stream: a folder, or kafka://host:port/topic"
    )
    generate.add_argument(
        "--relation-out", type=Path, metavar="FILE", help="the relation: a .parquet or .csv file"
    )
    rows = generate.add_argument_group("which rows")
    rows.add_argument(
        "--rows", type=int, help="rows of the stream (1,000,000; with --rate, without end)"
    )
    rows.add_argument("--first", type=int, default=0, help="the first row, to go on behind others")
    rows.add_argument("--relation-rows", type=int, help="rows of the relation")
    rows.add_argument("--exponent", type=float, help="Zipf exponent of the stream's keys")
    rows.add_argument("--seed", type=int, help="the same seed, the same rows")
    rows.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another option of the workload, such as by_frequency=true, row_bytes=128, scale=10",
    )
    files = generate.add_argument_group("files")
    files.add_argument("--files", type=int, help="how many (10, and one per million rows)")
    files.add_argument("--format", default="parquet", metavar="{parquet,ndjson,csv}")
    pace = generate.add_argument_group("in real time; Ctrl-C ends it")
    pace.add_argument("--rate", type=float, help="rows a second; without it, as fast as can be")
    pace.add_argument("--arrivals", default="steady", metavar="{steady,bursty,intermittent}")
    pace.add_argument("--every", type=float, default=1.0, help="seconds from file to file (1)")
    pace.add_argument("--on", type=float, default=10.0, help="seconds that rows come (10)")
    pace.add_argument("--off", type=float, default=10.0, help="seconds that none come (10)")
    generate.set_defaults(run=_run_generate)


def _run_generate(arguments: argparse.Namespace) -> int:
    from semistream.cli.generate import GenerateOptions, run_generate

    options = {k: v for k, v in vars(arguments).items() if k != "run"}
    return run_generate(GenerateOptions(**options))


def _add_calibrate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    calibrate = commands.add_parser(
        "calibrate",
        help="measure the cost factors of this machine for a relation, in half a minute",
        description="Runs the joins on the relation for some seconds, so that explain and auto "
        "know what each step costs here. Kept for this host, by device and schema.",
    )
    calibrate.add_argument("relation", help="a path, or a URI such as s3://…")
    calibrate.add_argument("--columns", help="columns that the join adds, separated by commas")
    calibrate.add_argument("--json", action="store_true", help="print what is kept")
    calibrate.set_defaults(run=_run_calibrate)


def _run_calibrate(arguments: argparse.Namespace) -> int:
    from semistream.cli.advice import run_calibrate

    return run_calibrate(arguments.relation, _names(arguments.columns), arguments.json)


def _add_explain(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    explain = commands.add_parser(
        "explain",
        help="what a memory budget buys: rates by algorithm, the split, the least that is enough",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    explain.add_argument("relation", help="a path, or a URI such as s3://…")
    explain.add_argument("--memory", default="64MB", help="budget: a size, or a share such as 5%%")
    explain.add_argument("--rate", type=float, help="tuples per second that arrive")
    skew = explain.add_mutually_exclusive_group()
    skew.add_argument("--skew", type=float, help="Zipf exponent of the stream's keys")
    skew.add_argument("--sample", metavar="PATH", help="a Parquet or CSV file of stream rows")
    explain.add_argument("--on", help="the sample's key columns: name, or name=relation_name, …")
    explain.add_argument("--columns", help="columns that the join adds, separated by commas")
    explain.add_argument(
        "--device",
        metavar="{hdd-papers,hdd-2007,hdd-2011,ssd,object-store}",
        help="what it would be like on an emulated device",
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
        device=arguments.device,
        as_json=arguments.json,
        plot=arguments.plot,
    )


def _add_bench(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    bench = commands.add_parser(
        "bench",
        help="measure how good the cost models are",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    bench.add_argument("what", choices=["model"], help="predictions and choices of the models")
    bench.add_argument(
        "--device",
        default="hdd-2007",
        choices=["real", "hdd-papers", "hdd-2007", "hdd-2011", "ssd", "object-store"],
        help="this machine, or an emulated device on its own clock",
    )
    bench.add_argument("--rows", type=int, default=350_000, help="rows of the relation")
    bench.add_argument("--quick", action="store_true", help="a coarser grid")
    bench.add_argument("--out", type=Path, metavar="FILE", help="write the tables as Markdown")
    bench.set_defaults(run=_run_bench)


def _run_bench(arguments: argparse.Namespace) -> int:
    from semistream.cli.bench import run_bench_model

    return run_bench_model(arguments.rows, arguments.device, arguments.quick, arguments.out)


def _add_lab(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    lab = commands.add_parser(
        "lab",
        help="the papers' figures, made here and judged",
        description="Makes the figures of the papers, on an emulated disk of their time or on this "
        "machine's, and judges what the papers say of them.",
    )
    actions = lab.add_subparsers(title="actions", metavar="action", required=True)
    listed = actions.add_parser("list", help="name all figures")
    listed.set_defaults(run=_run_lab_list)
    run = actions.add_parser(
        "run",
        help="make figures",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        description="Writes a CSV file, a PNG and an SVG picture and the verdicts of each figure, "
        "and one page of all of them.",
    )
    run.add_argument(
        "figures",
        nargs="*",
        metavar="FIGURE",
        help="figures or whole papers, as `semistream lab list` names them; all if none is named",
    )
    run.add_argument(
        "--scale",
        choices=["quick", "paper"],
        default="quick",
        help="in miniature, minutes in all; or as large as in the papers, hours and gigabytes",
    )
    run.add_argument(
        "--device",
        choices=["real", "hdd-papers", "hdd-2007", "hdd-2011", "ssd", "object-store"],
        default="hdd-papers",
        help="an emulated device on its own clock, or this machine's",
    )
    run.add_argument("--seed", type=int, default=7, help="of the generated data")
    run.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="papers to work on at a time; only where the device is emulated",
    )
    run.add_argument(
        "--out", type=Path, default=Path("lab-out"), metavar="DIR", help="for all files"
    )
    run.set_defaults(run=_run_lab)
    report = actions.add_parser("report", help="make one page of all figures in a folder")
    report.add_argument(
        "--out", type=Path, default=Path("lab-out"), metavar="DIR", help="the folder"
    )
    report.set_defaults(run=_run_lab_report)


def _run_lab_list(arguments: argparse.Namespace) -> int:
    from semistream.cli.lab import list_figures

    return list_figures()


def _run_lab(arguments: argparse.Namespace) -> int:
    from semistream.cli.lab import run_figures

    return run_figures(
        arguments.figures,
        arguments.scale,
        arguments.device,
        arguments.seed,
        arguments.out,
        1 if arguments.device == "real" else arguments.jobs,
    )


def _run_lab_report(arguments: argparse.Namespace) -> int:
    from semistream.cli.lab import make_report

    return make_report(arguments.out)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else text.split(",")


if __name__ == "__main__":
    sys.exit(main())
