"""The law of caches of joins, as the whole engine answers: whatever sides look up whatever combinations in whatever epoch, answers are those
of the reference, also of queries that are registered later, paused and resumed, and over restarts.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.runtime.epoch import task_orders
from headrace.runtime.plan.adaptive.join_orders import join_orders
from tests.examples import examples
from tests.laws.test_many_joins import ADAPTING
from tests.laws.two_streams import check


def any_caches(drawn: Random) -> Callable[[Any], dict[str, dict[int, tuple[int, ...]]]]:
    """By manifest: for each join whose sides were observed, caches of any two or more other sides for some; mostly the same ones for some epochs."""

    def chosen(manifest: Any) -> dict[str, dict[int, tuple[int, ...]]]:
        found: dict[str, dict[int, tuple[int, ...]]] = {}
        for name, order in join_orders(manifest).items():
            join, _, side = name.rpartition("/")
            others = [other for other in range(len(order.order) + 1) if other != int(side)]
            if drawn.random() < 0.8:
                picked = (
                    others if drawn.random() < 0.7 else drawn.sample(others, drawn.randint(2, len(others)))
                )
                found.setdefault(join, {})[int(side)] = tuple(sorted(picked))
        return found

    return chosen


@examples(25)
@given(data=st.data())
def test_caches_that_are_added_and_dropped_at_every_epoch_never_change_the_answers(
    data: st.DataObject,
) -> None:
    drawn = data.draw(st.randoms(use_true_random=False), "caches")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(task_orders, "join_caches", any_caches(drawn))
        check(ADAPTING, data, at_least=2)
