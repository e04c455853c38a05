"""The costs of Spark's part of a micro-batch: stored for this host, or of a common machine."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from semistream.advice.calibration.store import host_folder, write_atomically
from semistream.cost.defaults import SPARK
from semistream.cost.spark import SparkCosts

_FORMAT = 1
_COMMON_ERROR = 0.5  # of the costs of one machine from another's, about


@dataclass(frozen=True, slots=True)
class KnownCosts:
    """Costs of Spark's part, and where they are from."""

    costs: SparkCosts
    host: str
    measured: str  # when; empty for those of a common machine
    typical_error: float  # relative

    def text(self) -> str:
        """Say where they are from, in one line."""
        error = f"typical error {self.typical_error:.0%}"
        if self.measured:
            return f"Costs of Spark's part: measured {self.measured} on {self.host}, {error}."
        return (
            f"Costs of Spark's part: those of {self.host}, {error}; "
            "`semistream calibrate RELATION --spark` measures those of this one."
        )


def common_costs() -> KnownCosts:
    """Return the costs of a common machine."""
    return KnownCosts(SPARK, "a common machine", "", _COMMON_ERROR)


def known_costs() -> KnownCosts:
    """Return the costs that are stored for this host, or those of a common machine."""
    try:
        stored = json.loads(_path().read_text())
        if stored.pop("format") != _FORMAT:
            return common_costs()
        return KnownCosts(**{**stored, "costs": SparkCosts(**stored["costs"])})
    except FileNotFoundError:
        return common_costs()
    except (ValueError, KeyError, TypeError):
        return common_costs()  # of another version, or cut off


def store_costs(known: KnownCosts) -> Path:
    """Keep costs for this host; return the file."""
    content = json.dumps({"format": _FORMAT, **asdict(known)}, indent=1)
    return write_atomically(_path(), content)


def _path() -> Path:
    return host_folder() / "spark.json"
