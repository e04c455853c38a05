"""The metrics of queries for Prometheus: a listener, and an endpoint on this host.

::

    query ── progress of a micro-batch ──► listener ──► totals and latest values ──► GET /metrics
                                              └──────► a line of JSON (`semistream.logs`)

`semistream.spark.metrics` says what a join observes. Here counters are added up over micro-batches
and get the names and units that are usual with Prometheus; ``docs/guides/running.md`` has a table.
"""

import json
import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from semistream.joins.telemetry import Telemetry
from semistream.spark.metrics import fields_of

DEFAULT_PORT = 9464
_LOG = logging.getLogger("semistream.query")
_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_SECONDS = {"join_us": "join_seconds", "predicted_us": "predicted_seconds"}
_BESIDE = ("late_rows", "expired_rows", "newly_held_rows", "dead_letters", "shed_rows")
# Observed counters, and what each is called: sums over all micro-batches.
COUNTERS = {
    name: f"semistream_{_SECONDS.get(name, name)}"
    for name in (*Telemetry.names(), *_BESIDE)
    if not name.endswith("_peak") and name != "algorithms"
}
# Observed values of which the last one counts.
GAUGES = {
    "relation_age_s": "semistream_relation_age_seconds",
    "held_rows": "semistream_held_rows",
    "window_rows_peak": "semistream_window_rows",
}
_MEMORY = "semistream_memory_bytes"
_PARTS = {
    name: name.removesuffix("_bytes_peak")
    for name in Telemetry.names()
    if name.endswith("_bytes_peak")
}
_Labels = tuple[str, ...]


@dataclass
class _Numbers:
    """All that is exported, by name and labels."""

    counters: dict[tuple[str, _Labels], float] = field(default_factory=dict)
    gauges: dict[tuple[str, _Labels], float] = field(default_factory=dict)
    batches: dict[_Labels, list[float]] = field(default_factory=dict)  # seconds of each bucket

    def add(self, name: str, labels: _Labels, value: float) -> None:
        key = (name, labels)
        self.counters[key] = self.counters.get(key, 0.0) + value

    def put(self, name: str, labels: _Labels, value: float) -> None:
        self.gauges[(name, labels)] = value

    def time(self, query: _Labels, seconds: float) -> None:
        counts = self.batches.setdefault(query, [0.0] * (len(_BUCKETS_S) + 2))
        for i, bound in enumerate(_BUCKETS_S):
            counts[i] += seconds <= bound
        counts[-2] += 1
        counts[-1] += seconds  # the sum


def backlog_rows(progress: Mapping[str, Any]) -> int | None:
    """Return the rows that have arrived and were not read yet; None if no source says so.

    Sources whose offsets are numbers say it: those of workloads, and Kafka's by partition.
    """
    behind = [
        _difference(_parsed(source["latestOffset"]), _parsed(source["endOffset"]))
        for source in progress["sources"]
    ]
    known = [each for each in behind if each is not None]
    return sum(known) if known else None


def _parsed(offset: Any) -> Any:
    try:
        return json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return None


def _difference(latest: Any, end: Any) -> int | None:
    if isinstance(latest, Mapping) and isinstance(end, Mapping):
        parts = [_difference(value, end.get(name, 0)) for name, value in latest.items()]
        known = [each for each in parts if each is not None]
        return sum(known) if known else None
    if isinstance(latest, int) and isinstance(end, int):
        return max(0, latest - end)
    return None


