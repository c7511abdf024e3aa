"""What does a query cost, when nearly all it needs is done once for many?

The time of a piece of work is split among the operators that share it. Each has one part for being there, and one more
for each row that is its own: of the cells a fold makes, those of its groups; of a state, its rows and its results. Reading
is done for all alike, so all pay the same. The parts of all queries add up to what was measured, exactly but for rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.observation import OperatorObservation, WorkObservation
from headrace.planner.explain.work_sharing import Sharing, Work

RULE = (
    "the time of shared work is split among its queries: one part for each, and one for each row that is its own "
    "(cells folded; state and results)"
)
NOTHING = OperatorObservation()


@dataclass(frozen=True)
class Measured:
    """Observations of `epochs` epochs added up: `works` as in the sharing; `operators` by id; `rows` read.

    State is as it was after the last of them: `state_bytes` by place, `state_rows` by operator. `elsewhere`: nanoseconds
    of work for queries that are no more.
    """

    epochs: int
    first: int
    last: int
    rows: int
    works: Sequence[WorkObservation]
    operators: Mapping[str, OperatorObservation]
    state_bytes: Sequence[int]
    state_rows: Mapping[str, int]
    elsewhere: int = 0

    @cached_property
    def nanoseconds(self) -> int:
        """Of all work."""
        return sum(each.nanoseconds for each in self.works)


def attributed(sharing: Sharing, seen: Measured) -> dict[str, float]:
    """Nanoseconds of each operator, over all epochs that were measured."""
    found = dict.fromkeys(sharing.places, 0.0)
    for work, measured in zip(sharing.works, seen.works, strict=True):
        if measured.nanoseconds:
            parts = [_parts(work, seen.operators.get(user, NOTHING), seen.epochs) for user in work.users]
            each = measured.nanoseconds / sum(parts)
            for user, own in zip(work.users, parts, strict=True):
                found[user] += each * own
    return found


def _parts(work: Work, own: OperatorObservation, epochs: int) -> int:
    """One for each epoch, and one for each row of its own."""
    if work.kind == "read":
        return epochs
    return epochs + (own.delta_rows if work.kind == "fold" else own.state_rows + own.results)
