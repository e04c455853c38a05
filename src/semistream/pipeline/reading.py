"""A pipeline file: YAML, with the line of every field, so that what is wrong can be found.

Only ``true`` and ``false`` are booleans, as in YAML 1.2: in YAML 1.1 the field ``on`` would be one.
"""

import re
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel

from semistream.errors import PipelineError
from semistream.pipeline.problems import Place, checked

_P = TypeVar("_P", bound=BaseModel)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Reads YAML with the booleans of version 1.2."""


_BOOLEAN = "tag:yaml.org,2002:bool"
_Loader.yaml_implicit_resolvers = {
    first: [each for each in resolvers if each[0] != _BOOLEAN]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOLEAN, re.compile(r"^(?:true|false)$", re.I), list("tTfF"))


def read_file(model: type[_P], path: Path) -> _P:
    """Read a model from a YAML file; raise `PipelineError` with all that is wrong."""
    try:
        text = path.read_text()
    except OSError as error:
        raise PipelineError(
            f"{path} cannot be read: {error.strerror}. `semistream init` writes a pipeline file"
        ) from None
    lines: dict[Place, int] = {}
    try:
        node = yaml.compose(text, Loader=_Loader)
        _note_lines(node, (), lines, path)
        body = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise PipelineError(f"{path}:{line}: not YAML: {error.problem}") from None
    if not isinstance(body, dict):
        raise PipelineError(f"{path}:1: expected fields such as name: and source:")

    def where(place: Place) -> str:
        while place and place not in lines:
            place = place[:-1]
        return f"{path}:{lines.get(place, 1)}: "

    with checked(model, body, where):
        return model.model_validate({str(k): v for k, v in body.items()})


def _note_lines(node: yaml.Node | None, place: Place, lines: dict[Place, int], path: Path) -> None:
    """Note the line of each field; refuse a field that is there twice: YAML would drop one."""
    if node is None:
        return
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*place, str(key.value))
            line = key.start_mark.line + 1
            if inner in lines:
                raise PipelineError(
                    f"{path}:{line}: {'.'.join(map(str, inner))}: is given twice, the first time "
                    f"in line {lines[inner]}. Remove one"
                )
            lines[inner] = line
            _note_lines(value, inner, lines, path)
    elif isinstance(node, yaml.SequenceNode):
        for i, value in enumerate(node.value):
            _note_lines(value, (*place, i), lines, path)
