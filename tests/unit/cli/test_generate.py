import base64
import csv
import json
import signal
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from semistream.cli.main import main
from semistream.errors import ColumnError, OptionError
from semistream.workload import kafka, pacing
from semistream.workload.arrivals import Intermittent, Steady
from semistream.workload.jsonlines import json_lines
from semistream.workload.kafka import DeliveryError, parse_topic, write_kafka
from semistream.workload.pacing import even_cuts, paced_cuts
from semistream.workload.registry import WORKLOADS, make_workload
from semistream.workload.synthetic import Synthetic


def _read(folder: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(p) for p in sorted(folder.glob("rows-*"))])


def test_stream_and_relation_as_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, relation = tmp_path / "events", tmp_path / "made" / "r.parquet"
    arguments = ["generate", "zipf", "--relation-rows", "500", "--seed", "3", "--exponent", "0.5"]
    arguments += ["--set", "by-frequency=true", "--files", "4", "--rows", "1001"]
    assert main([*arguments, "--out", str(out), "--relation-out", str(relation)]) == 0
    workload = Synthetic(relation_rows=500, exponent=0.5, by_frequency=True, seed=3)
    assert _read(out).equals(pa.Table.from_batches([workload.stream_rows(0, 1001)]))
    assert len(list(out.iterdir())) == 4
    assert pq.read_table(relation).equals(pa.Table.from_batches(workload.relation_batches()))
    said = capsys.readouterr().out
    assert "1,001 rows in 4 files" in said
    assert "500 rows" in said
    assert main([*arguments, "--out", str(out), "--first", "1001", "--rows", "9"]) == 0
    assert _read(out).equals(pa.Table.from_batches([workload.stream_rows(0, 1010)]))
    assert "the next is row 1010" in capsys.readouterr().out


def test_rows_are_not_written_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", "retail", "--relation-rows", "50", "--out", str(tmp_path), "--rows"]
    assert main([*arguments, "100"]) == 0
    assert main([*arguments, "100"]) == 2
    assert "--first" in capsys.readouterr().err


def test_a_stream_goes_on_behind_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["generate", "zipf", "--relation-rows", "10", "--rows", "100", "--files", "1"]
    arguments += ["--out", str(tmp_path), "--first"]
    assert main([*arguments, "0"]) == 0
    assert "the next is row 100" in capsys.readouterr().out
    assert main([*arguments, "99"]) == 2
    assert "--first 100" in capsys.readouterr().err
    assert main([*arguments, "100"]) == 0


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["zpf", "--out", "x"], "Did you mean 'zipf'"),
        (["zipf"], "--relation-out"),
        (["zipf", "--out", "x", "--rate", "5", "--files", "3"], "--every"),
        (["zipf", "--out", "x", "--arrivals", "bursty"], "--rate"),
        (["zipf", "--out", "x", "--rate", "5", "--arrivals", "burst"], "Did you mean 'bursty'"),
        (["zipf", "--out", "x", "--set", "seed"], "NAME=VALUE"),
        (["zipf", "--out", "x", "--set", "sed=1"], "Did you mean 'seed'"),
        (["zipf", "--out", "x", "--format", "ndjso"], "Did you mean 'ndjson'"),
        (["zipf", "--out", "x", "--rows", "-1"], "--rows"),
        (["zipf", "--out", "x", "--files", "-1"], "files"),
        (["zipf", "--out", "x", "--rate", "-1"], "rate"),
        (["zipf", "--out", "x", "--rate", "1", "--every", "0"], "seconds"),
        (["zipf", "--out", "kafka://host"], "kafka://host:port/topic"),
        (["zipf", "--out", "kafka://h:1/t", "--files", "2"], "one message per row"),
        (["zipf", "--out", "x", "--every", "2"], "--every needs --rate"),
        (["zipf", "--out", "x", "--on", "2"], "--arrivals intermittent"),
        (["zipf", "--relation-out", "x.json"], ".parquet or .csv"),
        (["zipf", "--out", "/dev/null/x"], "cannot write"),
    ],
)
def test_generate_says_what_is_wrong(
    arguments: list[str],
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["generate", *arguments, "--relation-rows", "10"]) == 2
    assert hint in capsys.readouterr().err


