"""What the documentation shows is run; what it names and links to is there.

Docstring examples and the README's Python are run here; the worked example of CONTRIBUTING.md in
`tests/contract/test_worked_example.py`.
"""

import doctest
import importlib
import pkgutil
import re
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream
from semistream.errors import BudgetError

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCUMENTS = sorted(chain(ROOT.glob("*.md"), (ROOT / "docs").rglob("*.md")))
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(semistream.__path__, "semistream.")
    if not module.name.startswith(("semistream.spark", "semistream.cli.demo"))
)
# A file or folder that a document names by its path: below the package, or below the repository.
_NAMED = re.compile(r"`((?:[a-z0-9_]+/)*[a-z0-9_]+\.py|(?:[a-z0-9_]+/)+)`")
_LINK = re.compile(r"\]\((?!https?:)([^)\s#]*)(?:#([^)\s]+))?\)")
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
# Words that the glossary has replaced.
_REPLACED = (
    *("hopeless", "clairvoyant", "waiting room", "sureness", "set right", "at home on"),
    *("passed by", "challenger", "turn of R", "turns of R"),
)


def prose(document: Path) -> str:
    """Return a document without its blocks of code."""
    return _FENCED.sub("", document.read_text())


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target, anchor in _LINK.findall(prose(document)):
        path = document.parent / target if target else document
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path), f"{target}#{anchor}"


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_files_that_are_named_exist(document: Path) -> None:
    package = Path(semistream.__file__).parent
    for name in _NAMED.findall(prose(document)):
        assert (package / name).exists() or (ROOT / name).exists(), name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_words_are_those_of_the_glossary(document: Path) -> None:
    text = " ".join(document.read_text().split())
    assert [word for word in _REPLACED if re.search(rf"\b{word}\b", text, re.IGNORECASE)] == []


def test_readme_example_without_spark(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    example = next(e for e in examples if "ss.join(" in e)
    table = pa.table({"product_id": np.arange(100), "name": [f"n{i}" for i in range(100)]})
    products = semistream.build_relation(table, tmp_path / "p.rel", key="product_id")
    batches = [pa.record_batch({"product_id": [1, 2, 2]})]
    names = {"ss": semistream, "products": products, "batches": batches}
    exec(example, names)
    last = names["batch"]
    assert isinstance(last, pa.RecordBatch)
    assert last.schema.names == ["product_id", "name"]


def test_the_examples_of_join_options() -> None:
    guide = ROOT / "docs" / "guides" / "join-options.md"
    examples = re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL)
    assert len(examples) == 5
    exec("\n".join(examples), {})


def test_readme_shows_the_real_budget_error(tmp_path: Path) -> None:
    table = pa.table({"product_id": np.arange(10_000), "name": ["x" * 50] * 10_000})
    products = semistream.build_relation(table, tmp_path / "p.rel", key="product_id")
    batches = [pa.record_batch({"product_id": [1]})]
    with pytest.raises(BudgetError) as error:
        list(semistream.join(batches, products, memory="10KB"))
    shown = re.search(r"BudgetError: (.*?)```", README.read_text(), re.DOTALL)
    assert shown is not None
    assert " ".join(shown[1].split()) == str(error.value)
