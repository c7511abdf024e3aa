"""EXPLAIN ADAPTIVE of a registered query: the orders of its conjunctions and of its joins over the newest epochs, the caches of joins and
the constraints that they find, from the home's log and manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from headrace.adaptive.constraints.partner_delays import PartnerBound
from headrace.adaptive.joins.join_trees import TreeGraph
from headrace.adaptive.settling.settled_order import NO_CHOICE, ChoiceTime
from headrace.catalog.catalog import Catalog, CatalogQuery
from headrace.catalog.definitions import JoinTree
from headrace.errors import UserError
from headrace.language.statements.statement import Form
from headrace.observation import CacheObservation, DelayObservation, FilterObservation, ProbeObservation
from headrace.operators.base.operator import Operator
from headrace.operators.joins.probing.probe_profiles import name_of_side
from headrace.operators.rows.filter_terms import Terms
from headrace.operators.rows.row_pipeline import RowStep, conjunctions_of
from headrace.planner.explain.adaptive.filter_orders import order_lines
from headrace.planner.explain.adaptive.hot_keys import hot_key_lines
from headrace.planner.explain.adaptive.join_caches import cache_lines
from headrace.planner.explain.adaptive.join_orders import probe_order_lines
from headrace.planner.explain.adaptive.join_trees import TreePeriod, tree_lines
from headrace.planner.explain.adaptive.partner_bounds import bound_lines, measured_join, proposal_lines
from headrace.planner.explain.adaptive.timeline import Track, timeline
from headrace.runtime.backfill.completeness import newest_plan
from headrace.runtime.home.home import Home
from headrace.runtime.introspection.epoch_log import last_lines
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.plan import derived_streams, union_streams
from headrace.runtime.plan.adaptive.filter_orders import filter_orders
from headrace.runtime.plan.adaptive.join_caches import join_caches
from headrace.runtime.plan.adaptive.join_orders import join_orders
from headrace.runtime.plan.adaptive.join_trees import graph_of, joins_of
from headrace.runtime.plan.adaptive.partner_bounds import JoinBounds, JoinEstimates, join_bounds
from headrace.runtime.plan.adaptive.spilled_rows import made_from_spill
from headrace.runtime.plan.adaptive.split_keys import split_keys
from headrace.store.logs.manifest import Manifest
from headrace.time import render_duration

EPOCHS = 1000
"""Lines of the log that are read: more than of EXPLAIN, since what has changed is of interest."""

Log: TypeAlias = Sequence[Mapping[str, Any]]
"""Lines of the log of epochs, oldest first."""
_Seen = TypeVar("_Seen", FilterObservation, ProbeObservation, CacheObservation, DelayObservation)


def explain_adaptive(home: Home, name: str, form: Form = "text") -> str:
    """The conjunctions of a query's operators, and the joins it reads, whose orders adapt; as SVG over time.

    Raises `UserError` when there is none of that name, or for another form.
    """
    if form == "dot":
        raise UserError(
            "EXPLAIN ADAPTIVE is no graph", remedy="Use AS SVG for its picture over time, or AS TEXT."
        )
    catalog = home.newest_catalog()
    standing, manifest = catalog.require_query(name), home.latest()
    plan = newest_plan(home, catalog)
    growing = standing.definition.growing_tree
    operators = [
        operator
        for operator_id, operator in plan.operators.items()
        if derived_streams.owner_of(operator_id) == standing.operator_id
        and (growing is None or derived_streams.tree_of(operator_id) != growing.number)
    ]
    log = last_lines(Path(home.store.root), EPOCHS)
    if form == "svg":
        tracks = [
            *_filter_tracks(operators, log),
            *_join_tracks(standing, operators, plan, catalog, log),
        ]
        return timeline(f"{standing.definition.name}: what was in force", tracks)
    lines = [
        *_filter_lines(operators, manifest, log),
        *_tree_lines(standing, graph_of(catalog, standing), operators, log),
        *_join_lines(operators, plan, manifest, log),
        *_constraint_lines(operators, plan, manifest, log),
        *_hot_key_lines(operators, plan, manifest, log),
    ]
    return "\n".join(lines) or (
        f"nothing in {name} adapts: an order matters to two or more conditions of WHERE, one of them costly "
        "(a Python function, a regular expression, IN over a relation), and to joins of three or more streams by one key; constraints "
        "are found by joins of windows, once 1000 pairs have been joined; hot keys of joins of streams are divided between tasks"
    )


def _filter_lines(
    operators: Sequence[Operator], manifest: Manifest, log: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    conjunctions = {
        terms.name: terms for operator in operators for terms in _conjunctions(operator.row_steps)
    }
    orders, history = filter_orders(manifest), _history(log, "filters", FilterObservation.of)
    shown = {condition for condition in conjunctions if condition in orders} or conjunctions.keys()
    for condition, terms in conjunctions.items():
        if condition in shown:
            next_order = orders[condition].order if condition in orders else terms.guessed_order
            yield from order_lines(terms, history.get(condition, []), next_order, _choices(log, condition))


def _choices(log: Sequence[Mapping[str, Any]], name: str) -> ChoiceTime:
    """What it took to choose an order in all epochs of the log."""
    spent = (ChoiceTime(*line["choices"][name]) for line in log if name in line.get("choices", {}))
    return reduce(ChoiceTime.plus, spent, NO_CHOICE)


def _filter_tracks(operators: Sequence[Operator], log: Log) -> Iterator[Track]:
    """Of each conjunction the orders of its terms."""
    names = {terms.name for operator in operators for terms in _conjunctions(operator.row_steps)}
    for name, seen in _history(log, "filters", FilterObservation.of).items():
        if name in names:
            orders = [(epoch, ", ".join(str(term + 1) for term in each.order)) for epoch, each in seen]
            yield Track(f"terms of {name[:8]}", orders)


def _join_tracks(
    standing: CatalogQuery, operators: Sequence[Operator], plan: EpochPlan, catalog: Catalog, log: Log
) -> Iterator[Track]:
    """The trees of a query's joins; and of each side of a join of three or more its orders, and whether it looked up a cache."""
    graph = graph_of(catalog, standing)
    trees = [tree for tree in standing.definition.join_trees if tree.since is not None]
    if graph is not None:
        in_force = [
            (0, graph.shown(graph.registered)),
            *((tree.since or 0, graph.shown(tree.groups)) for tree in trees),
        ]
        epochs = [line["epoch"] for line in log]
        yield Track(
            "joins", [(epoch, [shown for at, shown in in_force if at < epoch][-1]) for epoch in epochs]
        )
    orders = _history(log, "joins", ProbeObservation.of)
    caches = _history(log, "caches", lambda fields: CacheObservation(**fields))
    for join in (join for join in _joins(operators, plan) if len(join.joined_sides) > 2):
        for side, name in enumerate(join.joined_sides):
            others, key = (
                [*join.joined_sides[:side], *join.joined_sides[side + 1 :]],
                name_of_side(join.id, side),
            )
            yield Track(
                f"rows of {name} probe",
                [(epoch, ", ".join(others[at] for at in seen.order)) for epoch, seen in orders.get(key, [])],
            )
            looked_up = [
                (epoch, "a cache" if seen.lookups else "search") for epoch, seen in caches.get(key, [])
            ]
            if len({choice for _, choice in looked_up}) > 1:
                yield Track(f"rows of {name} look up", looked_up)


