"""The laws of joins of many streams, and of many queries that share a join, as the whole engine answers them.

Queries of `SHARED` have one graph, so the second that is registered founds a shared join, and all later ones read it: with
windows, conditions and aggregates of their own, in another order of FROM, registered and paused at any time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.adaptive.filters.ordering import OrderInForce
from headrace.catalog.catalog import Catalog
from headrace.operators.sharing import family_rows
from headrace.planner.joins import shared_join
from headrace.planner.joins.stream_joins import sizes_of
from headrace.runtime.epoch import task_orders
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.plan.adaptive.join_orders import join_orders
from headrace.runtime.plan.adaptive.join_trees import (
    JoinTrees,
    entry_of,
    graph_of,
    growing_trees,
    is_complete,
    joins_of,
)
from headrace.runtime.statements import change_batch
from headrace.store.logs.manifest import Manifest
from headrace.time import SECOND
from tests.examples import examples
from tests.laws import two_streams
from tests.laws.two_streams import Row, check, rows

A, B = "a x [RANGE 3 SECONDS]", "b y [RANGE 4 SECONDS]"
SHORT = "a x [RANGE 2500 MILLISECONDS], b y [RANGE 2200 MILLISECONDS]"
SHARED = {
    "pairs": f"SELECT x.k, x.v, y.v AS w FROM {A}, {B} WHERE x.k = y.k",
    "shorter": f"SELECT x.v, y.v AS w FROM {SHORT} WHERE x.k = y.k AND x.v <= y.v",
    "swapped": "SELECT p.v, q.v AS w FROM b q [RANGE 3 SECONDS], a p [RANGE 3 SECONDS] WHERE q.k = p.k AND p.v > 0",
    "groups": f"SELECT x.k, COUNT(*) AS n, MIN(y.v) AS m FROM {A}, {B} WHERE x.k = y.k GROUP BY x.k",
    "short groups": f"SELECT x.k, COUNT(*) AS n, MIN(y.v) AS m FROM {SHORT} WHERE x.k = y.k GROUP BY x.k",
    "one row": f"SELECT COUNT(*) AS n, SUM(x.v) AS s FROM {A}, {B} WHERE x.k = y.k AND x.v > 0",
    "tumbling": "SELECT x.k, COUNT(*) AS n, MAX(y.d) AS t FROM a x [RANGE TUMBLING 4 SECONDS]"
    " JOIN b y [RANGE TUMBLING 4 SECONDS] ON x.k = y.k GROUP BY x.k",
    "sliding": "SELECT x.v, y.v AS w, y.window_end AS e FROM a x [RANGE 3 SECONDS SLIDE 2 SECONDS],"
    " b y [RANGE 4 SECONDS SLIDE 2 SECONDS] WHERE x.k = y.k AND x.v < y.v",
    "new": f"SELECT ISTREAM(x.k, x.v, y.v AS w) FROM {A}, {B} WHERE x.k = y.k",
    "gone": f"SELECT DSTREAM(x.k) FROM {SHORT} WHERE x.k = y.k AND x.v <> y.v",
    "until before now": f"SELECT x.v, y.v AS w FROM {A}, {B} WHERE x.k = y.k BEGIN NOW - INTERVAL 9 SECONDS END NOW - INTERVAL"
    " 500 MILLISECONDS",
    "groups until before now": f"SELECT x.k, COUNT(*) AS n FROM {A}, {B} WHERE x.k = y.k"
    " BEGIN NOW - INTERVAL 4 SECONDS END NOW - INTERVAL 1 SECOND GROUP BY x.k",
    "distinct": f"SELECT DISTINCT x.k FROM {A}, {B} WHERE x.k = y.k",
    "failing": f"SELECT x.v, y.v AS w FROM {A}, {B} WHERE x.k = y.k AND 6 / y.v > x.v",
    "named": f"SELECT name, COUNT(*) AS n FROM {A} JOIN {B} ON x.k = y.k JOIN names ON y.k = names.k GROUP BY name",
}
NARROW = {
    "above": f"SELECT x.k, x.v, y.v AS w FROM {A}, {B} WHERE x.k = y.k AND x.v > 0",
    "one value": f"SELECT y.v AS w FROM {A}, {B} WHERE x.k = y.k AND x.v = 1",
    "between": f"SELECT x.v, y.v AS w FROM {A}, {B} WHERE x.k = y.k AND x.v BETWEEN 0 AND 1 AND y.v < 2",
    "of a text": f"SELECT x.k, COUNT(*) AS n FROM {A}, {B} WHERE x.k = y.k AND y.k = 'a' AND x.v > 0 GROUP BY x.k",
    "another text": f"SELECT x.v FROM {A}, {B} WHERE x.k = y.k AND y.k = 'b' AND x.v > 0",
    "or": f"SELECT x.v, y.v AS w FROM {A}, {B} WHERE x.k = y.k AND (x.v = 1 OR x.v = 2) AND y.v IN (0, 2)",
    "or nothing": f"SELECT x.v, y.v AS w FROM {A}, {B} WHERE x.k = y.k AND (x.v > 0 OR x.v IS NULL)",
    "one row": f"SELECT COUNT(*) AS n, SUM(x.v) AS s FROM {A}, {B} WHERE x.k = y.k AND x.v > 0 AND y.v < x.v",
    "sliding": "SELECT x.v, y.v AS w, y.window_end AS e FROM a x [RANGE 3 SECONDS SLIDE 2 SECONDS],"
    " b y [RANGE 4 SECONDS SLIDE 2 SECONDS] WHERE x.k = y.k AND x.v >= 1 AND y.v >= 0",
    "failing": f"SELECT x.v, y.v AS w FROM {A}, {B} WHERE x.k = y.k AND x.v > 0 AND 6 / y.v > x.v",
    "all": SHARED["pairs"],
}
CROSS = {
    "pairs": f"SELECT x.k, x.v, y.v AS w FROM {A}, {B}",
    "shorter": f"SELECT x.v, y.v AS w FROM {SHORT}",
    "count": f"SELECT COUNT(*) AS n, MAX(y.v - x.v) AS m FROM {A}, {B}",
    "sliding": "SELECT x.v, y.v AS w, y.window_end AS e FROM a x [RANGE 3 SECONDS SLIDE 2 SECONDS], b y [RANGE 4 SECONDS SLIDE"
    " 2 SECONDS]",
}
R = ("[RANGE 4 SECONDS]", "[RANGE 3 SECONDS]", "[RANGE 2 SECONDS]", "[RANGE 5 SECONDS]")
FOUR = f"a x {R[0]} JOIN b y {R[1]} ON x.k = y.k JOIN a z {R[2]} ON z.k = y.k AND z.v = y.v JOIN b u {R[3]} ON u.k = x.k"
MANY = {
    "three by one key": f"SELECT x.v, y.v AS w, z.v AS u FROM a x {R[0]} JOIN b y {R[1]} ON x.k = y.k"
    f" JOIN a z {R[2]} ON z.k = y.k AND z.v > x.v",
    "four": f"SELECT x.k, COUNT(*) AS n, SUM(u.v) AS s FROM {FOUR} GROUP BY x.k",
    "five": f"SELECT COUNT(*) AS n FROM {FOUR} JOIN b t [NOW] ON t.k = y.k AND t.v = x.v",
    "two keys": f"SELECT x.v, y.d FROM a x {R[0]} JOIN b y {R[1]} ON x.k = y.k AND x.v = y.v"
    f" JOIN a z {R[2]} ON z.k = y.k AND z.v = x.v",
    "chain": f"SELECT x.k, z.k AS l FROM a x {R[0]} JOIN b y {R[1]} ON x.k = y.k JOIN a z {R[2]} ON z.v = y.v",
    "tree": f"SELECT x.k, COUNT(*) AS n FROM a x {R[0]} JOIN b y {R[1]} ON x.k = y.k JOIN a z {R[2]} ON z.k = x.k"
    f" JOIN b u {R[2]} ON u.v = z.v JOIN a t {R[2]} ON t.v = u.v WHERE u.k = 'a' AND t.k = 'b' GROUP BY x.k",
    "later key first": f"SELECT x.v, z.v AS u FROM a x {R[2]} JOIN b y {R[2]} ON x.v < y.v JOIN a z {R[2]} ON z.k = y.k"
    f" JOIN b t {R[2]} ON t.k = z.k",
    "not a number": f"SELECT x.v, y.v AS w, z.v AS u FROM a x {R[0]} JOIN b y {R[1]} ON x.d = y.d"
    f" JOIN a z {R[2]} ON z.d = x.d",
    "sliding": "SELECT x.k, COUNT(*) AS n FROM a x [RANGE 4 SECONDS SLIDE 2 SECONDS] JOIN b y [RANGE 3 SECONDS SLIDE"
    " 2 SECONDS] ON x.k = y.k JOIN a z [RANGE 2 SECONDS SLIDE 2 SECONDS] ON z.k = y.k GROUP BY x.k",
    "tumbling": "SELECT x.v, y.v AS w, z.v AS u FROM a x [RANGE TUMBLING 4 SECONDS] JOIN b y [RANGE TUMBLING 4 SECONDS]"
    " ON x.k = y.k JOIN b z [RANGE TUMBLING 4 SECONDS] ON z.k = x.k",
    "bare": "SELECT x.v, y.v AS w FROM a x JOIN b y ON x.k = y.k AND x.v = 1 JOIN a z ON z.k = x.k AND z.v = 2",
}
ADAPTING = {
    name: MANY[name]
    for name in (
        "three by one key",
        "four",
        "five",
        "two keys",
        "not a number",
        "sliding",
        "tumbling",
        "bare",
    )
}
ADAPTING["three shorter"] = (
    "SELECT x.v, y.v AS w, z.v AS u FROM a x [RANGE 3 SECONDS] JOIN b y [RANGE 2500 MILLISECONDS] ON x.k = y.k"
    " JOIN a z [RANGE 1500 MILLISECONDS] ON z.k = y.k AND z.v < x.v"
)
"""With "three by one key" it reads a shared join of three sides."""
TREES = {name: MANY[name] for name in ("chain", "tree", "later key first")}
TREES["star"] = (
    f"SELECT x.v, y.v AS w, z.k AS l, u.k AS m FROM a x {R[0]} JOIN b y {R[1]} ON x.k = y.k JOIN b z {R[3]} ON z.v = x.v"
    f" JOIN a u {R[0]} ON u.d = x.d"
)
TREES["count"] = (
    f"SELECT COUNT(*) AS n, SUM(z.v) AS s FROM a x {R[0]} JOIN b y {R[1]} ON x.k = y.k JOIN a z {R[2]} ON z.v = y.v"
)
TREES["grouped star"] = (
    f"SELECT x.k, COUNT(*) AS n, MAX(u.v) AS s FROM a x {R[0]} JOIN b y {R[1]} ON x.k = y.k AND y.v >= x.v"
    f" JOIN b z {R[3]} ON z.v = x.v JOIN a u {R[2]} ON u.d = x.d GROUP BY x.k"
)


@examples(20)
@given(data=st.data())
def test_queries_that_share_a_join_answer_as_each_alone(data: st.DataObject) -> None:
    """Their rows are made one query after the other, or for all of a family in one pass."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(family_rows, "MOST_SEPARATE_FILTERS", data.draw(st.sampled_from((0, 12)), "filters"))
        check(SHARED, data, at_least=3)


