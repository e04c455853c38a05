"""A pipeline file: what is wrong is said with line, field, what was expected, the nearest word."""

import json
import re
from pathlib import Path

import pytest

import semistream as ss
from semistream.cli.main import main
from semistream.errors import PipelineError
from semistream.pipeline.example import EXAMPLE
from semistream.pipeline.model import Pipeline, schema
from semistream.pipeline.parts import ParquetSink
from semistream.pipeline.steps import Enrich

SCHEMA = Path(__file__).parents[3] / "docs" / "pipeline.schema.json"
GOOD = """\
name: sales
storage: storage
source:
  format: kafka
  servers: broker:9092
  topic: sales
  options: {kafka.sasl.jaas.config: "user ${env:SHOP_PASSWORD}"}
parse: {format: json, schema: {product_id: long, price: double}}
relations: {products: products.rel}
steps:
  - enrich:
      relation: products
      on: product_id
      algorithm: meshjoin
  - add_columns: {revenue: price * 2}
  - enrich: {relation: s3://bucket/stores.rel, memory: 1MB}
sink: {format: parquet, path: out}
memory: 10MB
"""
REST = "  - enrich: {relation: s3://bucket/stores.rel, memory: 1MB}"
HELD = ", on_missing: hold, grace: 5min}"
WRONG = [
    ("format: kafka", "format: kafca", 4, "source.format", "'kafca'. Did you mean 'kafka'?"),
    ("  topic:", "  topik:", 6, "source.topik", "unknown field; .*Did you mean 'topic'?"),
    ("  topic: sales\n", "", 3, "source.topic", "is missing"),
    ("format: json", "format: jsn", 8, "parse.format", "'jsn'. Did you mean 'json'?"),
    ("meshjoin", "mesjoin", 14, "steps[1].enrich.algorithm", "Did you mean 'meshjoin'?"),
    ("      on:", "      one:", 13, "steps[1].enrich.one", "Did you mean 'on'?"),
    ("add_columns", "add_colums", 15, "steps[2].add_colums", "Did you mean 'add_columns'?"),
    ("memory: 1MB", "memory: [1]", 16, "steps[3].enrich.memory", "expected"),
    ("path: out", "pth: out", 17, "sink.pth", "Did you mean 'path'?"),
    ("format: parquet, ", "frmat: parquet, ", 17, "sink", "the field format is missing"),
    ("memory: 10MB", "memory: 10XB", 18, "memory", "a size or a share of .*'10XB'"),
    ("memory: 10MB", "dead_letters: {limit: 130%}", 18, "dead_letters.limit", "percentage"),
    ("memory: 10MB", "name: twice", 18, "name", "is given twice, the first time in line 1"),
    ("memory: 10MB", "memory: [", 19, "", "not YAML"),
    ("parse: {format: json, ", "parse: {format: orc, ", 1, "", "json, csv or avro"),
    ("on: product_id", "on_missing: hold", 11, "steps[1].enrich", "hold and grace, .* go together"),
    ("on: product_id", "grace: 9 wk", 13, "steps[1].enrich.grace", "a duration must be .*'9 wk'"),
    ("on: product_id", "latency: soon", 13, "steps[1].enrich.latency", "a duration must be .*soon"),
    ("on: product_id", "latency: 2s", 11, "steps[1].enrich", "latency needs rate"),
    ("on: product_id", "after_grace: dead_letters", 11, "steps[1].enrich", "that are held"),
    ("memory: 1MB}\n", f"memory: 1MB{HELD}\ntrigger: available now\n", 1, "", "would never end"),
    (REST, f"  - mark_duplicates: {{on: price}}\n{REST[:-1]}{HELD}", 1, "", "a whole micro-batch"),
    ("  - add_columns", "  - where: a > 1\n    add_columns", 15, "steps[2]", "of its own"),
]


def read(folder: Path, text: str) -> Pipeline:
    path = folder / "pipeline.yml"
    path.write_text(text)
    return Pipeline.read(path)


@pytest.mark.parametrize(("right", "wrong", "line", "field", "said"), WRONG)
def test_what_is_wrong_is_said(
    tmp_path: Path, right: str, wrong: str, line: int, field: str, said: str
) -> None:
    assert right in GOOD
    with pytest.raises(PipelineError) as caught:
        read(tmp_path, GOOD.replace(right, wrong, 1))
    place = f"{tmp_path}/pipeline.yml:{line}: {field}"
    lines = str(caught.value).splitlines()
    assert any(text.startswith(place) and re.search(said, text) for text in lines), lines


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("kafka\n", "kafca\n").replace("meshjoin", "mesjoin").replace("10MB", "x")
    with pytest.raises(PipelineError) as caught:
        read(tmp_path, text)
    assert len(str(caught.value).splitlines()) == 3


