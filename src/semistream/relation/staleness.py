"""How old a relation may be when it is joined, and what happens if it is older."""

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias, get_args

from semistream.errors import OptionError, StaleRelationError, did_you_mean
from semistream.relation.info import format_age
from semistream.relation.relation import Relation
from semistream.units import parse_seconds

OnStale: TypeAlias = Literal["warn", "stop"]
_LOG = logging.getLogger(__name__)
_warned: set[tuple[str, str]] = set()  # relations and snapshots that this process has warned of


@dataclass(frozen=True, slots=True)
class Staleness:
    """The greatest age of a snapshot, from its publication, and what to do beyond."""

    most_s: float | None = None  # None: any age
    on_stale: OnStale = "warn"

    @classmethod
    def of(cls, most: float | str | timedelta | None, on_stale: str) -> "Staleness":
        """Return the limit that a user gave, checked."""
        if on_stale not in get_args(OnStale):
            known = get_args(OnStale)
            raise OptionError(
                f"on_stale must be one of {', '.join(known)}; got {on_stale!r}."
                f"{did_you_mean(on_stale, known)}"
            )
        return cls(None if most is None else parse_seconds(most), on_stale)  # type: ignore[arg-type]

    def check(self, relation: Relation) -> None:
        """Warn once of a snapshot that is too old, or raise."""
        age_s = relation.age.total_seconds()
        if self.most_s is None or age_s <= self.most_s:
            return
        text = (
            f"the relation {relation.location!r} is {format_age(age_s)} old (snapshot "
            f"{relation.snapshot}), but max_staleness allows {format_age(self.most_s)}. "
            "Refresh it, or allow a greater age"
        )
        if self.on_stale == "stop":
            raise StaleRelationError(text)
        if (relation.location, relation.snapshot) not in _warned:
            _warned.add((relation.location, relation.snapshot))
            _LOG.warning(text)
