"""Execution of the state tasks of one process, level by level: queries over queries read what the levels below have made in
memory.

Where one process has all slots, the results of a level are scanned there, without a file, a message or the driver; each task
writes its state and its results once, after the last level. Otherwise an epoch runs in rounds, one for each level.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from headrace.dataclass import dataclass
from headrace.runtime.home.gc_control import MANY, collector_disabled
from headrace.runtime.messages.exchange_blob import ScanBlob, in_order
from headrace.runtime.messages.task_messages import ScanMessage, Split, StateMessage, StateReceipt
from headrace.runtime.progress.plan_index import index_of
from headrace.runtime.tasks.file_writes import AT_ONCE, FileWrites
from headrace.runtime.tasks.scan.scan_task import scan_blobs
from headrace.runtime.tasks.state.state_task import StateTask


@dataclass(frozen=True, slots=True)
class Finished:
    """The receipts of state tasks, and the tasks."""

    receipts: list[StateReceipt]
    tasks: Sequence[StateTask]

    def prepare_next(self) -> None:
        """Do ahead what the next epoch would do first; for a process that stays, once the receipts are on their way."""
        for task in self.tasks:
            task.prepare_next()


def run_states(
    messages: Sequence[StateMessage],
    inbox: Mapping[int, Sequence[ScanBlob]],
    writes: FileWrites = AT_ONCE,
) -> Finished:
    """Run the state tasks of one process; the inbox has the blobs of scan tasks by state task.

    With `upper` in the messages these tasks have all slots, and run all levels. If an operator fails at any level, or has too
    many windows to emit, nothing is written.
    """
    many = any(message.followers or len(message.emitted_to) >= MANY for message in messages)
    with collector_disabled(many):
        numbers = count()
        tasks = [_Running(message, in_order(inbox[message.task]), numbers, writes) for message in messages]
        upper = messages[0].upper
        for level in range(1 + (0 if upper is None else upper.count)):
            if level:
                _rise(tasks, level)
            advanced = [running.advanced() for running in tasks]  # all of them, to find all failures at once
            if not all(advanced):
                return Finished([running.unwritten() for running in tasks], ())
        receipts = [running.written() for running in tasks]
        return Finished(receipts, [running.task for running in tasks])


class _Running:
    """A state task, and the time that it has taken."""

    def __init__(
        self,
        message: StateMessage,
        blobs: Sequence[ScanBlob],
        numbers: Iterator[int],
        writes: FileWrites,
    ) -> None:
        started = time.perf_counter()
        self.message = message
        self.task = StateTask(message, blobs, cached=True, numbers=numbers, writes=writes)
        self._limits = dict[str, int]()
        self._seconds = time.perf_counter() - started

    def advanced(self) -> bool:
        """Advance what is visited; False, without an advance, where operators failed or emit too much for one epoch."""
        started, task = time.perf_counter(), self.task
        self._limits = {} if task.failures else task.emission_limits()
        if not (self._limits or task.failures):
            task.advance_all()
            task.order_results()
        self._seconds += time.perf_counter() - started
        return not (self._limits or task.failures)

    def unwritten(self) -> StateReceipt:
        """The receipt of a task that has written nothing."""
        return StateReceipt(self.message.task, emission_limits=self._limits, failures=self.task.failures)

    def written(self) -> StateReceipt:
        """Write what the levels have made."""
        started = time.perf_counter()
        self.task.compact()
        if not self.task.failures:
            self.task.write_results()
        if self.task.failures:
            return self.unwritten()
        receipt = self.task.write()
        seconds = {"state": self._seconds, "write": time.perf_counter() - started}
        return replace(receipt, seconds=seconds)


def _rise(tasks: Sequence[_Running], level: int) -> None:
    """Scan the results for the streams of a level, and continue with it."""
    splits = _made_for(tasks, level)
    blobs = dict(scan_blobs(_scan_message(tasks[0], level, splits))) if splits else {}
    for running in tasks:
        running.task.rise([blobs[running.message.task]] if blobs else [])


def _made_for(tasks: Sequence[_Running], level: int) -> list[Split]:
    """The results that this epoch has made for the streams of a level, in the order of their runs."""
    read, upper = index_of(tasks[0].task.plan).results_by_level.get(level, {}), tasks[0].message.upper
    assert upper is not None
    splits = []
    for running in tasks:
        for operator, rows in running.task.results.items():
            stream = read.get(operator)
            if stream is not None:
                ordinal = upper.results + running.task.result_runs.run_of(operator).number
                record = {"shift": int(stream.options["shift"])}
                splits.append(Split(stream.name, ordinal, record, made=rows))
    return sorted(splits, key=lambda split: split.ordinal)


def _scan_message(running: _Running, level: int, splits: Sequence[Split]) -> ScanMessage:
    """The scan of a level: one for all state tasks, which are in this process."""
    message, before = running.message, running.task.round.before
    assert message.upper is not None
    return ScanMessage(
        message.root,
        message.plan,
        message.epoch,
        level,
        tuple(splits),
        {split.stream: before.punctuation(split.stream) for split in splits},
        message.upper.owners,
        message.participants,
        row_layout_states=message.upper.row_layout_states,
        weight=sum(split.made.num_rows for split in splits if split.made is not None),
        filter_orders=message.upper.filter_orders,
        doubled_errors=message.doubled_errors,
        synced=message.synced,
    )
