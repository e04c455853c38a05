"""What the documentation shows is run: docstring examples, and the README's Python."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream
from semistream.errors import BudgetError

README = Path(__file__).parents[1] / "README.md"
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(semistream.__path__, "semistream.")
    if not module.name.startswith(("semistream.spark", "semistream.cli.demo"))
)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


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


def test_readme_shows_the_real_budget_error(tmp_path: Path) -> None:
    table = pa.table({"product_id": np.arange(10_000), "name": ["x" * 50] * 10_000})
    products = semistream.build_relation(table, tmp_path / "p.rel", key="product_id")
    batches = [pa.record_batch({"product_id": [1]})]
    with pytest.raises(BudgetError) as error:
        list(semistream.join(batches, products, memory="10KB"))
    shown = re.search(r"BudgetError: (.*?)```", README.read_text(), re.DOTALL)
    assert shown is not None
    for phrase in ("hybridjoin cannot run in", "it needs at least", "bytes or more, or build the"):
        assert phrase in str(error.value)
        assert phrase in shown[1]
