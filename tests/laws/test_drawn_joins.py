"""The laws of joins of two to five streams that are drawn: of any shape of conditions, each stream under a window of any kind that is
joined, with ties, NULL, NaN, disorder, late rows, registration at any time, restarts at other numbers of tasks, and any order of probes.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adaptive.filters.ordering import OrderInForce
from headrace.runtime.epoch import task_orders
from headrace.runtime.plan.adaptive.join_orders import join_orders
from tests.examples import examples
from tests.laws.two_streams import check

RANGES = st.integers(0, 8).map(lambda halves: f"[RANGE {500 * halves} MILLISECONDS]")
COUNTS = st.integers(1, 4)
INSTANTS = st.one_of(
    RANGES,
    st.just("[NOW]"),
    st.just("[RANGE UNBOUNDED]"),
    st.just(""),
    COUNTS.map(lambda n: f"[ROWS {n}]"),
    COUNTS.map(lambda n: f"[PARTITION BY k ROWS {n}]"),
    COUNTS.map(lambda n: f"[PARTITION BY v ROWS {n}]"),
)
KEYS = ("k", "k", "k", "v", "d")
"""By which column a source is joined with one before it."""


@st.composite
def windows(draw: st.DrawFn, sources: int) -> list[str]:
    """A window for each source: all slide together, or none does."""
    if draw(st.booleans()):
        return [draw(INSTANTS) for _ in range(sources)]
    slide = draw(st.sampled_from((1, 2, 3)))
    if draw(st.booleans()):
        return [f"[RANGE TUMBLING {slide} SECONDS]"] * sources
    return [f"[RANGE {draw(st.integers(1, 5))} SECONDS SLIDE {slide} SECONDS]" for _ in range(sources)]


@st.composite
def joins(draw: st.DrawFn, fewest: int = 2) -> str:
    """A SELECT over streams that are joined with one another."""
    sources = draw(st.integers(fewest, 5), "sources")
    held = draw(windows(sources))
    text = f"{draw(st.sampled_from('ab'))} x0 {held[0]}"
    for number in range(1, sources):
        partner = draw(st.integers(0, number - 1))
        column = draw(st.sampled_from(KEYS))
        conditions = [f"x{number}.{column} = x{partner}.{column}"]
        conditions += draw(
            st.lists(
                st.sampled_from((f"x{number}.v <= x{partner}.v", f"x{number}.d <> x0.d", f"x{number}.v > 0")),
                max_size=1,
            )
        )
        if sources == 2 and draw(st.integers(0, 4)) == 0:
            conditions = [f"x1.v {draw(st.sampled_from(('<', '>=', '<>')))} x0.v"]
        text += f" JOIN {draw(st.sampled_from('ab'))} x{number} {held[number]} ON {' AND '.join(conditions)}"
    where = draw(st.sampled_from(("", "", " WHERE x0.v > 0", " WHERE x1.k = 'a' AND x0.d IS NOT NULL")))
    last = sources - 1
    listed = f"x0.k, x0.v, x1.v AS w, x{last}.d"
    heads = [
        f"SELECT {listed} FROM {text}{where}",
        f"SELECT x0.k, COUNT(*) AS n, SUM(x1.v) AS s, MAX(x{last}.d) AS m FROM {text}{where} GROUP BY x0.k",
        f"SELECT COUNT(*) AS n, MIN(x1.v + x0.v) AS m FROM {text}{where}",
        f"SELECT DISTINCT x{last}.v FROM {text}{where}",
    ]
    if not any("SLIDE" in window or "TUMBLING" in window for window in held):
        heads.append(f"SELECT ISTREAM({listed}) FROM {text}{where}")
        if any(window not in ("", "[RANGE UNBOUNDED]") for window in held):
            heads.append(f"SELECT DSTREAM({listed}) FROM {text}{where}")
    return draw(st.sampled_from(heads))


@examples(40)
@given(data=st.data())
def test_joins_of_any_shape_and_windows_answer_as_the_reference(data: st.DataObject) -> None:
    drawn = data.draw(st.randoms(use_true_random=False), "orders")

    def switched(manifest: Any) -> dict[str, OrderInForce]:
        recorded = join_orders(manifest)
        return {
            name: OrderInForce(tuple(drawn.sample(chosen.order, len(chosen.order))), drawn.choice((0.0, 1.0)))
            for name, chosen in recorded.items()
        }

    queries = {"first": data.draw(joins(), "first"), "of many": data.draw(joins(4), "of many")}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(task_orders, "join_orders", switched)
        check(queries, data, at_least=1)
