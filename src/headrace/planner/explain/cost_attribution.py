"""Attribution of the measured time of shared work to the operators that share it, and so to their queries.

The time of a piece of work is split among the operators that share it. Each pays one part per epoch, and one more
per row of its own: of the cells of an aggregation, those of its groups; of a state, its rows and its results. Reading
costs all operators the same. The parts of all queries add up to the measured time, exactly but for rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from headrace.dataclass import dataclass
from headrace.observation import OperatorObservation, WorkObservation
from headrace.planner.explain.work_sharing import Sharing, WorkItem

RULE = (
    "the time of shared work is split among its queries: one part for each, and one for each row that is its own "
    "(cells folded; state and results)"
)
NOTHING = OperatorObservation()


@dataclass(frozen=True)
class Measured:
    """Observations of `epochs` epochs added up: `works` as in the sharing; `operators` by id; `rows` read.

    State is as of the last epoch: `state_bytes` by place, `state_rows` by operator. `elsewhere`: nanoseconds
    of work for dropped queries.
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
        return sum(work.nanoseconds for work in self.works)


def attributed(sharing: Sharing, seen: Measured) -> dict[str, float]:
    """Nanoseconds of each operator, over all measured epochs."""
    spent = dict.fromkeys(sharing.places, 0.0)
    for work, measured in zip(sharing.works, seen.works, strict=True):
        if measured.nanoseconds:
            parts = [_parts(work, seen.operators.get(user, NOTHING), seen.epochs) for user in work.users]
            nanoseconds = measured.nanoseconds / sum(parts)
            for user, part in zip(work.users, parts, strict=True):
                spent[user] += nanoseconds * part
    return spent


def _parts(work: WorkItem, observed: OperatorObservation, epochs: int) -> int:
    """One part per epoch, and one per row of its own."""
    if work.kind == "read":
        return epochs
    return epochs + (observed.delta_rows if work.kind == "fold" else observed.state_rows + observed.results)