def test_help_names_every_workload(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["generate", "--help"])
    out = capsys.readouterr().out
    assert all(name in out for name in WORKLOADS)


@pytest.mark.parametrize("name", ["zipf", "retail", "clouds"])
@pytest.mark.parametrize("file_format", ["ndjson", "csv"])
def test_text_files_hold_the_same_rows(tmp_path: Path, name: str, file_format: str) -> None:
    arguments = ["generate", name, "--relation-rows", "50", "--rows", "200", "--files", "2"]
    arguments += ["--set", "row_bytes=41"] if name == "clouds" else []
    assert main([*arguments, "--out", str(tmp_path), "--format", file_format]) == 0
    files = sorted(tmp_path.glob("*"))
    options = {"row_bytes": 41} if name == "clouds" else {}
    stream = make_workload(name, relation_rows=50, **options).stream_rows(0, 200)
    if file_format == "csv":
        texts = [f.read_text().splitlines() for f in files]
        rows: list[dict[str, Any]] = [r for text in texts for r in csv.DictReader(text)]
    else:
        rows = [json.loads(line) for f in files for line in f.read_text().splitlines()]
    assert len(rows) == 200
    for column, values in stream.to_pydict().items():
        first = values[0]
        if isinstance(first, int | float):
            assert [float(r[column]) for r in rows] == [float(v) for v in values]
        elif isinstance(first, datetime):
            assert [datetime.fromisoformat(r[column]) for r in rows] == values
        else:
            assert [base64.b64decode(r[column]) for r in rows] == values


