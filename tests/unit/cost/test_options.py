"""The costs of options in the model that `auto` chooses by."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.advice.auto import SelfTuningJoin, make_join
from semistream.advice.history import History
from semistream.cost.factors import CostFactors
from semistream.cost.options import LIKENESS_S, PREDICATE_S, condition_s
from semistream.relation.device import EmulatedDevice
from semistream.spec import resolve
from tests.scratch import new_folder


def test_auto_knows_what_a_condition_costs() -> None:
    """Two rows a key: its prediction is longer by two checks a tuple."""
    condition = [ss.similar("t", "text", by="edit"), "r.v >= 0"]
    keys = np.arange(20_000)
    table = pa.table({"k": keys // 2, "v": keys, "text": ["abcdef"] * len(keys)})
    relation = ss.build_relation(table, new_folder(), key="k", partitions=1, page_size="4KB")
    stream = pa.table({"k": keys % 10_000, "t": ["abcdef"] * len(keys)})
    factors = CostFactors.of_device(*EmulatedDevice.named("ssd").costs)
    predicted_s = []
    for checked in (None, condition):
        about: dict[str, Any] = {"columns": ["v", "text"], "condition": checked}
        spec = resolve(relation, stream.schema, **about)
        more: dict[str, Any] = {"factors": factors, "history": History()}
        operator = make_join("auto", relation, spec, 600_000, stream_rows=len(keys), **more)
        assert isinstance(operator, SelfTuningJoin)
        for _ in operator.join(stream.to_batches(max_chunksize=4_000)):
            pass
        option = operator.changes[0].option
        assert option is not None
        predicted_s.append(1 / option.speed)
    pair_s = LIKENESS_S + PREDICATE_S
    assert condition_s(spec.condition, 2.0) == pytest.approx(2 * pair_s)
    assert predicted_s[1] - predicted_s[0] == pytest.approx(2 * pair_s, rel=0.4)
