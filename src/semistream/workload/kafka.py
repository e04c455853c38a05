"""Rows of a stream as messages of a Kafka topic.

A message is a row as JSON; its key is the row's join key as text, which keeps the rows of a key in
order. The producer waits for all in-sync replicas (acks=all) and is idempotent, so that a retry
does not write a message twice.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa

from semistream.errors import OptionError, SemistreamError
from semistream.extras import needs_extra
from semistream.workload.jsonlines import json_lines

_LOG = logging.getLogger(__name__)
_LOG.addHandler(logging.NullHandler())

_ANSWER_S = 10.0
_DELIVERY_S = 60.0
_SCHEME = "kafka"


class DeliveryError(SemistreamError):
    """Messages did not reach the topic. Remedy: repair the broker, and write to a new topic."""


class KafkaTopic(NamedTuple):
    """The brokers and the topic that messages are sent to."""

    servers: str
    topic: str


def is_kafka(target: str) -> bool:
    """Return whether a target names a Kafka topic."""
    return target.startswith(f"{_SCHEME}:")


def parse_topic(target: str) -> KafkaTopic:
    """Return brokers and topic of ``kafka://host:port/topic``; more brokers after commas.

    >>> parse_topic("kafka://localhost:9092/sales")
    KafkaTopic(servers='localhost:9092', topic='sales')
    """
    parts = urlsplit(target)
    topic = parts.path.strip("/")
    if parts.scheme != _SCHEME or not parts.netloc or not topic or "/" in topic:
        raise OptionError(f"a Kafka target is kafka://host:port/topic; got {target!r}")
    return KafkaTopic(parts.netloc, topic)


def write_kafka(
    batches: Iterable[pa.RecordBatch],
    target: str,
    key: str,
    progress: Callable[[int], None] = lambda rows: None,
) -> int:
    """Send batches to ``kafka://host:port/topic``, and return how many rows were acknowledged.

    `progress` gets the number of rows sent so far. When the batches are interrupted, rows already
    sent are still delivered.
    """
    topic = parse_topic(target)
    sender = _Sender(_connect(topic), topic)
    try:
        for batch in batches:
            sender.send(batch, key)
            progress(sender.sent)
    finally:
        sender.finish()
    return sender.acknowledged


class _Sender:
    """Hands rows to a producer and counts the acknowledgements."""

    def __init__(self, producer: Any, topic: KafkaTopic) -> None:
        self._producer = producer
        self._topic = topic
        self._problem: object = None
        self.sent = 0
        self.acknowledged = 0

    def send(self, batch: pa.RecordBatch, key: str) -> None:
        """Send a batch; wait while the producer's own queue is full."""
        keys = batch.column(key).cast(pa.string()).to_pylist()
        for text, value in zip(keys, json_lines(batch).to_pylist(), strict=True):
            while True:
                try:
                    self._producer.produce(
                        self._topic.topic, value=value, key=text, on_delivery=self._delivered
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
                    self._check()
            self.sent += 1
        self._producer.poll(0)
        self._check()

    def finish(self) -> None:
        """Wait until everything is delivered."""
        left = self._producer.flush(_DELIVERY_S + 1)
        self._check()
        if left:
            raise self._failure(f"no answer for {left:,} rows within {_DELIVERY_S:.0f} seconds")

    def _delivered(self, error: object, message: object) -> None:
        del message
        if error is None:
            self.acknowledged += 1
        else:
            self._problem = self._problem or error

    def _check(self) -> None:
        if self._problem is not None:
            raise self._failure(str(self._problem))

    def _failure(self, reason: str) -> DeliveryError:
        return DeliveryError(
            f"{self.sent - self.acknowledged:,} of {self.sent:,} rows were not delivered to topic "
            f"{self._topic.topic!r} at {self._topic.servers}: {reason}"
        )


def _connect(topic: KafkaTopic) -> Any:
    """Return a producer after a broker has answered."""
    with needs_extra("kafka", "writing to Kafka"):
        import confluent_kafka as kafka
    producer = kafka.Producer(
        {
            "bootstrap.servers": topic.servers,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 20,
            "message.timeout.ms": int(_DELIVERY_S * 1000),
        },
        logger=_LOG,
    )
    try:
        producer.list_topics(timeout=_ANSWER_S)
    except kafka.KafkaException as error:
        raise OptionError(
            f"no Kafka broker answers at {topic.servers} ({error.args[0].str()}); "
            "is it running, and is this its address?"
        ) from error
    return producer
