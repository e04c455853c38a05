"""What earlier streams were like, for the next stream of the same kind.

On Spark every micro-batch is a stream of its own, and most are like the one before. Knowing the
choice that was made for that one spares the model, and knowing its length tells short streams from
long ones.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

from semistream.advice.tuner import Chosen

_MOST = 64
_Value = TypeVar("_Value")


class _Recent(Generic[_Value]):
    """A dictionary of limited size; the entry that was stored longest ago is dropped."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[object, _Value] = OrderedDict()

    def get(self, key: object) -> _Value | None:
        return self._entries.get(key)

    def put(self, key: object, value: _Value) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)


class History:
    """Choices and lengths of earlier streams, by kind of stream."""

    def __init__(self, most: int = _MOST) -> None:
        """Remember up to `most` kinds of streams."""
        self.choices: _Recent[Chosen] = _Recent(most)
        self.row_counts: _Recent[int] = _Recent(most)


# The history of this process, which all joins share unless they are given another.
HISTORY = History()
