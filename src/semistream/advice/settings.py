"""Operating parameters that a user sets for a named algorithm, in place of the usual split.

==================  ===============================================================================
`disk_buffer`       size of the pages of R that are read together (b), a size in bytes or ``"1MB"``;
                    it is rounded to whole pages, one at least
`front_stage`       size of the front stage, for algorithms that have one
`cache_policy`      of the front stage: ``"competing"``, a row must be more frequent than one it
                    replaces, or ``"paper"``, one threshold and the least count of all
`parts`             of the disk buffer of ``xhybridjoin``: ``"tuned"``, or ``"equal"``, as many
                    pinned pages as others; ``algorithm="xhybridjoin-untuned"`` stands for that
`pinned_pages`      pages of R that stay in memory (l), for ``xhybridjoin``
`next_page`         the pages that are read next: ``"urgent"``, or ``"oldest"`` as in the paper, for
                    ``hybridjoin``, ``chybridjoin`` and ``xhybridjoin``
`tuples_per_read`   stream tuples that enter with each read (w), for ``meshjoin`` and ``cmeshjoin``
==================  ===============================================================================

``settings="papers"`` is the disk buffer that `meshjoin-default-settings.txt` recommends, 0.93 MB.
What is left goes to the window. ``auto`` searches these values by the cost model, so it takes none.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from semistream.budget.rules import RULES
from semistream.budget.split import USUAL, Split
from semistream.errors import OptionError, did_you_mean
from semistream.joins.registry import ALGORITHMS
from semistream.relation.relation import Relation
from semistream.units import parse_bytes

Settings: TypeAlias = Mapping[str, int | str] | str
PAPERS = {"disk_buffer": "0.93MB"}
_CHECKED: dict[str, Callable[[str], bool]] = {
    "cache_policy": lambda name: ALGORITHMS[name].has_front,
    "disk_buffer": lambda name: name in RULES,
    "front_stage": lambda name: ALGORITHMS[name].has_front,
    "next_page": lambda name: "hybridjoin" in name,
    "parts": lambda name: ALGORITHMS[name].pins_pages,
    "pinned_pages": lambda name: ALGORITHMS[name].pins_pages,
    "tuples_per_read": lambda name: name in ("meshjoin", "cmeshjoin"),
}
# Settings that are no sizes, and what they can be.
_NAMES: dict[str, tuple[str, ...]] = {
    "cache_policy": ("competing", "paper"),
    "next_page": ("urgent", "oldest"),
    "parts": ("tuned", "equal"),
}
# Names for an algorithm with settings.
ALIASES: dict[str, tuple[str, dict[str, str]]] = {
    "xhybridjoin-untuned": ("xhybridjoin", {"parts": "equal"})
}


def named_algorithm(
    algorithm: str, front_stage: bool, settings: Settings | None
) -> tuple[str, Settings | None]:
    """Return an algorithm of the registry, or ``auto``, and its settings, for any name.

    >>> named_algorithm("xhybridjoin-untuned", False, {"disk_buffer": "1MB"})
    ('xhybridjoin', {'disk_buffer': '1MB', 'parts': 'equal'})
    """
    if algorithm in ALIASES:
        algorithm, more = ALIASES[algorithm]
        given = PAPERS if settings == "papers" else settings
        settings = given if isinstance(given, str) else {**(given or {}), **more}
    return with_front_stage(algorithm, front_stage), settings


def with_front_stage(algorithm: str, front_stage: bool) -> str:
    """Return the algorithm that has the front stage before the named one.

    >>> with_front_stage("meshjoin", True), with_front_stage("meshjoin", False)
    ('cmeshjoin', 'meshjoin')
    """
    if not front_stage or (algorithm in ALGORITHMS and ALGORITHMS[algorithm].has_front):
        return algorithm
    with_front = f"c{algorithm}"
    if with_front not in ALGORITHMS:
        backs = [name[1:] for name, about in ALGORITHMS.items() if about.has_front]
        raise OptionError(
            f"front_stage=True is for algorithm {', '.join(backs)}; got {algorithm!r}. auto "
            "decides by itself whether a front stage helps"
        )
    return with_front


def split_of(
    settings: Settings | None, algorithm: str, relation: Relation, budget_bytes: int
) -> Split:
    """Return the split that settings ask for, or raise what is wrong with them."""
    if settings is None:
        return USUAL
    if algorithm not in ALGORITHMS:
        raise OptionError(
            f"settings are for a named algorithm; {algorithm} finds them by the cost model. Name "
            "one, for example algorithm='meshjoin'"
        )
    given = PAPERS if settings == "papers" else settings
    if isinstance(given, str):
        raise OptionError(f"settings is 'papers' or a mapping of names to values; got {given!r}")
    for name in given:
        _check(name, algorithm)
    named = {name: _named(name, str(value)) for name, value in given.items() if name in _NAMES}
    sizes = {name: _size(name, value) for name, value in given.items() if name not in _NAMES}
    for name in ("disk_buffer", "front_stage"):
        if sizes.get(name, 0) >= budget_bytes:
            raise OptionError(
                f"settings {name!r} is {sizes[name]} bytes, but all memory is {budget_bytes} "
                "bytes; lower it, or raise memory"
            )
    pages = None
    if "disk_buffer" in sizes:
        pages = max(1, round(sizes["disk_buffer"] / relation.manifest.page_bytes))
    return Split(
        pages_per_read=pages,
        front_bytes=sizes.get("front_stage"),
        pinned_pages=sizes.get("pinned_pages"),
        tuples_per_read=sizes.get("tuples_per_read"),
        paper_cache=named.get("cache_policy") == "paper",
        equal_parts=named.get("parts") == "equal",
        oldest_picks=None if "next_page" not in named else named["next_page"] == "oldest",
    )


def _check(name: str, algorithm: str) -> None:
    if name not in _CHECKED:
        raise OptionError(
            f"settings has no {name!r}; it has {', '.join(_CHECKED)}.{did_you_mean(name, _CHECKED)}"
        )
    if not _CHECKED[name](algorithm):
        raise OptionError(f"{algorithm} has no setting {name!r}; leave it out")


def _named(name: str, value: str) -> str:
    if value not in _NAMES[name]:
        raise OptionError(
            f"settings {name!r} must be one of {', '.join(_NAMES[name])}; got {value!r}."
            f"{did_you_mean(value, _NAMES[name])}"
        )
    return value


def _size(name: str, value: Any) -> int:
    size = value if isinstance(value, int) else parse_bytes(value)
    if size < 1:
        raise OptionError(f"settings {name!r} must be positive; got {value!r}")
    return int(size)