def _conjunctions(steps: tuple[RowStep, ...]) -> Iterator[Terms]:
    """Those of all steps, and of the steps below and above a window, wherever it is: each part is evaluated by itself."""
    for cut in range(max(1, len(steps))):
        for part in (steps[:cut], steps[cut:]):
            yield from (terms for _, terms in conjunctions_of(part).values())


def _tree_lines(
    standing: CatalogQuery, graph: TreeGraph | None, operators: Sequence[Operator], log: Log
) -> Iterator[str]:
    """The joins that a query's sources go through one after the other, if there are several, and their orders over the epochs."""
    definition, joins = standing.definition, [operator for operator in operators if operator.joined_sides]
    growing = definition.growing_tree
    why = (
        "sources of fewest rows first, as counted when it was registered"
        if definition.join_sizes
        else "as written"
    )
    periods, coming = list[TreePeriod](), ""
    if graph is not None:
        why = f"{why}, and then in an order that adapts"
        trees = [tree for tree in definition.join_trees if tree.since is not None] or [
            JoinTree(0, graph.registered, 0)
        ]
        ends = [*(tree.since for tree in trees[1:]), None]
        periods = [
            _tree_period(standing.operator_id, graph, *both, log) for both in zip(trees, ends, strict=True)
        ]
        if growing is not None:
            longest = render_duration(graph.longest)
            coming = (
                f"next: {graph.shown(growing.groups)}; its joins store rows since epoch {growing.number}, and it"
                f" comes into force when those from before it, {longest} long, have ended;"
                f" {growing.believed:,} rows believed, instead of {growing.instead:,}"
            )
    stages = [(join.joined_sides, _made(log, [join.id])) for join in joins]
    yield from tree_lines(stages, why, periods, coming)


