"""What a mutant is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One edit, and the tests of which at least one must fail with it."""

    name: str
    file: str  # below src/semistream
    old: str
    new: str
    tests: tuple[str, ...]
