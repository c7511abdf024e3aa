"""EXPLAIN ADAPTIVE of a registered query: the orders of its conjunctions over the newest epochs, from the home's log and manifest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headrace.observation import FilterObservation
from headrace.operators.rows.filter_terms import Terms
from headrace.operators.rows.row_pipeline import RowStep, conjunctions_of
from headrace.planner.explain.filter_orders import order_lines
from headrace.runtime.backfill.completeness import plan_in_force
from headrace.runtime.home.home import Home
from headrace.runtime.introspection.epoch_log import last_lines
from headrace.runtime.plan import derived_streams
from headrace.runtime.plan.adaptive.filter_orders import filter_orders
from headrace.runtime.plan.epoch_planner import make_plan

EPOCHS = 1000
"""Lines of the log that are read: more than of EXPLAIN, since what has changed is of interest."""


def explain_adaptive(home: Home, name: str) -> str:
    """The conjunctions of a query's operators whose order adapts.

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
    conjunctions = {
        terms.name: terms for operator in operators for terms in _conjunctions(operator.row_steps)
    }
    if not conjunctions:
        return (
            f"nothing in {name} adapts: an order matters to two or more conditions of WHERE, one of them costly "
            "(a Python function, a regular expression, IN over a relation)"
        )
    orders, history = filter_orders(manifest), _history(home)
    shown = {condition for condition in conjunctions if condition in orders} or conjunctions.keys()
    lines = [
        line
        for condition, terms in conjunctions.items()
        if condition in shown
        for line in order_lines(
            terms,
            history.get(condition, []),
            orders[condition].order if condition in orders else terms.guessed_order,
        )
    ]
    return "\n".join(lines)


def _conjunctions(steps: tuple[RowStep, ...]) -> Iterator[Terms]:
    """Those of all steps, and of the steps below and above a window, wherever it is: each part is evaluated by itself."""
    for cut in range(max(1, len(steps))):
        for part in (steps[:cut], steps[cut:]):
            yield from (terms for _, terms in conjunctions_of(part).values())


def _history(home: Home) -> dict[str, list[tuple[int, FilterObservation]]]:
    """By conjunction, what was observed in each epoch, oldest first."""
    history: dict[str, list[tuple[int, FilterObservation]]] = {}
    for line in last_lines(Path(home.store.root), EPOCHS):
        for name, fields in line.get("filters", {}).items():
            history.setdefault(name, []).append((line["epoch"], FilterObservation.of(fields)))
    return history
