"""In which states do groups of few rows lie as these, and in which is nothing folded as it comes? Decided after every epoch from what it measured, for the next one.

The decision is a fact of the manifest: an epoch that is run again, after a failure or a restart, folds its rows in the
same way. Answers do not depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headrace.observation import OperatorObservation
from headrace.operators.families.cohort import together
from headrace.operators.families.family import UNFOLDED, state_name
from headrace.operators.panes.adaptive_panes import LEAST_GROUPS, Sizes, panes_pay, should_adapt
from headrace.operators.time_windows.pane_aggregate import PaneAggregate
from headrace.runtime.messages.epoch_plan import EpochPlan
from headrace.store.logs.manifest import Manifest

ADAPTING: Final = "adapting"
"""In a manifest's facts: the names of these states, and with `UNFOLDED` of those whose rows are not folded at all."""


def adapting_states(manifest: Manifest) -> frozenset[str]:
    """What the last epoch decided."""
    return frozenset(manifest.facts.get(ADAPTING, ()))


def with_adapting(
    facts: Mapping[str, Any], plan: EpochPlan, seen: Mapping[str, OperatorObservation]
) -> dict[str, Any]:
    """A manifest's facts with the decision for the next epoch; states of which nothing was measured stay as they are."""
    known = frozenset(facts.get(ADAPTING, ()))
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
        chosen -= {state, state + UNFOLDED}
        if should_adapt(layout, found.groups, found.few, does=state in known):
            folds = state + UNFOLDED not in known
            sizes = Sizes(found.rows_kept, found.groups, found.few, found.pairs, found.held)
            pay = panes_pay(operator.panes, sizes, do=folds)
            chosen |= {state} if pay else {state, state + UNFOLDED}
    if chosen:
        there = {state_name(operator) for operator in plan.operators.values()}
        chosen = {name for name in chosen if name.removesuffix(UNFOLDED) in there}
    rest = {name: value for name, value in facts.items() if name != ADAPTING}
    return {**rest, ADAPTING: sorted(chosen)} if chosen else rest
