"""The public face: what `import semistream` gives, and that it needs no Spark."""

import inspect
import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import semistream as ss
from semistream.embedded import JoinOptions
from semistream.errors import OptionError
from semistream.relation import Relation as StoredRelation
from semistream.relation.build import BuildOptions
from semistream.relation.device import Reading


@pytest.fixture
def products(tmp_path: Path) -> ss.Relation:
    table = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
    return ss.build_relation(table, tmp_path / "p.rel", key="id", partitions=2)


def test_pyspark_is_not_imported() -> None:
    code = "import semistream, sys; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_dir_shows_the_public_names_only() -> None:
    joins = ["between", "enrich", "enrich_star", "enrich_with", "join", "similar", "where"]
    sources = ["delta_changes", "delta_table", "delta_version", "iceberg_table", "sql_table"]
    joins += ["shedding", "validity"]
    others = ["Relation", "__version__", "build_relation", "configure_spark", "errors", "maintain"]
    others += ["log_json", "serve_metrics"]
    pipelines = ["Pipeline", "add_columns", "mark_duplicates", "mark_new", "run_pipeline"]
    pipelines += ["start_pipeline", "surrogate_key"]
    assert dir(ss) == sorted([*joins, *sources, *others, *pipelines])
    assert all(getattr(ss, name) is not None for name in dir(ss))


@pytest.mark.parametrize("name", ["configure_spark", "enrich", "enrich_with"])
def test_without_pyspark_the_extra_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError(name='pyspark.sql')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import semistream as ss; ss.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last == (
        f"semistream.errors.MissingPackageError: semistream.{name} needs the package pyspark, "
        "which is not installed. Install it: pip install 'semistream[spark]'"
    )


def test_every_way_to_a_relation_gives_the_public_class(products: ss.Relation) -> None:
    ways = [
        products,
        ss.Relation.open(products.location),
        pickle.loads(pickle.dumps(products)),
        products.read_by(Reading(read_ahead=True)),
    ]
    for relation in ways:
        assert type(relation) is ss.Relation
        assert isinstance(relation, StoredRelation)
        assert relation.manifest == products.manifest
    assert ss.Relation.open(products.location) == products


def test_a_stored_relation_can_be_joined_as_well(products: ss.Relation) -> None:
    stored = StoredRelation.open(products.location)
    (batch,) = ss.join([pa.record_batch({"id": [2]})], stored, how="inner", memory="1MB")
    assert batch.to_pylist() == [{"id": 2, "name": "b"}]


def test_join_options_have_the_defaults_of_join() -> None:
    of_join = {
        name: parameter.default
        for name, parameter in inspect.signature(ss.join).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    options = JoinOptions()
    assert {name: getattr(options, name) for name in JoinOptions.__slots__} == of_join


def test_build_options_have_the_defaults_of_build_relation() -> None:
    parameters = inspect.signature(ss.build_relation).parameters
    options = BuildOptions("id")
    assert parameters["partitions"].default is None, "a rebuild keeps those that there are"
    for name in ("page_size", "order", "sample"):
        assert parameters[name].default == getattr(options, name)


def test_build_options_are_checked_before_the_source_is_read() -> None:
    with pytest.raises(OptionError, match="at least 1"):
        BuildOptions("id", partitions=0)
    with pytest.raises(OptionError, match="size"):
        BuildOptions("id", page_size="many")
    assert BuildOptions("id").key_columns == ("id",)
    assert BuildOptions(["a", "b"]).key_columns == ("a", "b")
