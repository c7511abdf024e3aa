"""The state task: deltas of this epoch meet the runs of earlier ones, windows close, results are written.

It owns a range of slots. It runs every epoch, rows or not: punctuation alone can close windows. All it writes are new
files; which of them count is decided when the driver publishes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import QueryFailed
from headrace.observation import OperatorObservation, WorkObservation
from headrace.operators.base.batch import Rejected
from headrace.operators.base.group_codes import ints
from headrace.operators.base.operator import AT, Advance, Operator, Sections, Step
from headrace.operators.base.query_failures import QueryFailure, of_query
from headrace.operators.families.cohort import QueryStep, cohorts
from headrace.operators.families.family import QueryRowCounts, state_name
from headrace.operators.families.harvest import gathered
from headrace.operators.on_demand.selection import arrived
from headrace.operators.on_demand.shared_selections import BITS
from headrace.operators.scalar.evaluation.user_functions import registered
from headrace.operators.time_windows.group_punctuation import GroupAdvance
from headrace.runtime.home import file_names
from headrace.runtime.home.gc_control import MANY, no_cycles_sought
from headrace.runtime.home.reject_files import encode_query_rejects
from headrace.runtime.home.run_cache import bytes_by_state, bytes_of_run, close_state_runs
from headrace.runtime.messages.exchange_blob import ScanBlob, deltas_by_state, in_order
from headrace.runtime.messages.stream_progress import StreamProgress
from headrace.runtime.messages.task_messages import (
    RejectsFile,
    ResultsFile,
    RunRef,
    StateMessage,
    StateReceipt,
    stream_receipts,
)
from headrace.runtime.plan.plan_files import load_plan
from headrace.runtime.plan.user_functions import callable_by_name
from headrace.runtime.progress import union_progress
from headrace.runtime.progress.group_progress import group_advance
from headrace.runtime.progress.punctuation import after_scans
from headrace.runtime.results.time_merge import PIECE, by_instant
from headrace.runtime.tasks.state.compaction import (
    Owners,
    before_merge,
    compacted,
    due_for_merge,
    due_for_review,
    level_after,
)
from headrace.runtime.tasks.state.emission_limits import emission_limits
from headrace.runtime.tasks.state.state_runs import TaskRun, open_task_run, query_numbers_of, sections_of
from headrace.runtime.tasks.timing import Ledger
from headrace.store.files.container import parts
from headrace.store.files.filesystem import LocalStore
from headrace.store.maintenance.retention_classes import RETAIN_ALL
from headrace.time import FOREVER, Instant

_DEAD_SHARE = 0.2
"""A run is rewritten when more than this part of its rows belongs to dropped queries."""
_LIVE_SHARE = 0.6
"""Runs are rewritten when, on review, less than this part of them is still needed."""


def run_state(message: StateMessage, blobs: Iterable[bytes]) -> StateReceipt:
    """Advance every operator over this task's slots."""
    started = time.perf_counter()
    with no_cycles_sought(len(message.emitted_to) >= MANY):
        task = _StateTask(message, in_order(blobs))
        too_far = {} if task.failures else task.emission_limits()
        if not (too_far or task.failures):
            task.advance_all()
            task.order_results()
        advanced = time.perf_counter()
        if not (too_far or task.failures):
            task.compact()
        if too_far or task.failures:
            return StateReceipt(message.task, emission_limits=too_far, failures=task.failures)
        receipt = task.write()
    return replace(receipt, seconds={"state": advanced - started, "write": time.perf_counter() - advanced})


@dataclass(frozen=True, slots=True)
class Peek:
    """What operators would answer, by operator, the rows on which their expressions failed, and which could not answer."""

    results: Mapping[str, pa.Table]
    rejected: Mapping[str, list[Rejected]]
    failures: Mapping[str, QueryFailure]


def peek(message: StateMessage, blobs: Sequence[ScanBlob] = ()) -> dict[str, pa.Table]:
    """What operators would answer at the message's punctuation, by operator; nothing is written.

    Raises `QueryFailed` where one cannot answer.
    """
    found = peek_all(message, blobs)
    for failure in found.failures.values():
        raise QueryFailed(f"the answer cannot be computed: {failure.reason}")
    return dict(found.results)