@examples(10)
@given(data=st.data())
def test_cross_joins_that_are_shared_answer_as_each_alone(data: st.DataObject) -> None:
    check(CROSS, data, at_least=3)


@examples(20)
@given(data=st.data())
def test_queries_that_share_the_rows_that_they_have_in_common_answer_as_each_alone(
    data: st.DataObject,
) -> None:
    """A shared join requires what its founder does, so some of the others read another one."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shared_join, "FEWEST_ALIKE", 1)
        check(NARROW, data, at_least=4)


@examples(20)
@given(data=st.data())
def test_joins_of_three_to_five_streams_answer_as_the_reference(data: st.DataObject) -> None:
    check(MANY, data)


@examples(25)
@given(data=st.data())
def test_orders_of_probes_that_switch_at_every_epoch_never_change_the_answers(data: st.DataObject) -> None:
    drawn = data.draw(st.randoms(use_true_random=False), "orders")

    def switched(manifest: Any) -> dict[str, OrderInForce]:
        recorded = join_orders(manifest)
        return {
            name: OrderInForce(tuple(drawn.sample(chosen.order, len(chosen.order))), drawn.choice((0.0, 1.0)))
            for name, chosen in recorded.items()
        }

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(task_orders, "join_orders", switched)
        check(ADAPTING, data, at_least=2)


@st.composite
def _epochs_in_time(draw: st.DrawFn) -> list[tuple[list[Row], list[Row]]]:
    """Epochs of which each begins three seconds after the one before: rows leave windows while others arrive. Each stream advances."""
    drawn = draw(
        st.lists(
            st.tuples(st.lists(rows(), max_size=4), st.lists(rows(), max_size=4)), min_size=6, max_size=9
        )
    )
    mark: Row = {"k": None, "v": None, "d": None, "at": 4 * SECOND}
    return [
        tuple(
            [{**row, "at": row["at"] // 2 + 3 * number * SECOND} for row in [*part, mark]] for part in epoch
        )
        for number, epoch in enumerate(drawn)
    ]


def test_trees_of_joins_that_switch_while_they_run_never_change_the_answers() -> None:
    """At any epoch another tree of any query grows, is given up, or comes into force once it has all rows."""
    switched = Counter[str]()

    @examples(30, counted=True)
    @given(data=st.data())
    def law(data: st.DataObject) -> None:
        drawn, decided_at = data.draw(st.randoms(use_true_random=False), "trees"), [0]

        def entries(
            _: JoinTrees, manifest: Manifest, catalog: Catalog, plan: EpochPlan
        ) -> list[dict[str, Any]]:
            logged, rows_taken = [], manifest.facts.get("rows", 0)
            if rows_taken == decided_at[-1]:
                return []  # a change is an epoch too
            decided_at.append(rows_taken)
            for query in catalog.queries.values():
                definition, graph = query.definition, graph_of(catalog, query)
                if graph is None or definition.paused or query.operator_id not in manifest.operators:
                    continue
                growing, trees = definition.growing_tree, definition.join_trees
                if growing is None:
                    if manifest.operators[query.operator_id].follows and drawn.random() < 0.8:
                        tree = drawn.choice(list(graph.trees()))
                        trees = growing_trees(definition, graph.registered, tree, manifest.epoch)
                elif is_complete(
                    manifest,
                    plan,
                    query.operator_id,
                    joins_of(query.operator_id, growing, len(growing.groups)),
                    graph,
                ):
                    trees = (*trees[:-1], replace(growing, since=manifest.epoch))
                    switched["in force"] += 1
                elif drawn.random() < 0.03:
                    trees = trees[:-1]
                    switched["given up"] += 1
                if trees != definition.join_trees:
                    logged.append(entry_of(definition, trees))
            return logged

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(JoinTrees, "entries", entries)
            patched.setattr(two_streams, "epochs", _epochs_in_time)
            check(TREES, data)

    law()
    assert switched["in force"] > 0
    assert switched["given up"] > 0, switched


@examples(20)
@given(data=st.data())
def test_the_order_in_which_several_joins_join_their_sources_never_changes_the_answers(
    data: st.DataObject,
) -> None:
    drawn = data.draw(st.randoms(use_true_random=False), "sizes")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            change_batch, "sizes_of", lambda query, _: sizes_of(query, lambda _: drawn.randrange(1, 1 << 20))
        )
        check(TREES, data)
