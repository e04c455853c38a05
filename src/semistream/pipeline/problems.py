"""What is wrong with a pipeline, in words: place, field, what was expected, the nearest right word.

Pydantic finds what is wrong; here its findings become lines such as ::

    pipeline.yml:12: source.fromat: unknown field; known are format, path. Did you mean 'format'?
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from semistream.errors import PipelineError, did_you_mean

Place = tuple[str | int, ...]
_QUOTED = re.compile(r"'([^']*)'")


@contextmanager
def checked(
    model: type[BaseModel], given: Any, where: Callable[[Place], str] = lambda place: ""
) -> Iterator[None]:
    """Let all that is wrong with a pipeline be raised as one `PipelineError`.

    `where` returns the file and line of a field, to begin each line with.
    """
    try:
        yield
    except ValidationError as error:
        found: dict[tuple[Place, str], str] = {}
        for each in error.errors(include_url=False):
            place = _in_data(each["loc"], given)
            found.setdefault((place, each["type"]), _line(model, each, place, given, where))
        lines = list(dict.fromkeys(found.values()))
        raise PipelineError("\n".join(lines)) from None


def _in_data(loc: Place, given: Any) -> Place:
    """Return where something is in the data: without the names that pydantic gives to variants."""
    place: list[str | int] = []
    value = given
    for i, name in enumerate(loc):
        is_there = (isinstance(value, Mapping) and name in value) or (
            isinstance(value, list | tuple) and isinstance(name, int) and name < len(value)
        )
        if is_there:
            place.append(name)
            value = value[name]
        elif i == len(loc) - 1 and isinstance(value, Mapping):
            place.append(name)  # a field that is missing
    return tuple(place)


def _line(
    model: type[BaseModel], error: Any, place: Place, given: Any, where: Callable[[Place], str]
) -> str:
    kind, context = error["type"], error.get("ctx", {})
    shown = ".".join(str(p) if isinstance(p, str) else f"[{p + 1}]" for p in place)
    shown = shown.replace(".[", "[")
    if kind == "missing":
        text = "is missing"
        place = place[:-1]
    elif kind == "extra_forbidden":
        known = _known_fields(model, place[:-1], given)
        text = f"unknown field; known are {', '.join(known)}.{did_you_mean(str(place[-1]), known)}"
    elif kind in ("literal_error", "union_tag_invalid"):
        known = _QUOTED.findall(str(context.get("expected") or context.get("expected_tags")))
        got = context.get("tag", error["input"])
        place = (*place, "format") if kind == "union_tag_invalid" else place
        shown = f"{shown}.format" if kind == "union_tag_invalid" else shown
        text = f"expected one of {', '.join(known)}; got {got!r}.{did_you_mean(str(got), known)}"
    elif kind == "union_tag_not_found":
        text = "the field format is missing"
    elif kind == "value_error":
        text = str(context["error"])
    else:
        text = f"{_expected(error['msg'])}; got {_short(error['input'])}"
    return f"{where(place)}{shown}: {text}" if shown else f"{where(place)}{text}"


def _expected(message: str) -> str:
    """Return pydantic's words as ours: what was expected."""
    message = message.removeprefix("Input should be ").removeprefix("a valid ")
    return f"expected {message}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _known_fields(model: type[BaseModel], place: Place, given: Any) -> list[str]:
    """Return the fields of the part at a place."""
    current: Any = model
    value = given
    for name in place:
        value = value[name]
        current = _inside(current, name, value)
        if current is None:
            return []
    part = _chosen(current, value)
    return [] if part is None else [f.alias or n for n, f in part.model_fields.items()]


def _inside(current: Any, name: str | int, value: Any) -> Any:
    """Return the type of a field of a model, or of the values of a list or mapping."""
    part = _chosen(current, value)
    if part is not None:
        fields = {f.alias or n: f for n, f in part.model_fields.items()}
        return fields[str(name)].annotation if str(name) in fields else None
    for each in (current, *get_args(current)):
        if get_origin(each) in (list, dict):
            return get_args(each)[-1]
    return None


def _chosen(annotation: Any, value: Any) -> type[BaseModel] | None:
    """Return the model that a value is meant to be: by its format, or the only one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    models = [m for m in _members(annotation) if isinstance(m, type) and issubclass(m, BaseModel)]
    if len(models) > 1 and isinstance(value, Mapping):
        tag = value.get("format")
        models = [m for m in models if tag in get_args(m.model_fields["format"].annotation)]
    return models[0] if models else None


def _members(annotation: Any) -> list[Any]:
    if get_origin(annotation) is None:
        return [annotation]
    if get_origin(annotation) in (list, dict):
        return []
    arguments = get_args(annotation)
    is_union = get_origin(annotation) is Union or "Union" in str(type(annotation))
    return [m for a in (arguments if is_union else arguments[:1]) for m in _members(a)]
