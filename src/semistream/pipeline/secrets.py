"""Secrets in a pipeline: ``${env:NAME}`` and ``${file:PATH}``, read when they are used.

A pipeline holds the reference, so it can be printed, stored and compared. The value is put in just
before Spark gets it, and whatever is printed afterwards goes through `Secrets.hidden`.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from semistream.errors import PipelineError, did_you_mean

_REFERENCE = re.compile(r"\$\{([^:}]*):([^}]*)\}")
_KINDS = ("env", "file")


@dataclass
class Secrets:
    """The secrets of one pipeline, and the values that were read so far."""

    base: Path  # what relative paths of files begin at
    _values: set[str] = field(default_factory=set, repr=False)

    def text(self, given: Any) -> str:
        """Return a value as text, with references replaced by what they stand for.

        >>> os.environ["SHOP_KEY"] = "k7"
        >>> secrets = Secrets(Path("."))
        >>> secrets.text("user:${env:SHOP_KEY}"), secrets.hidden("the key is k7")
        ('user:k7', 'the key is ***')
        """
        if isinstance(given, bool):
            return str(given).lower()
        return _REFERENCE.sub(lambda found: self._value(found[1], found[2]), str(given))

    def texts(self, given: Mapping[str, Any]) -> dict[str, str]:
        """Return options as texts."""
        return {name: self.text(value) for name, value in given.items()}

    def check(self, given: Any) -> None:
        """Raise if anything in here refers to a secret that cannot be read."""
        for text in _texts_in(given):
            self.text(text)

    def hidden(self, text: str) -> str:
        """Return a text in which no secret is left."""
        for value in sorted(self._values, key=len, reverse=True):
            text = text.replace(value, "***")
        return text

    def _value(self, kind: str, name: str) -> str:
        if kind not in _KINDS:
            raise PipelineError(
                f"${{{kind}:{name}}} must be ${{env:NAME}} or ${{file:PATH}}."
                f"{did_you_mean(kind, _KINDS)}"
            )
        if kind == "env":
            if name not in os.environ:
                raise PipelineError(
                    f"the environment variable {name} is not set, which ${{env:{name}}} refers to"
                )
            value = os.environ[name]
        else:
            path = self.base / name
            try:
                value = path.read_text().rstrip("\n")
            except OSError as error:
                raise PipelineError(
                    f"{path} cannot be read, which ${{file:{name}}} refers to: {error.strerror}"
                ) from None
        if value:
            self._values.add(value)
        return value


def _texts_in(given: Any) -> Iterator[str]:
    if isinstance(given, str):
        yield given
    elif isinstance(given, Mapping):
        for value in given.values():
            yield from _texts_in(value)
    elif isinstance(given, list | tuple):
        for value in given:
            yield from _texts_in(value)
