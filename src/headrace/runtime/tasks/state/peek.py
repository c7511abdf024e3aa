"""The outcome of a state task without writing it: results, failed rows and failures of operators at an instant, last
windows, and emission limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from headrace.dataclass import dataclass
from headrace.errors import QueryFailed
from headrace.operators.base.batch import Rejected
from headrace.operators.base.operator import Operator
from headrace.operators.base.query_failures import QueryFailure
from headrace.runtime.messages.exchange_blob import ScanBlob
from headrace.runtime.messages.task_messages import StateMessage
from headrace.runtime.tasks.state.state_task import StateTask
from headrace.time import Instant


@dataclass(frozen=True, slots=True)
class Peek:
    """The results of operators, the rows on which their expressions failed, and the operators that failed."""

    results: Mapping[str, pa.Table]
    rejected: Mapping[str, list[Rejected]]
    failures: Mapping[str, QueryFailure]


NOTHING: Final = Peek({}, {}, {})


def peek(message: StateMessage, blobs: Sequence[ScanBlob] = ()) -> dict[str, pa.Table]:
    """The results of operators at the message's punctuation, by operator; nothing is written.

    Raises `QueryFailed` if one of them fails.
    """
    peeked = peek_all(message, blobs)
    for failure in peeked.failures.values():
        raise QueryFailed(f"the answer cannot be computed: {failure.reason}")
    return dict(peeked.results)


def peek_all(message: StateMessage, blobs: Sequence[ScanBlob] = ()) -> Peek:
    """The results as in `peek`, the rows on which expressions failed, and the operators that failed."""
    task = StateTask(message, blobs)
    task.advance_all()
    if not all(failure.isolated for failure in task.failures.values()):
        task = StateTask(replace(message, isolated=message.isolated | task.failures.keys()), blobs)
        task.advance_all()
    results = {name: table for name, table in task.results.items() if name not in task.failures}
    return Peek(results, task.rejected, task.failures)


def latest_windows(message: StateMessage, operator: Operator) -> pa.Table | None:
    """The last window of each of an operator's partitions; nothing is written."""
    return StateTask(message, ()).latest(operator)


def emission_limits_of(message: StateMessage, blobs: Sequence[ScanBlob]) -> dict[str, Instant]:
    """Operators with too many windows for one epoch, and where they stop; nothing is written."""
    return StateTask(message, blobs).emission_limits()
