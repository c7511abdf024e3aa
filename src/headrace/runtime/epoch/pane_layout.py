"""In which states do groups of few rows lie as these, and in which is nothing folded as it comes? Decided after every epoch from what it measured, for the next one.

The decision is a fact of the manifest: an epoch that is run again, after a failure or a restart, folds its rows in the
same way. Answers do not depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headrace.observation import OperatorObservation
from headrace.operators.families.cohort import together
from headrace.operators.families.family import ROW_LAYOUT_SUFFIX, state_name
from headrace.operators.panes.adaptive_panes import LEAST_GROUPS, Sizes, panes_pay, should_store_rows
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.store.logs.manifest import Manifest

ROW_LAYOUT: Final = "adapting"
"""In a manifest's facts: the names of these states, and with `ROW_LAYOUT_SUFFIX` of those whose rows are not folded at all."""


def states_in_row_layout(manifest: Manifest) -> frozenset[str]:
    """What the last epoch decided."""
    return frozenset(manifest.facts.get(ROW_LAYOUT, ()))


def with_row_layout_states(
    facts: Mapping[str, Any], plan: EpochPlan, seen: Mapping[str, OperatorObservation]
) -> dict[str, Any]:
    """A manifest's facts with the decision for the next epoch; states of which nothing was measured stay as they are."""
    known = frozenset(facts.get(ROW_LAYOUT, ()))
    measured: dict[str, tuple[PaneAggregate, OperatorObservation]] = {}
    for name, found in seen.items():
        known_as = plan.operators.get(name)
        operator = None if known_as is None or not found.groups else known_as.over_panes
        if operator is not None and operator.family and operator.adapts:
            state = state_name(operator)
            together_seen = measured[state][1].plus(found) if state in measured else found
            measured[state] = operator, together_seen
    chosen = set(known)
    for state, (operator, found) in measured.items():
        if found.groups < LEAST_GROUPS:
            continue  # says nothing: spares thousands of small queries the question
        layout = together((operator,)).layouts[0]
        chosen -= {state, state + ROW_LAYOUT_SUFFIX}
        if should_store_rows(layout, found.groups, found.sparse_groups, does=state in known):
            folds = state + ROW_LAYOUT_SUFFIX not in known
            sizes = Sizes(found.rows_kept, found.groups, found.sparse_groups, found.pairs, found.held)
            pay = panes_pay(operator.panes, sizes, do=folds)
            chosen |= {state} if pay else {state, state + ROW_LAYOUT_SUFFIX}
    if chosen:
        there = {state_name(operator) for operator in plan.operators.values()}
        chosen = {name for name in chosen if name.removesuffix(ROW_LAYOUT_SUFFIX) in there}
    rest = {name: value for name, value in facts.items() if name != ROW_LAYOUT}
    return {**rest, ROW_LAYOUT: sorted(chosen)} if chosen else rest
