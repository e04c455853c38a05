"""Packages that only some commands and functions need: what to install if one is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from semistream.errors import MissingPackageError


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Let a package that cannot be imported be reported with the extra of semistream that adds it.

    >>> with needs_extra("charts", "a chart"):
    ...     import no_such_package
    Traceback (most recent call last):
        ...
    semistream.errors.MissingPackageError: a chart needs the package no_such_package, which is not \
installed. Install it: pip install 'semistream[charts]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "semistream"):
            raise
        raise MissingPackageError(
            f"{what} needs the package {package}, which is not installed. Install it: "
            f"pip install 'semistream[{extra}]'",
            name=package,
        ) from None
