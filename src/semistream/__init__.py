"""Semistream: join a fast stream with a master table too big for memory, within a budget.

::

    import semistream as ss

    products = ss.build_relation(source, "products.rel", key="product_id")   # R, once
    enriched = ss.enrich(sales, products, on="product_id", memory="64MB")     # on Spark
    batches  = ss.join(batches, products, on="product_id", memory="20MB")     # without Spark
"""

from typing import TYPE_CHECKING, Any

from semistream import errors
from semistream.embedded import join
from semistream.relation import Relation, build_relation

if TYPE_CHECKING:
    from semistream.spark import enrich, enrich_with

__version__ = "0.1.0"
__all__ = ["Relation", "build_relation", "enrich", "enrich_with", "errors", "join"]


def __getattr__(name: str) -> Any:
    """Import what needs Spark only when it is used."""
    if name in ("enrich", "enrich_with"):
        from semistream import spark

        return getattr(spark, name)
    raise AttributeError(f"module 'semistream' has no attribute {name!r}")
