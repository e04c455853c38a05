from pathlib import Path

import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import ColumnError, KeyTypeError, OptionError
from semistream.spec import JoinSpec, On, resolve


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    table = pa.table({"product_id": [1], "name": ["pen"], "Price": [3], "weight": [0.5]})
    return ss.build_relation(table, tmp_path_factory.mktemp("r") / "p.rel", key="product_id")


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    table = pa.table({"shop": ["a"], "product": [1], "amount": [7]})
    folder = tmp_path_factory.mktemp("r") / "s.rel"
    return ss.build_relation(table, folder, key=["shop", "product"])


SALES = pa.schema([("product_id", pa.int64()), ("quantity", pa.int32())])


def names(spec: JoinSpec) -> list[str]:
    return list(spec.output_schema.names)


@pytest.mark.parametrize(
    "on", [None, "product_id", ["product_id"], ("product_id",), {"product_id": "product_id"}]
)
def test_ways_to_name_the_key(products: ss.Relation, on: On | None) -> None:
    spec = resolve(products, SALES, on=on)
    assert spec.stream_key == ("product_id",)
    assert spec.columns == ("name", "Price", "weight")
    assert names(spec) == ["product_id", "quantity", "name", "Price", "weight"]


def test_key_of_another_name(products: ss.Relation) -> None:
    sales = pa.schema([("quantity", pa.int32()), ("id", pa.int64())])
    spec = resolve(products, sales, on={"id": "product_id"})
    assert spec.stream_key == ("id",)
    assert spec.stream_key_indexes == [1]


def test_composite_keys_come_in_the_relations_order(stock: ss.Relation) -> None:
    sales = pa.schema([("p", pa.int64()), ("s", pa.string())])
    spec = resolve(stock, sales, on={"p": "product", "s": "shop"})
    assert spec.stream_key == ("s", "p")
    assert spec.stream_key_indexes == [1, 0]


@pytest.mark.parametrize(
    "on", ["shop", ["shop"], ["shop", "amount"], ["shop", "product", "amount"]]
)
def test_on_must_be_the_whole_key(stock: ss.Relation, on: On) -> None:
    sales = pa.schema([("shop", pa.string()), ("product", pa.int64()), ("amount", pa.int64())])
    with pytest.raises(ColumnError, match=r"key is \(shop, product\)"):
        resolve(stock, sales, on=on)


def test_two_columns_for_one_key_column(stock: ss.Relation) -> None:
    sales = pa.schema([("a", pa.string()), ("b", pa.string()), ("product", pa.int64())])
    with pytest.raises(ColumnError, match="name each key column once"):
        resolve(stock, sales, on={"a": "shop", "b": "shop", "product": "product"})


def test_key_missing_from_the_stream(products: ss.Relation) -> None:
    sales = pa.schema([("prodct_id", pa.int64())])
    with pytest.raises(ColumnError, match=r"not in the stream.* Did you mean 'prodct_id'\?"):
        resolve(products, sales)


def test_key_missing_from_the_relation(products: ss.Relation) -> None:
    with pytest.raises(ColumnError, match=r"not in the relation.* Did you mean 'product_id'\?"):
        resolve(products, SALES, on={"product_id": "prodct_id"})


def test_added_column_missing(products: ss.Relation) -> None:
    with pytest.raises(ColumnError, match=r"'nme' is not in the relation.* Did you mean 'name'\?"):
        resolve(products, SALES, columns=["nme"])


def test_key_of_another_type(products: ss.Relation) -> None:
    with pytest.raises(KeyTypeError, match="'product_id' of the stream has type string"):
        resolve(products, pa.schema([("product_id", pa.string())]))


def test_names_are_compared_to_the_letter(products: ss.Relation) -> None:
    sales = pa.schema([("PRODUCT_ID", pa.int64())])
    with pytest.raises(ColumnError, match="Did you mean 'PRODUCT_ID'"):
        resolve(products, sales)
    with pytest.raises(ColumnError, match="Did you mean 'Price'"):
        resolve(products, SALES, columns=["price"])


def test_names_compared_as_spark_does(products: ss.Relation) -> None:
    sales = pa.schema([("PRODUCT_ID", pa.int64())])
    spec = resolve(products, sales, columns=["price"], case_sensitive=False)
    assert spec.stream_key == ("PRODUCT_ID",)
    assert spec.columns == ("Price",)


def test_ambiguous_names(products: ss.Relation) -> None:
    sales = pa.schema([("product_id", pa.int64()), ("Product_ID", pa.int64())])
    assert resolve(products, sales).stream_key == ("product_id",)
    with pytest.raises(ColumnError, match="ambiguous in the stream: it has product_id, Product_ID"):
        resolve(products, sales, case_sensitive=False)


def test_a_key_that_the_stream_has_twice(products: ss.Relation) -> None:
    sales = pa.schema([("product_id", pa.int64()), ("product_id", pa.int64())])
    with pytest.raises(ColumnError, match="ambiguous"):
        resolve(products, sales)


