"""``semistream build``: a relation from files, with a progress bar."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from semistream.relation.build import BuildOptions, build_snapshot
from semistream.units import format_bytes


def run_build(source: str, location: str, options: BuildOptions) -> int:
    """Build a relation and print its size."""
    console = Console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} rows read"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(f"building {location}", total=None)
        relation = build_snapshot(
            source, location, options, lambda rows: progress.update(task, completed=rows)
        )
        progress.update(task, total=max(1, relation.row_count))
    console.print(
        f"{relation.row_count:,} rows, {format_bytes(relation.size_bytes)} in "
        f"{relation.partition_count} partitions and {relation.page_count:,} pages"
        f"{f', {relation.hot_page_count:,} of them hot' if options.order == 'frequency' else ''}; "
        f"key {', '.join(relation.key)}"
        f"{'' if relation.has_unique_keys else ' (with duplicates)'}; "
        f"{relation.manifest.null_keys_dropped:,} rows without a key left out"
    )
    console.print(f"snapshot {relation.snapshot} is current")
    return 0
