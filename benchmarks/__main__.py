"""``python -m benchmarks [engine] [devices] …``: the usual ones unless some are named."""

import argparse
import os
import subprocess
import sys

USUAL = ("engine", "microbatch", "devices", "admission", "spark", "build", "memory")
# Only if named: `options`, `cachepolicy` and `deltas` compare a join with itself, `sql` starts
# database servers, the grid takes hours, `latency` waits for minutes, `cold` needs root, and
# `picture` draws the README's.
BENCHMARKS = (
    *USUAL,
    "options",
    "cachepolicy",
    "deltas",
    "star",
    "sql",
    "latency",
    "phases",
    "grid",
    "cold",
    "picture",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", choices=[[], *BENCHMARKS], help="which to run")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, to try it out")
    arguments = parser.parse_args()
    for name in arguments.names or USUAL:
        # A process each: the engine's is pinned to one core, Spark's is not.
        environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
        command = [sys.executable, "-m", f"benchmarks.{name}"]
        command += ["--quick"] if arguments.quick else []
        code = subprocess.run(command, env=environment, check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
