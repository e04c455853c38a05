"""``semistream generate``: writes a workload to files or to Kafka, at once or as rows arrive."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

from semistream.cli.progress import Progress
from semistream.errors import OptionError, did_you_mean
from semistream.workload.arrivals import Arrivals, Bursty, Intermittent, Steady
from semistream.workload.base import CHUNK_ROWS, Workload
from semistream.workload.files import EventFolder, write_relation
from semistream.workload.kafka import is_kafka, parse_topic, write_kafka
from semistream.workload.pacing import even_cuts, paced_cuts
from semistream.workload.registry import make_workload

_DEFAULT_ROWS = 1_000_000
_DEFAULT_FILES = 10
_ARRIVALS = ("steady", "bursty", "intermittent")


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """The workload, its target and its options; None where an option was not given."""

    workload: str
    out: str | None = None
    relation_out: Path | None = None
    rows: int | None = None
    first: int = 0
    relation_rows: int | None = None
    exponent: float | None = None
    seed: int | None = None
    settings: Sequence[str] = field(default_factory=list)
    files: int | None = None
    format: str = "parquet"
    rate: float | None = None
    arrivals: str = "steady"
    every: float = 1.0
    on: float = 10.0
    off: float = 10.0


def run_generate(options: GenerateOptions) -> int:
    """Write the relation, the stream or both, and print a summary."""
    _check(options)
    workload = _workload(options)
    with _Stop() as stop:
        if options.relation_out is not None:
            with _Bar("relation") as bar:
                said = _write_relation(workload, options.relation_out, bar)
            print(said)
        if options.out is not None:
            with _Bar("stream") as bar:
                said = _write_stream(workload, options, stop, bar)
            print(said)
    return 0


def _check(options: GenerateOptions) -> None:
    if options.out is None and options.relation_out is None:
        raise OptionError("nothing to write: give --out for the stream or --relation-out for R")
    if options.rate is not None and options.files is not None:
        raise OptionError(
            "--files cuts a stream that is written at once; with --rate there is a file for every "
            "--every seconds"
        )
    if options.arrivals not in _ARRIVALS:
        raise OptionError(
            f"--arrivals must be one of {', '.join(_ARRIVALS)}; got {options.arrivals!r}."
            f"{did_you_mean(options.arrivals, _ARRIVALS)}"
        )
    if options.arrivals != "steady" and options.rate is None:
        raise OptionError(f"--arrivals {options.arrivals} needs --rate, in rows per second")
    _check_idle(options)
    if options.first < 0 or (options.rows is not None and options.rows < 0):
        raise OptionError(
            f"--first and --rows must be at least 0; got {options.first} and {options.rows}"
        )


def _check_idle(options: GenerateOptions) -> None:
    """Refuse options that would have no effect."""
    usual = GenerateOptions(options.workload)
    if options.rate is None and options.every != usual.every:
        raise OptionError("--every needs --rate: without --rate the stream is written at once")
    if options.arrivals != "intermittent" and (options.on, options.off) != (usual.on, usual.off):
        raise OptionError("--on and --off are for --arrivals intermittent")
    to_kafka = options.out is not None and is_kafka(options.out)
    if to_kafka and (options.files is not None or options.format != usual.format):
        raise OptionError("--files and --format are for a folder; a topic gets one message per row")


def _workload(options: GenerateOptions) -> Workload:
    named = {
        name: value
        for name in ("relation_rows", "exponent", "seed")
        if (value := getattr(options, name)) is not None
    }
    for setting in options.settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise OptionError(f"--set takes NAME=VALUE, such as every_rows=50000; got {setting!r}")
        named[name.replace("-", "_")] = value
    return make_workload(options.workload, **named)


def _write_relation(workload: Workload, path: Path, bar: "_Bar") -> str:
    bar.expect(workload.relation_rows)
    batches = bar.watch(workload.relation_batches())
    rows = write_relation(path, workload.relation_schema, batches)
    return f"relation: {rows:,} rows in {path}, key {workload.key}"


def _write_stream(workload: Workload, options: GenerateOptions, stop: "_Stop", bar: "_Bar") -> str:
    target = str(options.out)
    rows = _rows(workload, options)
    bar.expect(rows)
    pieces = _pieces(workload, options, rows, stop)
    if is_kafka(target):
        topic = parse_topic(target)
        count = write_kafka(bar.watch(b for _, b in pieces), target, workload.stream_key)
        where = f"acknowledged by topic {topic.topic} at {topic.servers}"
    else:
        folder = EventFolder(Path(target), options.format)
        folder.check_room_from(options.first)
        count, files = 0, 0
        for first, batch in pieces:
            folder.write(first, batch)
            count, files = count + batch.num_rows, files + 1
            bar.add(batch.num_rows)
        where = f"in {files:,} {'file' if files == 1 else 'files'} in {target}"
    behind = f"the next is row {options.first + count}"
    return f"stream: {count:,} rows {where}, key {workload.stream_key}; {behind}"


def _rows(workload: Workload, options: GenerateOptions) -> int | None:
    """Return how many rows to write: --rows, or all of a stream that ends, or a default."""
    length = getattr(workload, "stream_length", None)
    left = None if length is None else max(int(length) - options.first, 0)
    if options.rows is not None:
        return options.rows if left is None else min(options.rows, left)
    return left if left is not None or options.rate is not None else _DEFAULT_ROWS


def _pieces(
    workload: Workload, options: GenerateOptions, rows: int | None, stop: "_Stop"
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield each piece of the stream with its first row, until Ctrl-C."""
    for first, count in _cuts(options, rows, stop.wait):
        if stop.requested:
            return
        yield options.first + first, workload.stream_rows(options.first + first, count)