def _tree_period(operator: str, graph: TreeGraph, tree: JoinTree, end: int | None, log: Log) -> TreePeriod:
    """What was measured of a tree, by the lines of the log in which its joins have figures."""
    *inner, outermost = joins_of(operator, tree, len(tree.groups))
    lines = [line for line in log if outermost in line["operators"]]
    made, rows = (
        _made(lines, inner),
        sum(
            line["operators"].get(name, {}).get("rows_kept", 0)
            for line in lines
            for name in (*inner, outermost)
        ),
    )
    measured = 1000 * made / (rows - made) if rows > made else None
    chosen = tree.number > 0
    believed = tree.believed if chosen else None
    return TreePeriod(graph.shown(tree.groups), (tree.since or 0) + 1, end, measured, believed, tree.instead)


def _made(log: Log, names: Sequence[str]) -> int:
    """The rows that some joins have made."""
    return sum(line["operators"].get(name, {}).get("results", 0) for line in log for name in names)


def _joins(operators: Sequence[Operator], plan: EpochPlan) -> list[Operator]:
    """The query's joins, and a shared one that it reads."""
    streams = (plan.streams[operator.stream] for operator in operators)
    results = (stream for stream in streams if stream.using == derived_streams.USING)
    read = [plan.operators[derived_streams.operator_of(stream)] for stream in results]
    return list({join.id: join for join in (*operators, *read) if join.joined_sides}.values())


