"""Structured logs: what semistream logs, as one JSON object in each line.

::

    {"time": "2026-11-17T08:30:18.919Z", "level": "INFO", "logger": "semistream.query",
     "message": "micro-batch 62 of sales: 50,000 rows in 1.9 s", "query": "sales", "batch": 62, …}

Every record has the first four; what else a record was given as `extra` follows under its own name.
"""

import json
import logging
import os
import sys
from datetime import UTC, datetime

_LOGGER = logging.getLogger("semistream")
# What every record has; all else in one was given as `extra`.
_USUAL = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        when = datetime.fromtimestamp(record.created, UTC)
        known = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        added = {name: value for name, value in vars(record).items() if name not in _USUAL}
        if record.exc_info:
            added["error"] = self.formatException(record.exc_info)
        return json.dumps(known | added, default=str)


class JsonLog:
    """A log that is being written; close it, or use it in a ``with`` block."""

    def __init__(self, handler: logging.Handler) -> None:
        """Write what the handler gets."""
        self._handler = handler
        _LOGGER.addHandler(handler)

    def close(self) -> None:
        """Write no more."""
        _LOGGER.removeHandler(self._handler)
        self._handler.close()

    def __enter__(self) -> "JsonLog":
        """Return the log."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the log."""
        self.close()


def log_json(path: str | os.PathLike[str] | None = None, level: int = logging.INFO) -> JsonLog:
    """Log all that semistream has to say as lines of JSON, to a file or to stderr, until closed.

    In a query, it is the driver's log; workers log to the executors' stderr as before.

    >>> with log_json(os.devnull):
    ...     logging.getLogger("semistream").info("micro-batch 7", extra={"batch": 7})
    """
    stderr = logging.StreamHandler(sys.stderr)
    handler = stderr if path is None else logging.FileHandler(path, delay=True)
    handler.setFormatter(JsonFormatter())
    handler.setLevel(level)
    if _LOGGER.getEffectiveLevel() > level:
        _LOGGER.setLevel(level)
    return JsonLog(handler)
