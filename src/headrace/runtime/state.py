"""The state task: deltas of this epoch meet the runs of earlier ones, windows close, results are written.

It owns a range of slots. It runs every epoch, rows or not: punctuation alone can close windows. All it writes are new
files; which of them count is decided when the driver publishes.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.observation import OperatorObservation
from headrace.operators.batch import Rejected
from headrace.operators.grouping import flat
from headrace.operators.operator import AT, SLOT, Operator, Sections, Step, Turn
from headrace.operators.row_slides import RowSlides
from headrace.operators.scalar.users import registered
from headrace.runtime import names
from headrace.runtime.blobs import ScanBlob, deltas_of, in_order
from headrace.runtime.compaction import due_for_merge
from headrace.runtime.functions import loaded
from headrace.runtime.messages import RunRef, StateMessage, StateReceipt, StreamProgress
from headrace.runtime.plans import load_plan, open_run
from headrace.runtime.progress import after_scans
from headrace.runtime.rejects import encode_query_rejects
from headrace.store.container import parts
from headrace.store.filesystem import LocalStore
from headrace.time import FOREVER

_DEAD_SHARE = 0.2
"""A run is rewritten when more than this part of its rows belongs to dropped queries."""


def run_state(message: StateMessage, blobs: Iterable[bytes]) -> StateReceipt:
    """Advance every operator over this task's slots."""
    started = time.perf_counter()
    arrived = in_order(blobs)
    task = _StateTask(message, arrived)
    task.advance_all()
    advanced = time.perf_counter()
    task.compact()
    receipt = task.write()
    return replace(receipt, seconds={"state": advanced - started, "write": time.perf_counter() - advanced})


def peek(message: StateMessage, blobs: Sequence[ScanBlob] = ()) -> dict[str, pa.Table]:
    """What operators would answer at the message's punctuation, by operator; nothing is written."""
    task = _StateTask(message, blobs)
    task.advance_all()
    return task.results


def latest_windows(message: StateMessage, operator: RowSlides) -> pa.Table | None:
    """The last window of each of an operator's partitions; nothing is written."""
    return _StateTask(message, ()).latest(operator)


@dataclass(frozen=True, slots=True)
class _Run:
    """A run's sections, cut to this task's slots, by operator."""

    ref: RunRef
    sections: Mapping[str, pa.Table]
    whole: bool

    def share_of_others(self, alive: Collection[str]) -> float:
        """Which part of the rows belongs to operators that are not `alive`."""
        rows = sum(table.num_rows for table in self.sections.values())
        dead = sum(t.num_rows for name, t in self.sections.items() if name.partition("/")[0] not in alive)
        return dead / rows if rows else 0.0

    def of(self, operator: str) -> Sections:
        prefix = f"{operator}/"
        return {
            name[len(prefix) :]: table for name, table in self.sections.items() if name.startswith(prefix)
        }