def test_a_file_and_python_make_the_same_pipeline(tmp_path: Path) -> None:
    made = ss.Pipeline(
        name="sales",
        storage="storage",
        source={
            "format": "kafka",
            "servers": "broker:9092",
            "topic": "sales",
            "options": {"kafka.sasl.jaas.config": "user ${env:SHOP_PASSWORD}"},
        },
        parse={"format": "json", "schema": {"product_id": "long", "price": "double"}},
        relations={"products": "products.rel"},
        steps=[
            {"enrich": {"relation": "products", "on": "product_id", "algorithm": "meshjoin"}},
            {"add_columns": {"revenue": "price * 2"}},
            {"enrich": {"relation": "s3://bucket/stores.rel", "memory": "1MB"}},
        ],
        sink=ParquetSink(format="parquet", path="out"),
        memory="10MB",
    )
    found = read(tmp_path, GOOD)
    assert found.model_dump() == made.model_dump()
    assert found.packages == ("kafka",)
    assert found.place("out") == f"{tmp_path}/out"
    assert found.place("s3://bucket/a") == "s3://bucket/a"
    assert [found.memory_of(join) for join in found.joins()] == [10_000_000, "1MB"]
    with pytest.raises(PipelineError, match=r"(?m)^snk: unknown field.*Did you mean 'sink'"):
        ss.Pipeline(name="a", storage="s", source={"format": "rate"}, snk={})


def test_secrets_are_read_when_they_are_used_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = read(tmp_path, GOOD)
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    with pytest.raises(PipelineError, match="variable SHOP_PASSWORD is not set"):
        pipeline.secrets()
    monkeypatch.setenv("SHOP_PASSWORD", "s3cr3t")
    secrets = pipeline.secrets()
    (tmp_path / "key").write_text("fr0m-a-f1le\n")
    shown = secrets.text("${file:key}/${env:SHOP_PASSWORD}")
    assert shown == "fr0m-a-f1le/s3cr3t"
    assert secrets.hidden(f"login {shown} failed") == "login ***/*** failed"
    for text in (repr(pipeline), str(pipeline), pipeline.model_dump_json(), repr(secrets)):
        assert "s3cr3t" not in text
    with pytest.raises(PipelineError, match=r"Did you mean 'env'"):
        secrets.text("${evn:X}")
    with pytest.raises(PipelineError, match="no-such-file cannot be read"):
        secrets.text("${file:no-such-file}")


def test_the_example_is_a_pipeline_and_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.yml"
    assert main(["init", str(path)]) == 0
    assert path.read_text() == EXAMPLE
    assert Pipeline.read(path).name == "sales"
    assert main(["init", str(path)]) == 2
    assert "is there already" in capsys.readouterr().err


def test_the_schema_that_is_shipped_is_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema()
    assert json.loads(SCHEMA.read_text()) == schema(), (
        "write it: semistream run --schema > docs/pipeline.schema.json"
    )


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.yml"
    assert main(["run", str(path)]) == 2
    assert "`semistream init` writes a pipeline file" in capsys.readouterr().err
    path.write_text(GOOD.replace("kafka\n", "kafca\n"))
    assert main(["run", str(path), "--dry-run"]) == 2
    assert capsys.readouterr().err.startswith(f"semistream: {path}:4: source.format: expected")
    assert main(["run"]) == 2
    assert "name the pipeline file" in capsys.readouterr().err


def test_shed_needs_a_rate() -> None:
    Enrich(relation="r", shed="uniform", rate=10)
    with pytest.raises(ValueError, match="shed needs rate"):
        Enrich(relation="r", shed="uniform")


@pytest.mark.parametrize("path", ["sales", "hdfs://shop/sales", "2026-*/sales"])
def test_a_folder_that_is_not_there(tmp_path: Path, path: str) -> None:
    """It is reported before Spark starts; what only Spark can know is left to Spark."""
    file = tmp_path / "pipeline.yml"
    file.write_text(EXAMPLE.replace("path: sales ", f'path: "{path}" '))
    pipeline = Pipeline.read(file)
    if path == "sales":
        with pytest.raises(PipelineError, match=r"source\.path: there is no folder .*sales'"):
            pipeline.check_source()
        (tmp_path / "sales").mkdir()
    pipeline.check_source()
    file.write_text(file.read_text().replace("local[2]", "yarn").replace("sales", "elsewhere"))
    Pipeline.read(file).check_source()


def test_memory_is_divided_or_a_share_of_each_relation(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yml"
    twice = GOOD.replace(", memory: 1MB", "")
    for memory, each in (("10MB", 5_000_000), ("5%", "5%")):
        file.write_text(twice.replace("memory: 10MB", f"memory: {memory}"))
        pipeline = Pipeline.read(file)
        assert [pipeline.memory_of(join) for join in pipeline.joins()] == [each, each]
