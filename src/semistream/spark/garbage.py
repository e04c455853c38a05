"""What Python's garbage collector does in Spark's workers after every task.

Spark's daemon collects all garbage after each task of a worker. A worker that joins has some
130,000 objects of imported modules and compiled kernels, and looking at them takes 60 ms of
processor time, which other tasks and the JVM could use. In a worker that has not imported them it
takes 7 to 27 ms. They live as long as the worker, so later collections leave them out.

That is done when the second task begins: then the kernels are loaded, and the daemon has collected
what the first task has left.
"""

import gc
from itertools import count

from pyspark import TaskContext

_tasks = count(1)


def leave_modules_out() -> None:
    """Let collections leave out what there is when a worker's second task begins."""
    if TaskContext.get() is not None and next(_tasks) == 2:
        gc.freeze()