class _StateTask:
    def __init__(self, message: StateMessage, blobs: Sequence[ScanBlob]) -> None:
        self._store = LocalStore(message.root)
        self._message, self._blobs = message, blobs
        self.plan = load_plan(self._store, message.plan)
        self._runs = [self._open(ref) for ref in message.runs]
        receipts = [blob.receipt for blob in blobs]
        self._progress = after_scans(self.plan.streams, message.streams, receipts)
        self._state: dict[str, pa.Table] = {}
        self.results: dict[str, pa.Table] = {}
        self._rejected: dict[str, list[Rejected]] = {}
        self._seen: dict[str, OperatorObservation] = {}
        self._replaced: tuple[str, ...] = ()
        self._level = 0
        for blob in blobs:
            for operator, rejected in blob.rejected.items():
                if rejected:
                    self._rejected.setdefault(operator, []).extend(rejected)

    def _open(self, ref: RunRef) -> _Run:
        """A run that also holds slots of others is filtered; that happens only after the number of tasks changed."""
        sections = open_run(self._store, ref.name)
        low, high = self._message.low, self._message.high
        if low <= ref.low and ref.high <= high:
            return _Run(ref, sections, True)
        cut = {}
        for name, table in sections.items():
            slots = flat(table.column(SLOT)).to_numpy()
            mine = table.filter(pa.array((slots >= low) & (slots < high)))
            if mine.num_rows:  # operators are never shown a section without rows
                cut[name] = mine
        return _Run(ref, cut, False)

    def _turn(self, operator: Operator) -> Turn:
        message = self._message
        progress = self._progress.get(operator.stream, StreamProgress())
        closed = message.closed[operator.id]
        now = message.now.get(operator.id, progress.punctuation)
        if message.final:
            now = FOREVER
        return Turn(closed, max(closed, now), progress.greatest, message.final)

    def advance_all(self) -> None:
        """Run the operators that take part."""
        with registered(loaded(self.plan.functions)):
            for operator in self.plan.operators.values():
                if operator.id in self._message.closed:
                    self.advance(operator)

    def advance(self, operator: Operator) -> None:
        """Run one operator and keep what it gives."""
        runs = [sections for run in self._runs if (sections := run.of(operator.id))]
        deltas = deltas_of(self._blobs, operator.id)
        step = operator.advance(runs, deltas, self._turn(operator))
        for section, table in step.state.items():
            if table.num_rows:
                self._state[f"{operator.id}/{section}"] = table
        if step.results is not None and step.results.num_rows:
            self.results[operator.id] = step.results
        if step.rejected:
            self._rejected.setdefault(operator.id, []).extend(step.rejected)
        self._seen[operator.id] = _observed(step, runs)

    def latest(self, operator: RowSlides) -> pa.Table | None:
        """What an operator's state says of windows that have closed."""
        with registered(loaded(self.plan.functions)):
            return operator.latest([sections for run in self._runs if (sections := run.of(operator.id))])

    def compact(self) -> None:
        """Merge runs of one size class into this epoch's run, and every run that no longer lies in our slots.

        A run of which a good part belongs to queries that are no more is merged too: dropping a query frees its state.
        """
        alive = self.plan.operators
        chosen = set(due_for_merge([run.ref for run in self._runs if run.whole]))
        chosen |= {
            run.ref.name for run in self._runs if not run.whole or run.share_of_others(alive) > _DEAD_SHARE
        }
        if not chosen:
            return
        merging = [run for run in self._runs if run.ref.name in chosen]
        self._level = 1 + max(run.ref.level for run in merging)
        for operator in alive.values():
            self._merge(operator, merging)
        self._replaced = tuple(run.ref.name for run in merging)

    def _merge(self, operator: Operator, merging: Sequence[_Run]) -> None:
        """One operator's sections of the runs, as one; those of an operator that rests this epoch as it left them."""
        found: dict[str, list[pa.Table]] = {}
        for run in merging:
            for section, table in run.of(operator.id).items():
                found.setdefault(section, []).append(table)
        after = self._after(operator)
        for section, tables in found.items():
            key = f"{operator.id}/{section}"
            if key in self._state:
                tables.append(self._state[key])
            merged = operator.compact(section, tables, after)
            if merged.num_rows:
                self._state[key] = merged
            else:
                self._state.pop(key, None)

    def _after(self, operator: Operator) -> Turn:
        """The turn by which an operator may forget: no further than it has answered."""
        if operator.id in self._message.closed:
            turn = self._turn(operator)
            return Turn(turn.now, turn.now, turn.greatest)
        closed = self._message.resting[operator.id]
        return Turn(closed, closed, self._progress.get(operator.stream, StreamProgress()).greatest)

    def write(self) -> StateReceipt:
        """Write state, results and rejects; the receipt names them."""
        message = self._message
        run = self._write_state() if self._state else None
        results_name, facts = self._write_results()
        rejects, counts = {}, {}
        for operator, rejected in self._rejected.items():
            counts[operator] = sum(each.rows for each in rejected)
            rejects[operator] = names.query_rejects(operator, message.epoch, message.task)
            self._store.write_once(rejects[operator], [encode_query_rejects(rejected)], durable=False)
        return StateReceipt(
            task=message.task,
            run=run,
            replaced=self._replaced,
            results_name=results_name,
            results=facts,
            rejected=counts,
            rejects=rejects,
            scans=tuple(blob.receipt for blob in self._blobs) if message.task == 0 else (),
            operators=self._seen,
            punctuation={name: progress.punctuation for name, progress in self._progress.items()},
        )

    def _write_state(self) -> RunRef:
        name = names.state_run(self._message.epoch, self._message.task)
        size = self._store.write_once(name, parts(self._state), durable=False)
        return RunRef(name, self._message.low, self._message.high, self._level, size)

    def _write_results(self) -> tuple[str | None, dict[str, tuple[int, int, int]]]:
        if not self.results:
            return None, {}
        name = names.results_run(self._message.epoch, self._message.task)
        self._store.write_once(name, parts(self.results), durable=False)
        return name, {query: _facts(table) for query, table in self.results.items()}


def _facts(table: pa.Table) -> tuple[int, int, int]:
    bounds = pc.min_max(table.column(AT))
    return table.num_rows, bounds["min"].as_py(), bounds["max"].as_py()


def _observed(step: Step, runs: Sequence[Sections]) -> OperatorObservation:
    rows = sum(table.num_rows for sections in (*runs, step.state) for table in sections.values())
    results = step.results.num_rows if step.results is not None else 0
    rejected = sum(each.rows for each in step.rejected)
    return OperatorObservation(
        state_rows=rows, results=results, rejected=rejected, open_windows=step.open_windows
    )


def bounds_of_slots(tasks: int, slots: int) -> list[tuple[int, int]]:
    """The slot range [low, high) of each of `tasks` state tasks."""
    edges = np.linspace(0, slots, tasks + 1).astype(int).tolist()
    return list(pairwise(edges))
