"""The law of everything that adapts at once, as the whole engine answers: orders of conditions, orders of probes and caches of joins switch at random
at every epoch, and answers and rejects are those of the reference, over restarts and other numbers of tasks.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adaptive.filters.ordering import OrderInForce
from headrace.runtime.epoch import task_orders
from headrace.runtime.plan.adaptive.filter_orders import filter_orders
from headrace.runtime.plan.adaptive.join_orders import join_orders
from headrace.store.logs.manifest import Manifest
from tests.examples import examples
from tests.laws.test_many_joins import ADAPTING, R
from tests.laws.two_streams import check

COSTLY = "x.k LIKE '%a' AND x.k LIKE 'a%' AND 6 / x.v > 1"
THREE = f"FROM a x {R[0]} JOIN b y {R[1]} ON x.k = y.k JOIN a z {R[2]} ON z.k = y.k WHERE {COSTLY}"
QUERIES = {
    **ADAPTING,
    "costly": f"SELECT x.v, z.v AS u {THREE}",
    "costly too": f"SELECT x.k, COUNT(*) AS n {THREE} AND y.k LIKE '_' AND y.k LIKE '%a' GROUP BY x.k",
}


def test_answers_are_those_of_the_reference_whatever_switches_at_whatever_epoch() -> None:
    switched = Counter[str]()

    @examples(30, counted=True)
    @given(data=st.data())
    def law(data: st.DataObject) -> None:
        drawn = data.draw(st.randoms(use_true_random=False), "switches")

        def orders(manifest: Manifest) -> dict[str, OrderInForce]:
            return _shuffled(join_orders(manifest), drawn, switched, "probes")

        def conditions(manifest: Manifest) -> dict[str, OrderInForce]:
            return _shuffled(filter_orders(manifest), drawn, switched, "conditions")

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(task_orders, "join_orders", orders)
            patched.setattr(task_orders, "filter_orders", conditions)
            patched.setattr(task_orders, "join_caches", lambda manifest: _caches(manifest, drawn, switched))
            check(QUERIES, data, at_least=4)

    law()
    assert min(switched[kind] for kind in ("probes", "conditions", "caches")) > 20, switched


def _shuffled(
    recorded: dict[str, OrderInForce], drawn: Random, switched: Counter[str], kind: str
) -> dict[str, OrderInForce]:
    """Any orders of what is recorded, with all rows sampled or none."""
    switched[kind] += len(recorded)
    return {
        name: OrderInForce(tuple(drawn.sample(chosen.order, len(chosen.order))), drawn.choice((0.0, 1.0)))
        for name, chosen in recorded.items()
    }


def _caches(manifest: Manifest, drawn: Random, switched: Counter[str]) -> dict[str, Any]:
    """For some sides caches of any two or more others."""
    found: dict[str, dict[int, tuple[int, ...]]] = {}
    for name, order in join_orders(manifest).items():
        join, _, side = name.rpartition("/")
        others = [other for other in range(len(order.order) + 1) if other != int(side)]
        if drawn.random() < 0.7:
            picked = drawn.sample(others, drawn.randint(2, len(others)))
            found.setdefault(join, {})[int(side)] = tuple(sorted(picked))
            switched["caches"] += 1
    return found
