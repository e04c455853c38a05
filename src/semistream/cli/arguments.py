"""The arguments of the commands that build a relation, look after it, and check a machine."""

import argparse
from collections.abc import Callable
from typing import TypeAlias

from semistream.relation.build import DEFAULT_PAGE_BYTES, DEFAULT_PARTITIONS, BuildOptions
from semistream.relation.prune import GRACE_S

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
RELATION = "the relation: a path, or a URI such as s3://bucket/products.rel"
_SNAPSHOT = "id of a snapshot, instead of the current one"
SHELLS = ("bash", "zsh", "fish")


class WithDefaults(argparse.HelpFormatter):
    """Help that names the default of each option that has one, unless its text does already."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        has_one = action.default not in (None, False, argparse.SUPPRESS)
        return f"{text} (default: %(default)s)" if has_one and "default" not in text else text


def add_build(commands: Commands) -> None:
    """Add ``semistream build``."""
    build = commands.add_parser(
        "build",
        help="build a relation from Parquet or CSV, without Spark",
        description="Builds a relation. Where there is one already, it is refreshed: a new "
        "snapshot replaces the old one, and queries that run read it from their next micro-batch "
        "on. What a killed build has left there is removed.",
        formatter_class=WithDefaults,
    )
    build.add_argument("source", help="a Parquet or CSV file or folder")
    build.add_argument("relation", help=RELATION)
    build.add_argument("--key", required=True, help="key columns, separated by commas")
    build.add_argument(
        "--partitions",
        type=int,
        help="number of Spark tasks that share the join (default: as many as the relation has; "
        f"{DEFAULT_PARTITIONS} for a new one)",
    )
    build.add_argument(
        "--page-size", default=f"{DEFAULT_PAGE_BYTES >> 10}KiB", help="most bytes of a page"
    )
    build.add_argument(
        "--order",
        default="key",
        metavar="{key,frequency}",
        help="order of the rows: by key, or with the rows that the stream requests most in front, "
        "on pages that a join can keep in memory; frequency needs --sample",
    )
    build.add_argument(
        "--sample",
        metavar="PATH",
        help="a Parquet or CSV file or folder with some rows of the stream, to count how often "
        "each key is requested; it needs the key columns, named as in --key",
    )
    _add_json(build, "what was built and what it replaces")
    build.set_defaults(run=_run_build)


def _add_json(command: argparse.ArgumentParser, what: str) -> None:
    command.add_argument("--json", action="store_true", help=f"print {what} as JSON")


def _run_build(arguments: argparse.Namespace) -> int:
    from semistream.cli.build import run_build

    options = BuildOptions.for_place(
        arguments.relation,
        arguments.key.split(","),
        arguments.partitions,
        page_size=arguments.page_size,
        order=arguments.order,
        sample=arguments.sample,
    )
    return run_build(arguments.source, arguments.relation, options, arguments.json)


def add_info(commands: Commands) -> None:
    """Add ``semistream info``."""
    info = commands.add_parser(
        "info",
        help="show a relation: schema, key, rows, bytes, partitions, page skew, snapshots",
        description="Shows schema, key, rows, bytes, partitions, how evenly pages are filled, the "
        "snapshots with age and size, and the format.",
    )
    info.add_argument("relation", help=RELATION)
    info.add_argument("--snapshot", metavar="ID", help=_SNAPSHOT)
    _add_json(info, "everything")
    info.set_defaults(run=_run_info)


def _run_info(arguments: argparse.Namespace) -> int:
    from semistream.cli.upkeep import run_info

    return run_info(arguments.relation, arguments.snapshot, arguments.json)


def add_verify(commands: Commands) -> None:
    """Add ``semistream verify``."""
    verify = commands.add_parser(
        "verify",
        help="read all of a relation: every checksum, and the order of the key codes",
        description="Reads all of a snapshot and compares every byte with its checksum, and every "
        "key code with its place. All damage is listed, not only the first.",
        epilog="exit codes: 0 intact; 1 damaged; 2 the command could not run",
    )
    verify.add_argument("relation", help=RELATION)
    verify.add_argument("--snapshot", metavar="ID", help=_SNAPSHOT)
    _add_json(verify, "the result")
    verify.set_defaults(run=_run_verify)


def _run_verify(arguments: argparse.Namespace) -> int:
    from semistream.cli.upkeep import run_verify

    return run_verify(arguments.relation, arguments.snapshot, arguments.json)


def add_prune(commands: Commands) -> None:
    """Add ``semistream prune``."""
    prune = commands.add_parser(
        "prune",
        help="remove old snapshots that are not in use",
        description="Removes all but the newest snapshots. The current one stays, and one that a "
        "join reads, a build writes, or that was replaced within the grace period.",
        formatter_class=WithDefaults,
    )
    prune.add_argument("relation", help=RELATION)
    prune.add_argument(
        "--keep", type=int, default=1, help="snapshots to keep, the current one included"
    )
    prune.add_argument(
        "--grace",
        type=float,
        default=GRACE_S,
        metavar="SECONDS",
        help="keep what was current within this time",
    )
    _add_json(prune, "what was removed and kept")
    prune.set_defaults(run=_run_prune)


def _run_prune(arguments: argparse.Namespace) -> int:
    from semistream.cli.upkeep import run_prune

    return run_prune(arguments.relation, arguments.keep, arguments.grace, arguments.json)


def add_compact(commands: Commands) -> None:
    """Add ``semistream compact``."""
    compact = commands.add_parser(
        "compact",
        help="merge the changes of upserts into the other pages, also while queries run",
        description="Upserts store changed rows on pages of their own. This writes the partitions "
        "that have such pages again, as a new snapshot. Queries that run go on. If another writer "
        "is faster, nothing is changed; run it again.",
    )
    compact.add_argument("relation", help=RELATION)
    _add_json(compact, "the result")
    compact.set_defaults(run=_run_compact)


def _run_compact(arguments: argparse.Namespace) -> int:
    from semistream.cli.upkeep import run_compact

    return run_compact(arguments.relation, arguments.json)


def add_history(commands: Commands) -> None:
    """Add ``semistream history``."""
    history = commands.add_parser(
        "history",
        help="list the snapshots of a relation: when, from what, rows added, changed, deleted",
        description="Lists the snapshots that are kept, oldest first: when each was published, by "
        "which operation, from what, and how many rows were added, changed and deleted.",
    )
    history.add_argument("relation", help=RELATION)
    _add_json(history, "the snapshots")
    history.set_defaults(run=_run_history)


def _run_history(arguments: argparse.Namespace) -> int:
    from semistream.cli.upkeep import run_history

    return run_history(arguments.relation, arguments.json)


def add_doctor(commands: Commands) -> None:
    """Add ``semistream doctor``."""
    doctor = commands.add_parser(
        "doctor",
        help="check this machine: Java, Spark, Python of the workers, memory, disk, a place",
        description="Checks Python and packages, Java, Spark and the Python of its workers, "
        "memory, shared memory, the speed of the disk and, if a place is given, access to it. "
        "Says what is wrong and what to do.",
        epilog="exit codes: 0 nothing is wrong; 1 something is; 2 the command could not run",
        formatter_class=WithDefaults,
    )
    doctor.add_argument(
        "place",
        nargs="?",
        help="where a relation is or will be: a path, or a URI such as s3://bucket/folder",
    )
    doctor.add_argument(
        "--master", default="local[1]", help="Spark to check: also spark://host:7077, yarn, …"
    )
    doctor.add_argument(
        "--no-spark", action="store_true", help="do not start Spark, which takes some seconds"
    )
    _add_json(doctor, "the findings")
    doctor.set_defaults(run=_run_doctor)


def _run_doctor(arguments: argparse.Namespace) -> int:
    from semistream.cli.doctor import run_doctor

    master = None if arguments.no_spark else arguments.master
    return run_doctor(arguments.place, master, arguments.json)


def add_completion(commands: Commands, whole: Callable[[], argparse.ArgumentParser]) -> None:
    """Add ``semistream completion``; `whole` returns the parser of all commands."""
    completion = commands.add_parser(
        "completion",
        help="print a script that lets a shell complete commands and options",
        description="Prints a completion script. For all new shells, write it to a file:\n\n"
        "  bash   semistream completion bash > \\\n"
        "             ~/.local/share/bash-completion/completions/semistream\n"
        '  zsh    semistream completion zsh > "${fpath[1]}/_semistream"\n'
        "  fish   semistream completion fish > ~/.config/fish/completions/semistream.fish\n\n"
        'For this shell only: eval "$(semistream completion bash)"',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    completion.add_argument("shell", choices=SHELLS, help="the shell")

    def run(arguments: argparse.Namespace) -> int:
        from semistream.cli.completion import script

        print(script(arguments.shell, whole()), end="")
        return 0

    completion.set_defaults(run=run)
