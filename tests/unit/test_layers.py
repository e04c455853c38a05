"""Imports point down: every layer imports only the layers that `LAYERS` gives it.

All imports count, also those inside functions and under ``TYPE_CHECKING``. `LAYERS` is the picture
that ``docs/architecture.md`` shows, word for word.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src"
ARCHITECTURE = ROOT.parent / "docs" / "architecture.md"

# From top to bottom: modules and packages; what they are; the layers that they may import. Every
# layer may import the last line, and its own modules as long as they form no cycle.
LAYERS = """
cli/         the command                        all below
semistream   the names for users                all below
api          relations: build, open, explain    all below but lab/
spark/       Spark; nothing else uses pyspark   all below but lab/
pipeline/    a pipeline as a file or an object  all below but lab/ workload/
embedded     the join without Spark             all below but lab/ workload/
lab/         the papers' figures                all below
advice/      calibration, choice, explain       all below
joins/       the operators                      budget/ spec conditions/ relation/
cost/        predictions                        budget/ conditions/
budget/      sizes, splits, settings            spec relation/
spec         a join, with all names resolved    conditions/ relation/
conditions/  what must hold beside equal keys   -
databases/   R in a database, read in place     relation/
relation/    R on disk                          -
tables       Delta and Iceberg tables           -
workload/    generated relations and streams    -
errors extras units arrowtypes columns keys memory jit logs plain sources testing version
"""
PYSPARK_LAYER = "spark"


@dataclass(frozen=True)
class Import:
    """One import of one module by another."""

    place: str  # file:line
    importer: str
    imported: str


def _parse_layers(picture: str) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Return the layer of each top-level name, and the layers that each layer may import."""
    *lines, last = picture.strip().replace("/", "").splitlines()
    base, *_ = bottom = last.split()
    layer_of, allowed = dict.fromkeys(bottom, base), {base: set[str]()}
    for line in reversed(lines):
        layer, _, names = re.split(r"  +", line)
        below = set(allowed)
        listed = set(names.removeprefix("all below").split()) - {"but", "-"}
        assert listed <= below, f"{layer} may import only what is below it: {line}"
        allowed[layer] = below - listed if names.startswith("all below") else {base, *listed}
        layer_of[layer] = layer
    return layer_of, allowed


LAYER_OF, MAY_IMPORT = _parse_layers(LAYERS)


def _sources(root: Path) -> dict[str, Path]:
    """Return all modules of the package by their dotted names."""
    names = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def _imports(root: Path) -> Iterator[Import]:
    """Yield every import of every module, wherever it stands in the file."""
    modules = _sources(root)
    for module, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            for name in _imported_names(node, module, path.name == "__init__.py", modules):
                place = f"{path.relative_to(root.parent)}:{getattr(node, 'lineno', 0)}"
                yield Import(place, module, name)


def _imported_names(
    node: ast.AST, module: str, is_package: bool, modules: Mapping[str, Path]
) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if not isinstance(node, ast.ImportFrom):
        return set()
    base = node.module or ""
    if node.level:
        folder = module.split(".")
        folder = folder[: len(folder) - node.level + is_package]
        base = ".".join([*folder, *([base] if base else [])])
    # `from package import module` imports the module; any other name is in the package itself.
    members = {f"{base}.{alias.name}" for alias in node.names}
    return {name if name in modules else base for name in members}


def _layer(module: str) -> str | None:
    """Return the layer of a module of ours; None if it is not ours."""
    package, *rest = module.split(".")
    return LAYER_OF[rest[0] if rest else package] if package == "semistream" else None


def _may_import(layer: str) -> str:
    names = [name for name, of in LAYER_OF.items() if of in {layer, *MAY_IMPORT[layer]}]
    return f"{layer} may import only {', '.join(sorted(names))}"


