"""Which operators have more to tell than one epoch should? A state task asks before it advances any.

Only the rows at hand say it, so the tasks find out, not the driver: it then orders the epoch again, with the least of
their instants as these operators' punctuation. Nothing was written or published for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headrace.operators.base.operator import Advance, Operator, Sections
from headrace.operators.panes.emission_limit import EmissionCap, span
from headrace.runtime.messages.task_messages import StateReceipt
from headrace.runtime.tasks.state.state_runs import TaskRun
from headrace.time import Instant

EMISSION_CAP = EmissionCap()


def emission_limits(
    owners: Mapping[str, Sequence[Operator]],
    advance_of: Callable[[Operator], Advance],
    runs: Sequence[TaskRun],
    deltas: Mapping[str, Sequence[Sections]],
) -> dict[str, Instant]:
    """By operator that should not go all of the way the instant to go to; `owners` are those taking part, by their state."""
    found: dict[str, Instant] = {}
    for name, queries in owners.items():
        far = _past_many_windows(queries, advance_of)
        if not far:
            continue
        mine = [sections for run in runs if (sections := run.of(name))]
        for advance, operators in far.items():
            asked = operators[0].together(operators)
            stop = asked.emission_limit(mine, deltas.get(name, ()), advance, EMISSION_CAP)
            if stop is not None and stop < advance.punctuation:
                found |= dict.fromkeys((each.id for each in operators), stop)
    return found


def _past_many_windows(
    queries: Sequence[Operator], advance_of: Callable[[Operator], Advance]
) -> dict[Advance, list[Operator]]:
    """Those that punctuation takes past many windows, by their turn; the members are of one kind and window."""
    windows = queries[0].emission_windows
    if windows is None:
        return {}
    found: dict[Advance, list[Operator]] = {}
    far: dict[int, bool] = {}
    for each in queries:
        advance = advance_of(each)  # thousands take the same one, as one object
        if id(advance) not in far:
            far[id(advance)] = span(windows, advance, EMISSION_CAP) is not None
        if far[id(advance)]:
            found.setdefault(advance, []).append(each)
    return found


def least(receipts: Sequence[StateReceipt]) -> dict[str, Instant]:
    """The least of the instants that tasks named, by operator."""
    found: dict[str, Instant] = {}
    for receipt in receipts:
        for name, at in receipt.emission_limits.items():
            found[name] = min(at, found.get(name, at))
    return found