def test_a_relation_as_csv(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    assert main(["generate", "zipf", "--relation-rows", "70000", "--relation-out", str(path)]) == 0
    with path.open() as file:
        assert [int(r["k"]) for r in csv.DictReader(file)] == list(range(70_000))


def test_json_of_every_type() -> None:
    columns = {
        "i": pa.array([1, None], pa.int8()),
        "f": pa.array([float("nan"), 1.5e300]),
        "b": pa.array([True, None]),
        "d": pa.array([Decimal("1.20"), Decimal("-3.00")], pa.decimal128(15, 2)),
        "day": pa.array([date(2026, 1, 2), None]),
        "at": pa.array([datetime(2026, 1, 2, 3, 4, 5, 6, UTC), None], pa.timestamp("us", "UTC")),
        "naive": pa.array([datetime(2026, 1, 2, 3, 4, 5), None], pa.timestamp("s")),
        "bytes": pa.array([b"\x00\xff", None]),
        'te"xt\n': pa.array(['quote " back \\ tab \t line \n bell \x07 é 東', None]),
    }
    first, second = (json.loads(line) for line in json_lines(pa.record_batch(columns)).to_pylist())
    assert first == {
        "i": 1,
        "f": None,
        "b": True,
        "d": 1.2,
        "day": "2026-01-02",
        "at": "2026-01-02T03:04:05.000006Z",
        "naive": "2026-01-02T03:04:05",
        "bytes": "AP8=",
        'te"xt\n': 'quote " back \\ tab \t line \n bell \x07 é 東',
    }
    assert second == dict.fromkeys(columns, None) | {"f": 1.5e300, "d": -3.0}
    with pytest.raises(ColumnError, match="'x'"):
        json_lines(pa.record_batch({"x": [[1]]}))


class _Clock:
    """Time that passes only in sleep."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_pieces_follow_the_arrivals() -> None:
    clock = _Clock()
    cuts = paced_cuts(Intermittent(100, on_s=2, off_s=3), 500, 0.5, clock, clock.sleep)
    assert list(cuts) == [(i * 50, 50) for i in range(10)]
    assert clock.now == pytest.approx(100 + 11)


def test_who_is_late_gets_all_that_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "MOST_ROWS", 1_000)
    clock, seen = _Clock(), []
    for cut in paced_cuts(Steady(1_000), 6_000, 1.0, clock, clock.sleep):
        seen.append(cut)
        if len(seen) == 1:
            clock.now += 3.5
    late = [(1_000, 1_000), (2_000, 1_000), (3_000, 1_000), (4_000, 500)]
    assert seen == [(0, 1_000), *late, (4_500, 500), (5_000, 1_000)]


def test_even_cuts_leave_no_empty_piece() -> None:
    assert list(even_cuts(2, 5)) == [(0, 1), (1, 1)]
    assert list(even_cuts(0, 5)) == []


def test_ctrl_c_stops_after_the_file_at_hand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from semistream.cli import generate

    wait, waits = generate._Stop.wait, []

    def interrupted(self: Any, seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 4:
            signal.raise_signal(signal.SIGINT)
        wait(self, seconds)

    monkeypatch.setattr(generate._Stop, "wait", interrupted)
    before = signal.getsignal(signal.SIGINT)
    arguments = ["generate", "zipf", "--relation-rows", "50", "--rate", "20000", "--every", "0.02"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    assert signal.getsignal(signal.SIGINT) is before
    files = list(tmp_path.iterdir())
    assert len(files) == 3
    rows = _read(tmp_path).num_rows
    assert f"the next is row {rows}" in capsys.readouterr().out


@pytest.fixture
def broker() -> Any:
    """The client library's own mock cluster, which speaks the protocol."""
    producer = confluent_kafka.Producer({"test.mock.num.brokers": 1})
    metadata = producer.list_topics(timeout=10)
    yield next(f"{b.host}:{b.port}" for b in metadata.brokers.values())
    producer.flush(1)


def _consume(broker: str, topic: str, count: int) -> list[Any]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker, "group.id": "test", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    messages: list[Any] = []
    try:
        while len(messages) < count:
            found = consumer.consume(count - len(messages), timeout=15)
            assert found, f"only {len(messages)} of {count} messages came"
            messages += [m for m in found if m.error() is None]
    finally:
        consumer.close()
    return messages


def test_rows_go_to_kafka(broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", "zipf", "--relation-rows", "50", "--rows", "500"]
    assert main([*arguments, "--out", f"kafka://{broker}/sales"]) == 0
    assert "500 rows acknowledged by topic sales" in capsys.readouterr().out
    messages = _consume(broker, "sales", 500)
    rows = sorted((json.loads(m.value()) for m in messages), key=lambda r: r["price"])
    expected = Synthetic(relation_rows=50).stream_rows(0, 500).to_pylist()
    assert rows == sorted(expected, key=lambda r: r["price"])
    assert all(int(m.key()) == json.loads(m.value())["k"] for m in messages)


class _Producer:
    """Fails as it is told to."""

    def __init__(self, error: str | None, queue: int = 10**9, left: int = 0) -> None:
        self.error, self.queue, self.left = error, queue, left
        self.waiting: list[Any] = []

    def produce(self, topic: str, value: str, key: str, on_delivery: Any) -> None:
        if len(self.waiting) >= self.queue:
            raise BufferError
        self.waiting.append(on_delivery)

    def poll(self, timeout: float) -> None:
        for on_delivery in self.waiting:
            on_delivery(self.error, None)
        self.waiting.clear()

    def flush(self, timeout: float) -> int:
        if not self.left:
            self.poll(0)
        return self.left


@pytest.mark.parametrize(
    ("producer", "hint"),
    [
        (_Producer("topic is gone"), "10 of 10 rows were not delivered.*topic is gone"),
        (_Producer("topic is gone", queue=4), "4 of 4 rows.*topic is gone"),
        (_Producer(None, left=3), "no answer for 3 rows"),
    ],
)
def test_a_failed_delivery_is_an_error(
    producer: _Producer, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "_connect", lambda topic: producer)
    with pytest.raises(DeliveryError, match=hint):
        write_kafka([Synthetic(relation_rows=5).stream_rows(0, 10)], "kafka://h:1/t", "k")


def test_a_full_queue_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "_connect", lambda topic: _Producer(None, queue=4))
    seen: list[int] = []
    batches = [Synthetic(relation_rows=5).stream_rows(0, 10)]
    assert write_kafka(batches, "kafka://h:1/t", "k", seen.append) == 10
    assert seen == [10]


def test_a_broker_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "_ANSWER_S", 0.2)
    with pytest.raises(OptionError, match="no Kafka broker answers at localhost:1"):
        write_kafka([], "kafka://localhost:1/t", "k")


@pytest.mark.parametrize("target", ["kafka://h:1", "kafka:///t", "kafka://h:1/a/b", "kafka:t"])
def test_targets_that_are_no_topics(target: str) -> None:
    with pytest.raises(OptionError, match="kafka://host:port/topic"):
        parse_topic(target)
