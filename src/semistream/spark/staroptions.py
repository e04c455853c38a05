"""What can be said of each relation of a star, and what is wrong with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from semistream.advice.auto import AUTO
from semistream.advice.settings import Settings
from semistream.conditions.condition import Conditions
from semistream.embedded import JoinOptions
from semistream.errors import OptionError, did_you_mean
from semistream.spec import Columns, On


@dataclass(frozen=True, slots=True)
class StarOptions:
    """What can be said of each relation; the arguments of `semistream.enrich` of these names."""

    on: On | None = None
    how: str = "left"
    columns: Columns | None = None
    memory: int | str | None = None  # its part of the whole; by the model unless given
    algorithm: str = AUTO
    routing: str = AUTO
    suffix: str | None = None
    condition: Conditions | None = None
    valid_at: str | None = None
    front_stage: bool = False
    settings: Settings | None = None
    name: str | None = None  # of its metrics
    max_staleness: float | str | timedelta | None = None
    on_stale: str = "warn"

    @classmethod
    def of(cls, said: Any) -> "StarOptions":
        """Return the options of a relation: given as a mapping, or only the name of the key."""
        if said is None or isinstance(said, str | Sequence):
            return cls(on=said)
        if not isinstance(said, Mapping):
            raise OptionError(
                "say of each relation what its key is, or a mapping of options such as "
                f"{{'on': 'product_id', 'how': 'inner'}}; got {said!r}"
            )
        known = [field.name for field in fields(cls)]
        for name in said:
            if name not in known:
                raise OptionError(
                    f"a relation of a star has no option {name!r}; there are {', '.join(known)}."
                    + did_you_mean(str(name), known)
                )
        return cls(**said)

    @property
    def joining(self) -> JoinOptions:
        """The options of the join itself."""
        return JoinOptions(
            self.on,
            self.how,
            self.columns,
            suffix=self.suffix,
            condition=self.condition,
            valid_at=self.valid_at,
        )