def test_chosen_columns_in_the_order_asked_for(products: ss.Relation) -> None:
    spec = resolve(products, SALES, columns=["weight", "name"])
    assert names(spec) == ["product_id", "quantity", "weight", "name"]
    assert resolve(products, SALES, columns="name").columns == ("name",)
    assert resolve(products, SALES, columns=[]).columns == ()


def test_renamed_columns(products: ss.Relation) -> None:
    spec = resolve(products, SALES, columns={"name": "product_name", "product_id": "key"})
    assert spec.columns == ("name", "product_id")
    assert names(spec) == ["product_id", "quantity", "product_name", "key"]


NAMED = pa.schema([("product_id", pa.int64()), ("name", pa.string())])


def test_a_key_that_only_the_stream_has(products: ss.Relation) -> None:
    sales = pa.schema([("item", pa.int64())])
    message = r"on names 'item', .* its key is \(product_id\)\. .*on=\{'item': 'product_id'\}"
    with pytest.raises(ColumnError, match=message):
        resolve(products, sales, on="item")
    assert resolve(products, sales, on={"item": "product_id"}).stream_key == ("item",)
    with pytest.raises(ColumnError, match=r"Did you mean 'product_id'\?"):
        resolve(products, SALES, on="prodct_id")


def test_a_clash_is_an_error(products: ss.Relation) -> None:
    with pytest.raises(
        ColumnError, match=r"'name' would appear twice.*suffix='_r', which makes it 'name_r'"
    ):
        resolve(products, NAMED)


def test_a_clash_when_case_does_not_count(products: ss.Relation) -> None:
    sales = pa.schema([("product_id", pa.int64()), ("PRICE", pa.int64())])
    assert names(resolve(products, sales, columns=["Price"])) == ["product_id", "PRICE", "Price"]
    with pytest.raises(ColumnError, match="'Price' would appear twice"):
        resolve(products, sales, columns=["Price"], case_sensitive=False)


def test_a_suffix_settles_clashes_and_only_those(products: ss.Relation) -> None:
    spec = resolve(products, NAMED, suffix="_r")
    assert spec.columns == ("name", "Price", "weight")
    assert names(spec) == ["product_id", "name", "name_r", "Price", "weight"]


def test_a_suffix_that_clashes_again(products: ss.Relation) -> None:
    sales = pa.schema([*NAMED, ("name_r", pa.string())])
    with pytest.raises(ColumnError, match=r"'name_r' would appear twice.*Pass another suffix"):
        resolve(products, sales, suffix="_r")


def test_renaming_settles_a_clash(products: ss.Relation) -> None:
    spec = resolve(products, NAMED, columns={"name": "label"})
    assert names(spec) == ["product_id", "name", "label"]


def test_two_columns_renamed_alike(products: ss.Relation) -> None:
    with pytest.raises(ColumnError, match="'x' would appear twice"):
        resolve(products, SALES, columns={"name": "x", "weight": "x"})


@pytest.mark.parametrize(("how", "hint"), [("iner", "'inner'"), ("lift", "'left'"), ("outer", "")])
def test_unknown_how(products: ss.Relation, how: str, hint: str) -> None:
    with pytest.raises(OptionError, match=f"inner, left, semi, anti; got '{how}'.*{hint}"):
        resolve(products, SALES, how=how)


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_semi_and_anti_add_nothing(products: ss.Relation, how: str) -> None:
    spec = resolve(products, NAMED, how=how)
    assert spec.columns == ()
    assert spec.output_schema == NAMED


def test_added_columns_are_nullable(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.int64(), nullable=False)]
    )
    relation = ss.build_relation(pa.table([[1], [2]], schema=schema), tmp_path, key="k")
    spec = resolve(relation, pa.schema([pa.field("k", pa.int64(), nullable=False)]))
    assert spec.output_schema.field("v").nullable
    assert not spec.output_schema.field("k").nullable


def test_assembling(products: ss.Relation) -> None:
    spec = resolve(products, SALES, columns=["name"])
    sales = [pa.array([1, 2]), pa.array([5, 6], pa.int32())]
    assert spec.assemble(sales, [pa.array(["pen", "ink"])], 2).to_pylist() == [
        {"product_id": 1, "quantity": 5, "name": "pen"},
        {"product_id": 2, "quantity": 6, "name": "ink"},
    ]
    assert spec.assemble(sales, None, 2).column("name").to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("spark", "how"),
    [
        ("left_outer", "left"),
        ("leftouter", "left"),
        ("LEFT", "left"),
        ("left_semi", "semi"),
        ("leftsemi", "semi"),
        ("left_anti", "anti"),
        ("leftanti", "anti"),
        ("Inner", "inner"),
    ],
)
def test_sparks_names_of_joins(products: ss.Relation, spark: str, how: str) -> None:
    assert resolve(products, SALES, how=spark) == resolve(products, SALES, how=how)


@pytest.mark.parametrize("how", ["full", "right_outer", "cross", ""])
def test_other_joins_are_refused(products: ss.Relation, how: str) -> None:
    with pytest.raises(OptionError, match="how must be one of inner, left, semi, anti"):
        resolve(products, SALES, how=how)