def _constraint_lines(
    operators: Sequence[Operator], plan: EpochPlan, manifest: Manifest, log: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """The bounds that joins have found: in force, or as constraints to declare."""
    in_force, histories = join_bounds(manifest), _history(log, "delays", DelayObservation.of)
    for join in _joins(operators, plan):
        history = histories.get(join.id, [])
        if (made := made_from_spill(manifest, join.id)) > 0:
            yield f"join {join.id} has made {made:,} combinations with spilled rows, that constraints had finished"
        if not history and join.id not in in_force:
            continue
        works = (line["work"][f"state {join.id}"] for line in reversed(log) if _stores(line, join))
        work: Mapping[str, int] = next(works, {})
        measured = measured_join(join.joined_sides, history, join.longest_stored, work)
        if join.id in in_force or history[-1][1].uses:
            known = in_force.get(join.id, JoinBounds())
            yield from bound_lines(join.id, measured, known.bounds, (known.noticed, known.estimated))
            continue
        estimates, bounds = JoinEstimates(), tuple[PartnerBound, ...]()
        for _, seen in history:
            bounds = estimates.take(seen, join.longest_stored)
        yield from proposal_lines(join.id, measured, bounds, _clause_of(join, plan))


def _stores(line: Mapping[str, Any], join: Operator) -> bool:
    return f"state {join.id}" in line.get("work", {})


def _clause_of(join: Operator, plan: EpochPlan) -> Callable[[PartnerBound], str]:
    """What to declare for a bound of a join, where its sides are streams and its keys their columns."""
    inputs, keys = union_streams.inputs_of(plan.streams[join.stream]), join.joined_keys
    is_plain = len(inputs) == len(keys) == len(join.joined_sides)

    def clause(bound: PartnerBound) -> str:
        sides = [inputs[side] for side in (bound.parent, bound.child)] if is_plain else []
        if not sides or bound.within is None or any(side.stream.startswith("@") for side in sides):
            return ""
        columns = []
        for side, number in zip(sides, (bound.parent, bound.child), strict=True):
            names = {new: old for old, new in side.columns}
            columns.append(", ".join(names[key] for key in keys[number]))
        within = render_duration(bound.within) if bound.within else "0 SECONDS"
        parent, child = (side.stream for side in sides)
        texts = {
            "partner": f"({columns[0]}) REFERENCES {child} ({columns[1]}) WITHIN {within}",
            "clustered": f"CLUSTERED BY ({columns[0]}) WITHIN {within}",
            "ordered": f"ORDERED BY ({columns[0]}) WITHIN {within}",
            "unique": f"UNIQUE ({columns[0]})",
        }
        return f"CONSTRAINT {texts[bound.kind]} of {parent}"

    return clause


def _join_lines(
    operators: Sequence[Operator], plan: EpochPlan, manifest: Manifest, log: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """The orders and caches of joins of three sides or more."""
    joins = {join.id: join for join in _joins(operators, plan) if len(join.joined_sides) > 2}
    orders, history = join_orders(manifest), _history(log, "joins", ProbeObservation.of)
    caches = _history(log, "caches", lambda fields: CacheObservation(**fields))
    for join in joins.values():
        names = {side: name_of_side(join.id, side) for side in range(len(join.joined_sides))}
        histories = {side: history.get(name, []) for side, name in names.items()}
        chosen = {side: orders[name].order for side, name in names.items() if name in orders}
        yield from probe_order_lines(join.id, join.joined_sides, histories, chosen)
        looked_up = {side: caches.get(name, []) for side, name in names.items()}
        yield from cache_lines(join.joined_sides, looked_up, join_caches(manifest).get(join.id, {}))


def _hot_key_lines(
    operators: Sequence[Operator], plan: EpochPlan, manifest: Manifest, log: Log
) -> Iterator[str]:
    """The keys of joins whose rows are divided between tasks, and how even these are."""
    keys = split_keys(manifest)
    for join in _joins(operators, plan):
        loads = [(line["epoch"], line["loads"][join.id]) for line in log if join.id in line.get("loads", {})]
        yield from hot_key_lines(
            join.id, join.joined_sides, keys.get(join.id, ()), loads, _is_integer(join, plan)
        )


def _is_integer(join: Operator, plan: EpochPlan) -> bool | None:
    """Whether the key of a join is one column of integers; None where it has no key."""
    keys, fields = join.joined_keys, plan.streams[join.stream].schema.fields
    if keys and not any(keys):
        return None
    integers = {field.name for field in fields if field.type.is_integer}
    return bool(keys) and all(len(side) == 1 and side[0] in integers for side in keys)


def _history(
    log: Sequence[Mapping[str, Any]], kind: str, of: Callable[[Mapping[str, Any]], _Seen]
) -> dict[str, list[tuple[int, _Seen]]]:
    """By name, what was observed in each epoch, oldest first."""
    history: dict[str, list[tuple[int, _Seen]]] = {}
    for line in log:
        for name, fields in line.get(kind, {}).items():
            history.setdefault(name, []).append((line["epoch"], of(fields)))
    return history