def layer_violations(root: Path) -> list[str]:
    """Return what is wrong, a line for each import that points upward or sideways."""
    found = []
    for item in _imports(root):
        layer, target = _layer(item.importer), _layer(item.imported)
        assert layer is not None
        if item.imported.split(".")[0] == "pyspark" and layer != PYSPARK_LAYER:
            found.append(f"{item.place}: imports {item.imported}; only spark/ may import pyspark")
        elif target is not None and target not in {layer, *MAY_IMPORT[layer]}:
            found.append(f"{item.place}: imports {item.imported}; {_may_import(layer)}")
    return found


def import_cycles(root: Path) -> list[str]:
    """Return the cycles of imports inside a layer, each with the imports that make it."""
    edges: dict[str, dict[str, Import]] = {}
    for item in _imports(root):
        if _layer(item.imported) == _layer(item.importer) and item.imported != item.importer:
            edges.setdefault(item.importer, {}).setdefault(item.imported, item)
    cycles: dict[frozenset[str], str] = {}
    for start in sorted(edges):
        path = _way_back(start, edges)
        if path:
            steps = [f"{i.place}: imports {i.imported}" for i in path]
            cycles.setdefault(frozenset(i.importer for i in path), "\n  ".join(["cycle:", *steps]))
    return list(cycles.values())


def _way_back(start: str, edges: Mapping[str, Mapping[str, Import]]) -> list[Import]:
    """Return the shortest chain of imports from a module back to itself; empty if there is none."""
    seen: set[str] = set()
    chains: list[list[Import]] = [[item] for item in edges[start].values()]
    while chains:
        chain = chains.pop(0)
        last = chain[-1].imported
        if last == start:
            return chain
        if last not in seen:
            seen.add(last)
            chains += [[*chain, item] for item in edges.get(last, {}).values()]
    return []


def test_imports_point_down() -> None:
    found = layer_violations(ROOT)
    assert not found, "imports against the layers:\n" + "\n".join(found)


def test_no_import_cycles() -> None:
    found = import_cycles(ROOT)
    assert not found, "imports inside a layer must not form a cycle:\n" + "\n".join(found)


def test_the_documentation_shows_the_same_layers() -> None:
    assert LAYERS in ARCHITECTURE.read_text(), f"put this into docs/architecture.md:\n{LAYERS}"


def test_every_module_has_a_layer() -> None:
    unknown = [name for name in _sources(ROOT) if not _is_known(name)]
    assert not unknown, f"add to LAYERS, and to docs/architecture.md: {', '.join(unknown)}"


def _is_known(module: str) -> bool:
    return module == "semistream" or module.split(".")[1] in LAYER_OF


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("from semistream.advice import explain", "imports semistream.advice"),
        (
            "def f():\n    from semistream.spark.build import x",
            ":2: imports semistream.spark.build",
        ),
        ("if TYPE_CHECKING:\n    import semistream.spec", "imports semistream.spec"),
        ("from semistream import cli", "imports semistream.cli"),
        ("from .. import cli", "imports semistream.cli"),
        ("from ..joins.base import x", "imports semistream.joins.base; relation may import only"),
        ("from semistream import __version__", "imports semistream; relation may import only"),
        ("import pyspark.sql", "imports pyspark.sql; only spark/ may import pyspark"),
    ],
)
def test_an_import_that_points_upward_is_found(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, {"cli/__init__.py": "", "relation/__init__.py": "", "relation/a.py": text})
    (found,) = layer_violations(tmp_path / "src")
    assert found.startswith("src/semistream/relation/a.py:")
    assert message in found


def test_a_cycle_inside_a_layer_is_found(tmp_path: Path) -> None:
    deferred = "def f():\n    from semistream.relation import a"
    files = {"a.py": "from semistream.relation.b import x", "b.py": "from .c import x"}
    write(tmp_path, {f"relation/{n}": t for n, t in {**files, "c.py": deferred}.items()})
    (found,) = import_cycles(tmp_path / "src")
    assert "src/semistream/relation/c.py:2: imports semistream.relation.a" in found
    assert not layer_violations(tmp_path / "src")


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / "src" / "semistream" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