class QueryMetrics(StreamingQueryListener):
    """Listens to all queries of a session, and collects for Prometheus."""

    def __init__(self) -> None:
        """Begin without any query."""
        self._numbers = _Numbers()
        self._names: dict[str, str] = {}  # of queries, by the id of the run
        self._lock = threading.Lock()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Note that a query is up."""
        name = event.name or str(event.id)
        with self._lock:
            self._names[str(event.runId)] = name
            self._numbers.put("semistream_query_up", (name,), 1)
        _LOG.info("query %s has started", name, extra={"query": name, "event": "started"})

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Add a micro-batch."""
        self.add(event.progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Note that a query is down, and why."""
        with self._lock:
            name = self._names.pop(str(event.runId), str(event.id))
            self._numbers.put("semistream_query_up", (name,), 0)
            self._numbers.add("semistream_query_failures", (name,), float(bool(event.exception)))
        about = {"query": name, "event": "ended", "error": event.exception}
        level = logging.ERROR if event.exception else logging.INFO
        _LOG.log(level, "query %s has ended", name, extra=about)

    def add(self, progress: Any) -> None:
        """Add the progress of a micro-batch."""
        name = progress.name or str(progress.id)
        seconds = progress.durationMs.get("triggerExecution", 0) / 1e3
        backlog = backlog_rows(json.loads(progress.json))
        joins = {n: fields_of(row) for n, row in progress.observedMetrics.items()}
        with self._lock:
            self._add_query((name,), progress, seconds, backlog)
            for join, metrics in joins.items():
                self._add_join((name, join), metrics)
        about = {
            "query": name,
            "event": "progress",
            "batch": progress.batchId,
            "rows": progress.numInputRows,
            "seconds": seconds,
            "backlog_rows": backlog,
            "joins": {n: {k: v for k, v in m.items() if v is not None} for n, m in joins.items()},
        }
        rows = progress.numInputRows
        _LOG.info(
            "micro-batch %d of %s: %s rows in %.1f s",
            *(progress.batchId, name, f"{rows:,}", seconds),
            extra=about,
        )

    def _add_query(
        self, query: _Labels, progress: Any, seconds: float, backlog: int | None
    ) -> None:
        numbers = self._numbers
        numbers.put("semistream_query_up", query, 1)
        numbers.add("semistream_input_rows", query, progress.numInputRows)
        numbers.put("semistream_arrival_rate", query, progress.inputRowsPerSecond or 0.0)
        numbers.put("semistream_service_rate", query, progress.processedRowsPerSecond or 0.0)
        numbers.put("semistream_last_batch", query, progress.batchId)
        numbers.time(query, seconds)
        if backlog is not None:
            numbers.put("semistream_backlog_rows", query, backlog)
        for state in progress.stateOperators:
            numbers.put("semistream_state_bytes", query, state.memoryUsedBytes)

    def _add_join(self, join: _Labels, metrics: Mapping[str, Any]) -> None:
        """Add what was observed of one join, or of other rows; sums of no rows are null."""
        for name, value in metrics.items():
            if value is None:
                continue
            if name in COUNTERS:
                scale = 1e-6 if name in _SECONDS else 1.0
                self._numbers.add(COUNTERS[name], join, value * scale)
            elif name in GAUGES:
                self._numbers.put(GAUGES[name], join, value)
            elif name in _PARTS:
                self._numbers.put(_MEMORY, (*join, _PARTS[name]), value)
        if metrics.get("stream_rows") and metrics.get("front_hits") is not None:
            ratio = metrics["front_hits"] / metrics["stream_rows"]
            self._numbers.put("semistream_hit_ratio", join, ratio)

    def collect(self) -> Iterator[Metric]:
        """Yield everything, for Prometheus."""
        with self._lock:
            counters, gauges = dict(self._numbers.counters), dict(self._numbers.gauges)
            batches = {query: list(counts) for query, counts in self._numbers.batches.items()}
        yield from _families(CounterMetricFamily, counters)
        yield from _families(GaugeMetricFamily, gauges)
        family = HistogramMetricFamily(
            "semistream_batch_seconds", "the time of a micro-batch", labels=["query"]
        )
        for query, counts in batches.items():
            bounds = [*map(str, _BUCKETS_S), "+Inf"]
            buckets = list(zip(bounds, counts[:-1], strict=True))
            family.add_metric(query, buckets, counts[-1])
        yield family


def _families(kind: type[Metric], values: Mapping[tuple[str, _Labels], float]) -> Iterator[Metric]:
    found: dict[str, Any] = {}
    for (name, labels), value in values.items():
        if name not in found:
            names = ["query", "join", "part"][: len(labels)]
            found[name] = kind(name, name.replace("_", " "), labels=names)  # type: ignore[call-arg]
        found[name].add_metric(labels, value)
    yield from found.values()


class MetricsServer:
    """An endpoint that is being served; close it, or use it in a ``with`` block."""

    def __init__(self, session: SparkSession, port: int, host: str) -> None:
        """Listen to the session's queries, and to the port."""
        self.metrics = QueryMetrics()
        registry = CollectorRegistry()
        registry.register(self.metrics)
        self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        self._session = session
        session.streams.addListener(self.metrics)
        self.port = int(self._server.server_port)
        self.url = f"http://{host}:{self.port}/metrics"

    def close(self) -> None:
        """Stop listening and serving."""
        self._session.streams.removeListener(self.metrics)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> "MetricsServer":
        """Return the server."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the server."""
        self.close()


def serve_metrics(
    session: SparkSession, port: int = DEFAULT_PORT, host: str = "127.0.0.1"
) -> MetricsServer:
    """Serve the metrics of all streaming queries of a session to Prometheus, on this host only.

    Call it before the queries start. With port 0 any free port is taken; the result has the `url`.
    Another `host` than loopback lets others read the metrics: there is no password.

    ::

        server = ss.serve_metrics(spark)
        print(server.url)  # http://127.0.0.1:9464/metrics
    """
    return MetricsServer(session, port, host)
