"""Which operators have more to tell than one epoch should? A state task asks before it advances any.

Only the rows at hand say it, so the tasks find out, not the driver: it then orders the epoch again, with the least of
their instants as these operators' punctuation. Nothing was written or published for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headrace.operators.base.operator import Operator, Sections, Turn
from headrace.operators.panes.emission_limit import Pace, span
from headrace.runtime.messages.task_messages import StateReceipt
from headrace.runtime.tasks.state.state_runs import TaskRun
from headrace.time import Instant

PACE = Pace()


def reaches(
    owners: Mapping[str, Sequence[Operator]],
    turn_of: Callable[[Operator], Turn],
    runs: Sequence[TaskRun],
    deltas: Mapping[str, Sequence[Sections]],
) -> dict[str, Instant]:
    """By operator that should not go all of the way the instant to go to; `owners` are those taking part, by their state."""
    found: dict[str, Instant] = {}
    for name, members in owners.items():
        far = _far(members, turn_of)
        if not far:
            continue
        mine = [sections for run in runs if (sections := run.of(name))]
        for turn, alike in far.items():
            asked = alike[0].together(alike)
            stop = asked.emission_limit(mine, deltas.get(name, ()), turn, PACE)
            if stop is not None and stop < turn.now:
                found |= dict.fromkeys((each.id for each in alike), stop)
    return found


def _far(members: Sequence[Operator], turn_of: Callable[[Operator], Turn]) -> dict[Turn, list[Operator]]:
    """Those that punctuation takes past many windows, by their turn; the members are of one kind and window."""
    windows = members[0].emission_windows
    if windows is None:
        return {}
    found: dict[Turn, list[Operator]] = {}
    far: dict[int, bool] = {}
    for each in members:
        turn = turn_of(each)  # thousands take the same one, as one object
        if id(turn) not in far:
            far[id(turn)] = span(windows, turn, PACE) is not None
        if far[id(turn)]:
            found.setdefault(turn, []).append(each)
    return found


def least(receipts: Sequence[StateReceipt]) -> dict[str, Instant]:
    """The least of the instants that tasks named, by operator."""
    found: dict[str, Instant] = {}
    for receipt in receipts:
        for name, at in receipt.reaches.items():
            found[name] = min(at, found.get(name, at))
    return found
