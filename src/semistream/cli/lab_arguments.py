"""The arguments of ``semistream lab``; what they do is in `cli.lab`, which is slow to import."""

import argparse
from pathlib import Path

from semistream.cli.arguments import Commands, WithDefaults
from semistream.relation.device import DEVICES


def add_lab(commands: Commands) -> None:
    """Add the command and its actions."""
    lab = commands.add_parser(
        "lab",
        help="reproduce the papers' figures and judge their claims",
        description="Reproduces the papers' figures, in miniature by default, and says of each "
        "claim of a paper whether it holds here.",
    )
    actions = lab.add_subparsers(title="actions", metavar="action", required=True)
    listed = actions.add_parser("list", help="name all figures")
    listed.set_defaults(run=_list)
    _add_run(actions)
    report = actions.add_parser("report", help="write one page with all figures in a folder")
    _add_out(report)
    report.set_defaults(run=_report)
    compare = actions.add_parser(
        "compare",
        help="compare figures that two folders have: rates and verdicts",
        description="Compares figures that two folders have, such as one in miniature and one at "
        "the papers' size: the numbers of one over those of the other, and the verdicts.",
    )
    compare.add_argument("first", type=Path, metavar="DIR", help="a folder of `semistream lab run`")
    compare.add_argument("second", type=Path, metavar="OTHER", help="another one")
    compare.set_defaults(run=_compare)
    _add_map(actions)
    computing = actions.add_parser(
        "computing", help="measure on this machine how much skew slows MESHJOIN's computing"
    )
    computing.set_defaults(run=_computing)


def _add_run(actions: Commands) -> None:
    run = actions.add_parser(
        "run",
        help="reproduce figures",
        formatter_class=WithDefaults,
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
        help="quick: small data, minutes in total; paper: the papers' size, hours, gigabytes",
    )
    run.add_argument(
        "--device",
        choices=["real", *DEVICES],
        default="hdd-papers",
        help="an emulated device with its own clock, or this machine's (real)",
    )
    run.add_argument("--seed", type=int, default=7, help="the first seed of the generated data")
    run.add_argument(
        "--seeds", type=int, default=3, help="how many seeds; the worst verdict of any counts"
    )
    run.add_argument(
        "--clouds",
        type=Path,
        metavar="FOLDER",
        help="real cloud reports of the archive, two files or more; without it, generated ones",
    )
    run.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="papers to run in parallel; only if the device is emulated",
    )
    _add_out(run)
    run.set_defaults(run=_run)


def _add_map(actions: Commands) -> None:
    chart = actions.add_parser(
        "map",
        help="measure all algorithms and draw on one page which wins where",
        formatter_class=WithDefaults,
        description="Measures all algorithms over skew, memory, size of the micro-batch and "
        "device, and draws on one page which one wins, what the cost model chooses, and how much "
        "slower the choice is.",
    )
    chart.add_argument(
        "--rows", type=int, default=100_000, help="rows of R; a large one takes longer"
    )
    chart.add_argument(
        "--devices",
        nargs="+",
        choices=["real", *DEVICES],
        default=["real", "hdd-2007", "ssd", "object-store"],
        metavar="DEVICE",
        help="real is this machine's own, with the kernel's page cache",
    )
    chart.add_argument("--seed", type=int, default=7, help="seed of the generated data")
    _add_out(chart)
    chart.set_defaults(run=_map)


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, default=Path("lab-out"), metavar="DIR", help="folder for all files"
    )


def _list(arguments: argparse.Namespace) -> int:
    from semistream.cli.lab import list_figures

    return list_figures()


def _run(arguments: argparse.Namespace) -> int:
    from semistream.cli.lab import Setup, run_figures

    setup = Setup(
        arguments.scale, arguments.device, arguments.seed, arguments.seeds, arguments.clouds
    )
    jobs = 1 if arguments.device == "real" else arguments.jobs
    return run_figures(arguments.figures, setup, arguments.out, jobs)


def _report(arguments: argparse.Namespace) -> int:
    from semistream.cli.lab import make_report

    return make_report(arguments.out)


def _compare(arguments: argparse.Namespace) -> int:
    from semistream.cli.lab import compare_folders

    return compare_folders(arguments.first, arguments.second)


def _map(arguments: argparse.Namespace) -> int:
    from semistream.cli.lab import make_map

    return make_map(arguments.rows, arguments.devices, arguments.seed, arguments.out)


def _computing(arguments: argparse.Namespace) -> int:
    from semistream.cli.lab import show_computing

    return show_computing()
