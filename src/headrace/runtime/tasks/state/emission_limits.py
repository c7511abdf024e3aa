"""Emission limits: the instants at which operators with too many windows for one epoch stop.

A state task computes them before it advances any operator, since they depend on its rows. The driver then orders the epoch
again, with the least of them as these operators' punctuation. Nothing was written or published for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headrace.operators.base.operator import Advance, Operator, Sections
from headrace.operators.families.cohort import Cohort
from headrace.operators.panes.emission_limit import EmissionCap, span
from headrace.runtime.messages.task_messages import StateReceipt
from headrace.runtime.tasks.state.state_runs import TaskRun
from headrace.time import Instant

EMISSION_CAP = EmissionCap()


def is_long(operator: Operator, advance: Advance) -> bool:
    """Whether an advance may close more windows of an operator than one epoch emits."""
    windows = operator.emission_windows
    return windows is not None and span(windows, advance, EMISSION_CAP) is not None


def emission_limits(
    owners: Mapping[str, Sequence[Operator]],
    advance_of: Callable[[Operator], Advance],
    runs: Sequence[TaskRun],
    deltas: Mapping[str, Sequence[Sections]],
) -> dict[str, Instant]:
    """Limits by operator, where the advance is too long for one epoch; `owners` are those taking part, by their state."""
    limits: dict[str, Instant] = {}
    for name, queries in owners.items():
        long_advances = _past_many_windows(queries, advance_of)
        if not long_advances:
            continue
        runs_of_state = [sections for run in runs if (sections := run.of(name))]
        for (advance, _), operators in long_advances.items():
            merged, state, arrived = operators[0].together(operators), runs_of_state, deltas.get(name, ())
            if merged.family_key is not None:
                cohort = Cohort.of(operators)
                state, arrived = _rows_of(cohort, state), _rows_of(cohort, arrived)
            limit = merged.emission_limit(state, arrived, advance, EMISSION_CAP)
            if limit is not None and limit < advance.punctuation:
                limits |= dict.fromkeys((operator.id for operator in operators), limit)
    return limits


def _rows_of(cohort: Cohort, sections: Sequence[Sections]) -> list[Sections]:
    """The rows of some queries of a family."""
    return [{name: cohort.own_rows([table])[0] for name, table in tables.items()} for tables in sections]


def _past_many_windows(
    queries: Sequence[Operator], advance_of: Callable[[Operator], Advance]
) -> dict[tuple[Advance, int], list[Operator]]:
    """Operators whose advance closes many windows, by the advance and the length of the windows to a factor of two.

    All are of one kind and over the same panes; a window of a year is not to hold up those of a second.
    """
    windows = queries[0].emission_windows
    if windows is None:
        return {}
    alike: dict[tuple[Advance, int], list[Operator]] = {}
    longs: dict[int, bool] = {}
    for operator in queries:
        advance = advance_of(operator)  # thousands share one object
        if id(advance) not in longs:
            longs[id(advance)] = is_long(queries[0], advance)
        if longs[id(advance)]:
            emission_windows = operator.emission_windows or windows
            alike.setdefault((advance, (emission_windows.per_window or 0).bit_length()), []).append(operator)
    return alike


def least(receipts: Sequence[StateReceipt]) -> dict[str, Instant]:
    """The least of the tasks' limits, by operator."""
    limits: dict[str, Instant] = {}
    for receipt in receipts:
        for name, at in receipt.emission_limits.items():
            limits[name] = min(at, limits.get(name, at))
    return limits
