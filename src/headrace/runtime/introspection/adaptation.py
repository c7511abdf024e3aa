"""EXPLAIN ADAPTIVE of a registered query: the orders of its conjunctions and of its joins over the newest epochs, the caches of joins and
the constraints that they find, from the home's log and manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from headrace.adaptive.constraints.partner_delays import PartnerBound
from headrace.observation import CacheObservation, DelayObservation, FilterObservation, ProbeObservation
from headrace.operators.base.operator import Operator
from headrace.operators.joins.probing.probe_profiles import name_of_side
from headrace.operators.rows.filter_terms import Terms
from headrace.operators.rows.row_pipeline import RowStep, conjunctions_of
from headrace.planner.explain.filter_orders import order_lines
from headrace.planner.explain.join_caches import cache_lines
from headrace.planner.explain.join_orders import probe_order_lines
from headrace.planner.explain.partner_bounds import bound_lines, measured_join, proposal_lines
from headrace.planner.explain.plan_graph import rows_of
from headrace.runtime.backfill.completeness import plan_in_force
from headrace.runtime.home.home import Home
from headrace.runtime.introspection.epoch_log import last_lines
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.plan import derived_streams, union_streams
from headrace.runtime.plan.adaptive.filter_orders import filter_orders
from headrace.runtime.plan.adaptive.join_caches import join_caches
from headrace.runtime.plan.adaptive.join_orders import join_orders
from headrace.runtime.plan.adaptive.partner_bounds import JoinBounds, JoinEstimates, join_bounds
from headrace.runtime.plan.epoch_planner import make_plan
from headrace.store.logs.manifest import Manifest
from headrace.time import render_duration

EPOCHS = 1000
"""Lines of the log that are read: more than of EXPLAIN, since what has changed is of interest."""

_Seen = TypeVar("_Seen", FilterObservation, ProbeObservation, CacheObservation, DelayObservation)


def explain_adaptive(home: Home, name: str) -> str:
    """The conjunctions of a query's operators, and the joins it reads, whose orders adapt.

    Raises `UserError` when there is none of that name.
    """
    home.refresh()
    standing, manifest = home.catalog.require_query(name), home.latest()
    is_newest = manifest.plan and manifest.querylog == home.catalog.position
    plan = plan_in_force(home, manifest) if is_newest else make_plan(home.catalog)
    operators = [
        operator
        for operator_id, operator in plan.operators.items()
        if derived_streams.owner_of(operator_id) == standing.operator_id
    ]
    log = last_lines(Path(home.store.root), EPOCHS)
    lines = [
        *_filter_lines(operators, manifest, log),
        *_tree_lines(operators, standing.definition.join_sizes, log),
        *_join_lines(operators, plan, manifest, log),
        *_constraint_lines(operators, plan, manifest, log),
    ]
    return "\n".join(lines) or (
        f"nothing in {name} adapts: an order matters to two or more conditions of WHERE, one of them costly "
        "(a Python function, a regular expression, IN over a relation), and to joins of three or more streams by one key; constraints "
        "are found by joins of windows, once 1000 pairs have been joined"
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
            yield from order_lines(terms, history.get(condition, []), next_order)


def _conjunctions(steps: tuple[RowStep, ...]) -> Iterator[Terms]:
    """Those of all steps, and of the steps below and above a window, wherever it is: each part is evaluated by itself."""
    for cut in range(max(1, len(steps))):
        for part in (steps[:cut], steps[cut:]):
            yield from (terms for _, terms in conjunctions_of(part).values())


def _tree_lines(
    operators: Sequence[Operator], sizes: Sequence[int], log: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """The joins that a query's sources go through one after the other, if there are several, with the rows that each has made."""
    joins = [operator for operator in operators if operator.joined_sides]
    if len(joins) > 1:
        why = "sources of fewest rows first, as counted when it was registered" if sizes else "as written"
        yield f"{len(joins)} joins one after the other, {why}:"
        for number, join in enumerate(joins, 1):
            rows_made = sum(line["operators"].get(join.id, {}).get("results", 0) for line in log)
            yield f"  {number}. {', '.join(join.joined_sides)}: {rows_of(rows_made)} rows made"


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


def _history(
    log: Sequence[Mapping[str, Any]], kind: str, of: Callable[[Mapping[str, Any]], _Seen]
) -> dict[str, list[tuple[int, _Seen]]]:
    """By name, what was observed in each epoch, oldest first."""
    history: dict[str, list[tuple[int, _Seen]]] = {}
    for line in log:
        for name, fields in line.get(kind, {}).items():
            history.setdefault(name, []).append((line["epoch"], of(fields)))
    return history