def peek_all(message: StateMessage, blobs: Sequence[ScanBlob] = ()) -> Peek:
    """What all operators of the message would answer; each by itself where some fail together."""
    task = _StateTask(message, blobs)
    task.advance_all()
    if task.failures and not all(each.separate for each in task.failures.values()):
        task = _StateTask(replace(message, separate=message.separate | task.failures.keys()), blobs)
        task.advance_all()
    results = {name: table for name, table in task.results.items() if name not in task.failures}
    return Peek(results, task.rejected, task.failures)


def latest_windows(message: StateMessage, operator: Operator) -> pa.Table | None:
    """The last window of each of an operator's partitions; nothing is written."""
    return _StateTask(message, ()).latest(operator)


def emission_limits_of(message: StateMessage, blobs: Sequence[ScanBlob]) -> dict[str, Instant]:
    """Operators with too much to tell at once, and how far they should go first; nothing is written."""
    return _StateTask(message, blobs).emission_limits()


class _StateTask:
    def __init__(self, message: StateMessage, blobs: Sequence[ScanBlob]) -> None:
        self._store = LocalStore(message.root)
        self._message, self._blobs = message, blobs
        self._deltas = deltas_by_state(blobs)
        self.plan = load_plan(self._store, message.plan)
        if message.live is not None:
            close_state_runs(self._store, message.live)
        self._runs = [open_task_run(self._store, ref, message.low, message.high) for ref in message.runs]
        seen = stream_receipts((blob.receipt for blob in blobs), self.plan)
        self._progress = after_scans(self.plan.streams, message.streams, seen)
        self._state: dict[str, pa.Table] = {}
        self.results: dict[str, pa.Table] = {}
        self.rejected: dict[str, list[Rejected]] = {}
        self.failures: dict[str, QueryFailure] = {}
        """Operators that could not do their part, in scan tasks or here."""
        for blob in blobs:
            self.failures |= blob.receipt.failures
        self._seen: dict[str, OperatorObservation] = {}
        self._ledger = Ledger()
        """What each state took to advance and to merge."""
        self._turns: dict[tuple[str, Instant, Instant | None, Instant | None], Advance] = {}
        """By stream, where the operator stands, where it goes, and what was told: thousands take the same one."""
        self._replaced: tuple[str, ...] = ()
        self._level = 0
        for blob in blobs:
            for operator, rejected in blob.rejected.items():
                if rejected:
                    self.rejected.setdefault(operator, []).extend(rejected)

    def _advance(self, operator: Operator) -> Advance:
        message = self._message
        told = message.provisionally_emitted_to.get(operator.id)
        place = (operator.stream, message.emitted_to[operator.id], message.punctuation.get(operator.id), told)
        known = self._turns.get(place)
        if known is None:
            stream, closed, now, _ = place
            progress = self._progress.get(stream, StreamProgress())
            live = now is None and not message.final
            each = union_progress.bounds(self.plan.streams[stream], self._progress) if live else ()
            if now is None:
                now = FOREVER if message.final else progress.punctuation
            now = max(closed, now)
            ends = closed < now == FOREVER
            known = self._turns[place] = Advance(closed, now, progress.max_event_time, ends, each, told)
        return known

    def emission_limits(self) -> dict[str, Instant]:
        """Operators that have too much to tell for one epoch, and how far they should go in it."""
        taking = {
            name: mine
            for name, operators in self._owners().items()
            if (mine := [each for each in operators if each.id in self._message.emitted_to])
        }
        found: dict[str, Instant] = {}
        for name, mine in taking.items():
            try:
                found |= emission_limits({name: mine}, self._advance, self._runs, self._deltas)
            except Exception as failure:  # noqa: BLE001 - of whatever kind it is, it is theirs
                self._fail(mine, failure)
        return found

    def _try(self, operators: Sequence[Operator], step: Callable[..., None], *arguments: Any) -> None:
        """Do a step of operators; whatever it raises is theirs."""
        try:
            step(*arguments)
        except Exception as failure:  # noqa: BLE001 - of whatever kind it is, it is theirs
            self._fail(operators, failure)

    def _fail(self, operators: Sequence[Operator], failure: Exception) -> None:
        """Note that operators have failed, so that the epoch goes on without them; errors that are not theirs are raised."""
        reason, separate = of_query(failure), self._message.separate
        alone = all(each.id in separate for each in operators)
        self.failures |= {each.id: QueryFailure(reason, alone) for each in operators}

    def advance_all(self) -> None:
        """Run the operators that take part."""
        with registered(callable_by_name(self.plan.functions)):
            for name, operators in self._owners().items():
                taking = [each for each in operators if each.id in self._message.emitted_to]
                with self._ledger.timed(name):
                    if operators[0].family_key is None:
                        for operator in taking:
                            self._try((operator,), self.advance, operator)
                    elif operators[0].on_request is not None:
                        self._try(taking, self._store_selections, name, taking)
                    else:
                        for queries in self._parted(taking):
                            self._try(queries, self._advance_family, name, queries)

    def _owners(self) -> dict[str, list[Operator]]:
        """The plan's operators by the name of their state."""
        found: dict[str, list[Operator]] = {}
        for operator in self.plan.operators.values():
            found.setdefault(state_name(operator), []).append(operator)
        return found

    def _parted(self, queries: Sequence[Operator]) -> list[list[Operator]]:
        """Queries of a family that advance together, and those that do separately."""
        separate = self._message.separate
        together = [each for each in queries if each.id not in separate]
        return ([together] if together else []) + [[each] for each in queries if each.id in separate]

    def _advance_family(self, name: str, queries: Sequence[Operator]) -> None:
        """Run members of one family, those that take the same turn together."""
        made: dict[str, list[pa.Table]] = {}
        for cohort, advance in cohorts(queries, {each.id: self._advance(each) for each in queries}):
            rows = np.zeros(len(cohort.queries), np.int64)
            runs: list[Sections] = []
            for run in self._runs:
                sections = run.of(name)
                query_row_counts = {
                    section: run.query_row_counts(f"{name}/{section}") for section in sections
                }
                runs.append(
                    {
                        s: mine
                        for s, t in sections.items()
                        if (mine := cohort.only(t, query_row_counts[s])).num_rows
                    }
                )
                rows += sum(
                    (each.among(cohort.numbers) for each in query_row_counts.values()), np.zeros_like(rows)
                )
            deltas = [
                {s: mine for s, t in delta.items() if (mine := cohort.only(t, QueryRowCounts.of(t))).num_rows}
                for delta in self._deltas.get(name, ())
            ]
            state, steps = cohort.advance(runs, deltas, advance)
            for section, table in state.items():
                made.setdefault(section, []).append(table)
                rows += QueryRowCounts.of(table).among(cohort.numbers)
            self._ledger[name].rows_in += sum(table.num_rows for delta in deltas for table in delta.values())
            for (operator, step), state_rows in zip(steps.items(), rows.tolist(), strict=True):
                self._ledger[name].rows_out += self._collect(operator, step, state_rows)
        for section, tables in made.items():
            key = f"{name}/{section}"
            self._state[key] = gathered([self._state[key], *tables] if key in self._state else tables)

    def _store_selections(self, name: str, queries: Sequence[Operator]) -> None:
        """What selections want of this epoch's rows is kept; nobody is told."""
        came, rows = arrived(self._deltas.get(name, ()), queries)
        if came.num_rows:
            self._state[f"{name}/{BITS}"] = came
        for operator, count in rows.items():
            self._collect(operator, Step(), count)

    def advance(self, operator: Operator) -> None:
        """Run one operator and keep what it gives."""
        runs = [sections for run in self._runs if (sections := run.of(operator.id))]
        deltas = self._deltas.get(operator.id, ())
        step = self._step(operator, runs, deltas)
        for section, table in step.state.items():
            if table.num_rows:
                self._state[f"{operator.id}/{section}"] = table
        rows = sum(table.num_rows for sections in (*runs, step.state) for table in sections.values())
        self._ledger[operator.id].rows_in += sum(each.num_rows for delta in deltas for each in delta.values())
        self._ledger[operator.id].rows_out += self._collect(operator.id, step, rows)

    def _step(self, operator: Operator, runs: Sequence[Sections], deltas: Sequence[Sections]) -> Step:
        """An operator's step; where its stream promises for single groups, these go as far as their promise."""
        groups = self._groups(operator)
        if groups is None:
            return operator.advance(runs, deltas, self._advance(operator))
        return operator.advance_groups(runs, deltas, self._advance(operator), groups)

    def _groups(self, operator: Operator) -> GroupAdvance | None:
        """How far its groups are ahead of its stream, and how far they go now."""
        own = (
            operator.id in self._message.punctuation
            or operator.id in self._message.resting
            or self._message.final
        )
        promised = {} if own else self._progress.get(operator.stream, StreamProgress()).groups
        before = self._message.group_punctuations.get(operator.id, {})
        return group_advance(operator, self.plan.streams[operator.stream].progress, before, promised)

    def _collect(self, operator: str, step: Step | QueryStep, state_rows: int) -> int:
        """Keep what an operator answered and what was measured; the number of result rows."""
        results = 0
        if step.results is not None and step.results.num_rows:
            self.results[operator] = step.results
            results = step.results.num_rows
        if step.rejected:
            self.rejected.setdefault(operator, []).extend(step.rejected)
        rejected, told = sum(each.rows for each in step.rejected), step.emitted_counts
        self._seen[operator] = OperatorObservation(  # nothing was scanned here
            0, 0, 0, state_rows, results, rejected, step.open_windows, pairs=told.pairs, held=told.rows
        )
        return results

    def latest(self, operator: Operator) -> pa.Table | None:
        """What an operator's state says of windows that have closed."""
        with registered(callable_by_name(self.plan.functions)):
            return operator.latest([sections for run in self._runs if (sections := run.of(operator.id))])

    def order_results(self) -> None:
        """Results in the order of instants, as they are written."""
        for query, table in self.results.items():
            try:
                self.results[query] = by_instant(table)
            except Exception as failure:  # noqa: BLE001 - of whatever kind it is, it is the query's
                self._fail((self.plan.operators[query],), failure)

    def compact(self) -> None:
        """Merge runs of one size class into this epoch's run, and every run that no longer lies in our slots.

        A run of which a good part belongs to queries that are no more is merged too: dropping a query frees its state. So
        are those that windows, or rows that came later, have left behind.
        """
        alive = self._owners()
        queries = query_numbers_of(alive)
        chosen = set(due_for_merge([run.ref for run in self._runs if run.covers_task]))
        chosen |= {
            run.ref.name
            for run in self._runs
            if not run.covers_task or run.share_of_others(queries) > _DEAD_SHARE
        }
        whole = {run.ref.name: run for run in self._runs if run.covers_task}
        for pair in due_for_review([run.ref for run in whole.values()], self._message.epoch):
            if self._are_obsolete([whole[name] for name in pair], alive):
                chosen |= set(pair)
        if not chosen:
            return
        merging, before = [run for run in self._runs if run.ref.name in chosen], dict(self._state)
        for name, operators in alive.items():
            with self._ledger.timed(name):
                try:
                    self._merge(name, merging, operators)
                except Exception as failure:  # noqa: BLE001 - of whatever kind it is, it is theirs
                    self._fail([each for each in operators if each.id in self._message.emitted_to], failure)
                    self._state = before  # where all of them rest, the runs are merged another time
                    return
        self._level = level_after(
            [(run.ref.level, run.rows) for run in merging],
            sum(table.num_rows for table in self._state.values()),
        )
        self._replaced = tuple(run.ref.name for run in merging)

    def _are_obsolete(self, runs: Sequence[TaskRun], alive: Mapping[str, Sequence[Operator]]) -> bool:
        """Whether hardly anything of these runs would be needed if they were merged."""
        needed = 0
        for name, operators in alive.items():
            with self._ledger.timed(name):
                owners = self._owning(operators)
                try:
                    ready = before_merge(owners, sections_of(runs, name))
                    needed += sum(table.nbytes for _, table in self._needed(operators, owners, ready))
                except Exception as failure:  # noqa: BLE001 - merging them says whose it is
                    of_query(failure)
                    return False
        return needed < _LIVE_SHARE * sum(table.nbytes for run in runs for table in run.sections.values())

    def _owning(self, operators: Sequence[Operator]) -> Owners:
        """Whose one state's is; each forgets by its own turn, and rows of members that are no more are nobody's."""
        return operators[0].owners(operators, self._after)

    def _merge(self, name: str, merging: Sequence[TaskRun], operators: Sequence[Operator]) -> None:
        """One state's sections of the runs, as one; what rests this epoch stays as it was left."""
        owners = self._owning(operators)
        found = sections_of(merging, name)
        self._join(name, found, list(found))
        ready = before_merge(owners, found)
        self._join(name, ready, [section for section in ready if section not in found])
        for section, kept in self._needed(operators, owners, ready):
            if kept.num_rows:
                self._state[f"{name}/{section}"] = kept

    def _needed(
        self, operators: Sequence[Operator], owners: Owners, found: Mapping[str, Sequence[pa.Table]]
    ) -> Iterator[tuple[str, pa.Table]]:
        """What is still needed of a state; an operator alone in it also forgets groups of which all is told."""
        alone = operators[0] if operators[0].family_key is None else None
        groups = self._groups(alone) if alone is not None else None
        for section, merged in compacted(owners, found):
            if alone is not None and groups is not None:
                yield section, alone.without_done(section, merged, groups)
            else:
                yield section, merged

    def _join(self, name: str, found: dict[str, list[pa.Table]], sections: Sequence[str]) -> None:
        """Move what this epoch made of a state's sections to what is merged."""
        for section in sections:
            fresh = self._state.pop(f"{name}/{section}", None)
            if fresh is not None:
                found[section].append(fresh)

    def _after(self, operator: Operator) -> Advance:
        """The turn by which an operator may forget: no further than it has answered."""
        if operator.id in self._message.emitted_to:
            advance = self._advance(operator)
            return Advance(
                advance.punctuation,
                advance.punctuation,
                advance.max_event_time,
                input_punctuations=advance.input_punctuations,
            )
        closed = self._message.resting[operator.id]
        return Advance(closed, closed, self._progress.get(operator.stream, StreamProgress()).max_event_time)

    def write(self) -> StateReceipt:
        """Write state, results and rejects; the receipt names them."""
        message = self._message
        run = self._write_state() if self._state else None
        rejects = {}
        for operator, rejected in self.rejected.items():
            name = file_names.query_rejects(operator, message.epoch, message.task)
            self._store.write_once(name, [encode_query_rejects(rejected)], durable=False)
            rejects[operator] = RejectsFile(name, sum(each.rows for each in rejected))
        return StateReceipt(
            task=message.task,
            run=run,
            replaced=self._replaced,
            results=self._write_results(),
            rejects=rejects,
            scans=tuple(blob.receipt for blob in self._blobs) if message.task == 0 else (),
            operators=self._seen,
            work=self._work(),
            punctuation={name: progress.punctuation for name, progress in self._progress.items()},
        )

    def _work(self) -> dict[str, WorkObservation]:
        """What each state took, and what it keeps: in runs that stay, and in this epoch's."""
        kept = Counter(bytes_by_state(self._state))
        for run in self._runs:
            if run.ref.name not in self._replaced:
                whole = (
                    bytes_of_run(self._store, run.ref.name)
                    if run.covers_task
                    else bytes_by_state(run.sections)
                )
                kept.update(whole)
        return self._ledger.seen("state", kept)

    def _write_state(self) -> RunRef:
        name = file_names.state_run(self._message.epoch, self._message.task)
        size = self._store.write_once(name, parts(self._state), durable=False)
        return RunRef(name, self._message.low, self._message.high, self._level, size, self._message.epoch)

    def _write_results(self) -> tuple[ResultsFile, ...]:
        """A file for each retention there is among the queries that have answered."""
        classes: dict[str, dict[str, pa.Table]] = {}
        for query, table in self.results.items():
            classes.setdefault(str(self.plan.retentions.get(query, RETAIN_ALL)), {})[query] = table
        found = []
        for retention_class, tables in sorted(classes.items()):
            name = file_names.results_run(self._message.epoch, self._message.task)
            self._store.write_once(name, parts(tables, compressed=True, piece=PIECE), durable=False)
            facts = {query: _facts(table) for query, table in tables.items()}
            found.append(ResultsFile(name, retention_class, facts))
        return tuple(found)


def _facts(table: pa.Table) -> tuple[int, int, int]:
    at = ints(table, AT)
    return table.num_rows, int(at.min()), int(at.max())
