"""How an error of ours in a task is shown: by one exception, with the message in its first line.

Of an exception in a Python worker Spark shows the traceback, in a traceback of its own. So a task
that meets an error of ours ends with a row that has the error's text in a column of its own, and an
expression raises that text in the JVM::

    SparkRuntimeException: [USER_RAISED_EXCEPTION] BudgetError: each of the 8 tasks …

The task fails then, and is tried again, as after any exception. All other exceptions are bugs, and
come with their traceback.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from semistream import errors
from semistream.errors import SemistreamError
from semistream.spark.keys import column

ERROR_COLUMN = "__semistream_error"
# Of a source, whose errors Spark shows with their traceback.
_TRACED = re.compile(r"^semistream\.errors\.(\w+): ([^\n]*)", re.MULTILINE)
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (\w+): (.*?)\s+SQLSTATE", re.DOTALL)


def text_of(error: SemistreamError) -> str:
    """Return an error as one line of text: its class and its message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def unless_error(condition: Column) -> Column:
    """Return a condition on rows of a task; a row that has an error raises it instead."""
    text = column(ERROR_COLUMN)
    return F.when(text.isNotNull(), F.raise_error(text)).otherwise(condition)


def said_by(error: Exception) -> str:
    """Return what Spark says of an error, without the plan and the stack that it adds."""
    text = str(error).strip().partition(" SQLSTATE")[0].partition("\n\tat ")[0]
    return " ".join(text.partition("\n\nJVM stacktrace")[0].split())


@contextmanager
def raised_as_ours() -> Iterator[None]:
    """Let the error of a task be raised on the driver as what it is, a `SemistreamError`."""
    try:
        yield
    except PySparkException as error:
        found = _RAISED.search(str(error)) or _TRACED.search(str(error))
        kind = None if found is None else getattr(errors, found[1], None)
        if found is None or kind is None:
            raise
        raise kind(found[2]) from None
