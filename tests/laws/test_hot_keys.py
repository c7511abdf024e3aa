"""The law of hot keys, as the whole engine answers: whatever keys of joins of two to five streams are divided between tasks, from whatever epoch
on, by whatever side, in whatever order others are probed and with whatever caches, answers are those of the reference, also of queries that are
registered later, paused and resumed, and over restarts with another number of tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adaptive.joins.hot_keys import Division
from headrace.operators.base.group_codes import hashes
from headrace.operators.base.operator import Operator
from headrace.operators.joins.hot_keys.key_layouts import SplitKey
from headrace.operators.rows.sorted_rows import key_hashes
from headrace.runtime.epoch import task_orders
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.messages.task_messages import StateReceipt
from headrace.runtime.plan.adaptive import split_keys
from headrace.runtime.plan.adaptive.split_keys import SplitKeys, can_be_divided
from tests.examples import examples
from tests.laws import two_streams
from tests.laws.test_join_caches import any_caches
from tests.laws.test_many_joins import ADAPTING, CROSS, SHARED, R, _epochs_in_time
from tests.laws.two_streams import check

A, B = "a x [RANGE 3 SECONDS]", "b y [RANGE 4 SECONDS]"
TWO = {
    **SHARED,
    **{f"{name} without a key": query for name, query in CROSS.items()},
    "by an integer": f"SELECT x.k, y.k AS l, x.v FROM {A}, {B} WHERE x.v = y.v",
    "by two keys": f"SELECT x.k, y.d FROM {A}, {B} WHERE x.v = y.v AND x.k = y.k",
    "interval": "SELECT x.v, y.v AS w FROM a x JOIN b y ON x.k = y.k AND y.at BETWEEN x.at - INTERVAL 1 SECOND AND x.at + INTERVAL 2 SECONDS",
    "of one stream": "SELECT x.v, y.v AS w FROM a x [RANGE 2 SECONDS], a y [RANGE 3 SECONDS] WHERE x.k = y.k AND x.v < y.v",
}
MANY = {
    **ADAPTING,
    "three by an integer": f"SELECT x.k, y.k AS l, z.k AS m FROM a x {R[0]}, b y {R[1]}, a z {R[2]} WHERE x.v = y.v AND y.v = z.v",
    "four by an integer": f"SELECT x.k, u.k AS l FROM a x {R[0]}, b y {R[1]}, a z {R[2]}, b u {R[3]} WHERE x.v = y.v AND y.v = z.v"
    " AND u.v = z.v AND x.k <= y.k",
    "three without a key": f"SELECT x.v, y.v AS w, z.v AS u FROM a x {R[2]}, b y {R[2]}, a z [NOW]",
}


def _hashes() -> list[int]:
    texts = hashes(pa.array(["a", "b"]))
    numbers = hashes(pa.array([-1, 0, 1, 2], pa.int64()))
    both = key_hashes([pa.array([1, 1], pa.int64()), pa.array(["a", "b"])], 2)
    other = key_hashes([pa.array(["a", "b"]), pa.array([1, 1], pa.int64())], 2)
    doubles = hashes(pa.array([0.0, 1.5, float("nan")]))
    return [int(each) for part in (texts, numbers, both, other, doubles) for each in part]


KEYS = [0, *_hashes()]
"""Zero is that of rows without a key."""


@pytest.mark.parametrize("in_time", [False, True])
@pytest.mark.parametrize("queries", [TWO, MANY], ids=["two streams", "many"])
def test_keys_that_are_divided_and_put_together_at_every_epoch_never_change_the_answers(
    in_time: bool, queries: Mapping[str, str]
) -> None:
    counts = {"divided": 0, "former": 0, "ended": 0}

    @examples(30, counted=True)
    @given(data=st.data())
    def law(data: st.DataObject) -> None:
        drawn = data.draw(st.randoms(use_true_random=False), "layouts")
        left: dict[str, int] = {}

        def chosen(
            self: Any, join: Operator, plan: EpochPlan, keys: Sequence[SplitKey], loads: Any, seen: Any
        ) -> dict[int, Division]:
            """Any keys change to any division."""
            former = sum(len(key.former) for key in keys)
            counts["ended"] += max(0, left.get(join.id, 0) - former)
            counts["former"] += former
            if not can_be_divided(join, plan):
                return {}
            wanted = {
                key: Division(drawn.randrange(len(join.joined_sides)), drawn.choice((1, 2, 2, 3)))
                for key in KEYS
                if drawn.random() < 0.3
            }
            counts["divided"] += sum(division.parts > 1 for division in wanted.values())
            left[join.id] = former
            return wanted

        def loads(receipts: Sequence[StateReceipt], _: Any) -> dict[str, tuple[int, ...]]:
            return {name: () for receipt in receipts for name in receipt.operators}

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(SplitKeys, "chosen", chosen)
            patched.setattr(split_keys, "task_loads", loads)
            if in_time:
                patched.setattr(two_streams, "epochs", _epochs_in_time)
            if queries is MANY:
                patched.setattr(task_orders, "join_caches", any_caches(drawn))
            check(queries, data, at_least=2)

    law()
    assert counts["divided"] > 0
    assert counts["former"] > 0
    if in_time:
        assert counts["ended"] > 0
