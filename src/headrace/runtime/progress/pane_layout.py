"""The choice of the layout in which each state stores its panes: whether small groups are stored as rows, and whether rows
are folded at all when they arrive.

It is decided after every epoch from its measurements, for the next one, and is a fact of the manifest: an epoch that is run
again, after a failure or a restart, folds its rows in the same way. Results do not depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headrace.observation import OperatorObservation
from headrace.operators.families.family import ROW_LAYOUT_SUFFIX, state_name
from headrace.operators.families.pane_queries import together
from headrace.operators.panes.adaptive_panes import LEAST_GROUPS, Sizes, panes_pay, should_store_rows
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.runtime.progress.plan_index import index_of
from headrace.store.logs.manifest import Manifest

ROW_LAYOUT: Final = "adapting"
"""In a manifest's facts: states that store small groups as rows, and with `ROW_LAYOUT_SUFFIX` those that do not fold rows."""


def states_in_row_layout(manifest: Manifest) -> frozenset[str]:
    """The states with that layout, as decided after the last epoch."""
    return frozenset(manifest.facts.get(ROW_LAYOUT, ()))


def with_row_layout_states(
    facts: Mapping[str, Any], plan: EpochPlan, seen: Mapping[str, OperatorObservation]
) -> dict[str, Any]:
    """A manifest's facts with the decision for the next epoch; states without measurements keep theirs."""
    previous = frozenset(facts.get(ROW_LAYOUT, ()))
    measured: dict[str, tuple[PaneAggregate, OperatorObservation]] = {}
    for name, observation in seen.items():
        planned = plan.operators.get(name)
        operator = None if planned is None or not observation.groups else planned.over_panes
        if operator is not None and operator.family and operator.adapts:
            state = state_name(operator)
            total = measured[state][1].plus(observation) if state in measured else observation
            measured[state] = _longest(operator, measured.get(state, (operator,))[0]), total
    chosen = set(previous)
    for state, (operator, observation) in measured.items():
        if observation.groups < LEAST_GROUPS:
            continue  # too few to decide by; spares thousands of small queries the computation
        layout = together((operator,)).layouts[0]
        chosen -= {state, state + ROW_LAYOUT_SUFFIX}
        if should_store_rows(layout, observation.groups, observation.sparse_groups, does=state in previous):
            folds = state + ROW_LAYOUT_SUFFIX not in previous
            sizes = Sizes(
                observation.rows_kept,
                observation.groups,
                observation.sparse_groups,
                observation.pairs,
                observation.held,
            )
            pay = panes_pay(operator.panes, sizes, do=folds)
            chosen |= {state} if pay else {state, state + ROW_LAYOUT_SUFFIX}
    if chosen:
        states = index_of(plan).by_state
        chosen = {name for name in chosen if name.removesuffix(ROW_LAYOUT_SUFFIX) in states}
    others = {name: value for name, value in facts.items() if name != ROW_LAYOUT}
    return {**others, ROW_LAYOUT: sorted(chosen)} if chosen else others


def _longest(*queries: PaneAggregate) -> PaneAggregate:
    """The query of a family with the longest windows, which gain most from panes."""
    return max(queries, key=lambda query: query.panes.per_window or 0)
