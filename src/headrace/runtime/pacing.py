"""Which operators have more to tell than one epoch should? A state task asks before it advances any.

Only the rows at hand say it, so the tasks find out, not the driver: it then orders the epoch again, with the least of
their instants as these operators' punctuation. Nothing was written or published for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headrace.operators.family import family_of, together
from headrace.operators.operator import Operator, Sections, Turn
from headrace.operators.pace import Pace, Paced, paced, span
from headrace.operators.pane_aggregate import PaneAggregate
from headrace.runtime.messages import StateReceipt
from headrace.runtime.task_runs import TaskRun
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
            stop = _asked(alike).reach(mine, deltas.get(name, ()), turn, PACE)
            if stop is not None and stop < turn.now:
                found |= dict.fromkeys((each.id for each in alike), stop)
    return found


def _far(members: Sequence[Operator], turn_of: Callable[[Operator], Turn]) -> dict[Turn, list[Operator]]:
    """Those that punctuation takes past many windows, by their turn; the members are of one kind and window."""
    first = paced(members[0])
    if first is None:
        return {}
    found: dict[Turn, list[Operator]] = {}
    far: dict[int, bool] = {}
    for each in members:
        turn = turn_of(each)  # thousands take the same one, as one object
        if id(turn) not in far:
            far[id(turn)] = span(first.panes, turn, PACE) is not None
        if far[id(turn)]:
            found.setdefault(turn, []).append(each)
    return found


def _asked(alike: Sequence[Operator]) -> Paced:
    """Who answers for operators of one state and turn: their family as one, or the only one."""
    if family_of(alike[0]) is not None:
        return together([each for each in alike if isinstance(each, PaneAggregate)])
    alone = paced(alike[0])
    assert alone is not None
    return alone


def least(receipts: Sequence[StateReceipt]) -> dict[str, Instant]:
    """The least of the instants that tasks named, by operator."""
    found: dict[str, Instant] = {}
    for receipt in receipts:
        for name, at in receipt.reaches.items():
            found[name] = min(at, found.get(name, at))
    return found
