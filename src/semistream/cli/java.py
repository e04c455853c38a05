"""Is there a Java that Spark can run on? Uses nothing but the standard library.

The Makefile runs this file before anything is installed, the commands before they start Spark.
"""

import os
import re
import shutil
import subprocess
import sys

LEAST_VERSION = 17
_REMEDY = (
    f"Install Java {LEAST_VERSION} or newer and put it on the PATH (or set JAVA_HOME), "
    "for example:\n"
    "  Debian, Ubuntu:  apt-get install openjdk-17-jre-headless\n"
    "  Fedora, RHEL:    dnf install java-17-openjdk-headless\n"
    "  macOS:           brew install openjdk@17"
)


def java_problem() -> str | None:
    """Return the problem with Java on this machine and its remedy, or None."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if not java or not shutil.which(java):
        where = f"JAVA_HOME is {home}, but there is no bin/java in it" if home else "there is none"
        return f"Spark needs Java, and {where}.\n{_REMEDY}"
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', output.stderr + output.stdout)
    if not found:
        return f"Spark needs Java, but {java} does not print its version.\n{_REMEDY}"
    if int(found[1]) < LEAST_VERSION:
        return f"Spark needs Java {LEAST_VERSION}, but {java} is version {found[1]}.\n{_REMEDY}"
    return None


if __name__ == "__main__":
    problem = java_problem()
    if problem:
        sys.exit(problem)