def _cuts(
    options: GenerateOptions, rows: int | None, sleep: Callable[[float], None]
) -> Iterator[tuple[int, int]]:
    if options.rate is not None:
        return paced_cuts(_arrivals(options, options.rate), rows, options.every, sleep=sleep)
    assert rows is not None
    if is_kafka(str(options.out)):
        return even_cuts(rows, -(-rows // CHUNK_ROWS) or 1)
    return even_cuts(rows, options.files or max(_DEFAULT_FILES, -(-rows // _DEFAULT_ROWS)))


def _arrivals(options: GenerateOptions, rate: float) -> Arrivals:
    if options.arrivals == "bursty":
        return Bursty(rate) if options.seed is None else Bursty(rate, seed=options.seed)
    if options.arrivals == "intermittent":
        return Intermittent(rate, on_s=options.on, off_s=options.off)
    return Steady(rate)


class _Bar:
    """One line of progress, in rows."""

    def __init__(self, name: str) -> None:
        self._progress = Progress(name, lambda rows: f"{rows:,.0f}", "rows")
        self._rows = 0  # so far
        self._total: int | None = None  # None if it is unknown

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *error: Any) -> None:
        self._progress.__exit__(*error)

    def expect(self, rows: int | None) -> None:
        """Set the number of rows; None if it is unknown."""
        self._total = rows

    def add(self, rows: int) -> None:
        """Count rows that are done."""
        self._rows += rows
        self._progress.update(self._rows, self._total)

    def watch(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches and count their rows."""
        for batch in batches:
            yield batch
            self.add(batch.num_rows)


class _Stop:
    """Ctrl-C requests a stop after the current piece; a second one stops at once."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def requested(self) -> bool:
        """Whether a stop was requested."""
        return self._event.is_set()

    def wait(self, seconds: float) -> None:
        """Sleep until a stop is requested, at most this long."""
        self._event.wait(seconds)

    def __enter__(self) -> "_Stop":
        self._before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._request)
        return self

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._before)

    def _request(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        signal.signal(signal.SIGINT, self._before)
        self._event.set()
