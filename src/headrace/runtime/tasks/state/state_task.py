"""The state task: it advances operators over an epoch's deltas and the state runs of earlier epochs, so that windows close,
merges runs (compaction), and writes state, results and failed rows.

It owns a range of slots. It runs every epoch, also without rows: punctuation alone can close windows. All files it writes
are new; they count once the driver has published their names.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.observation import OperatorObservation, WorkObservation
from headrace.operators.base.batch import Rejected
from headrace.operators.base.operator import Advance, FamilyStep, Operator, Sections, Step
from headrace.operators.base.query_failures import QueryFailure, of_query
from headrace.operators.families.cohort import Cohort, cohort_of, cohorts
from headrace.operators.families.family import QueryRowCounts, state_name
from headrace.operators.families.scan_output import gathered
from headrace.operators.joins.caches.caching import Caching, caching
from headrace.operators.joins.probing.probe_profiles import probing
from headrace.operators.joins.probing.spilled_rows import are_searched
from headrace.operators.on_demand.selection import arrived
from headrace.operators.on_demand.shared_selections import BITS
from headrace.operators.scalar.evaluation.user_functions import registered
from headrace.runtime.home import file_names
from headrace.runtime.home.reject_files import encode_query_rejects
from headrace.runtime.home.run_cache import bytes_by_state, close_state_runs, keep_state_run, known_sizes
from headrace.runtime.messages.exchange_blob import ScanBlob, deltas_by_state
from headrace.runtime.messages.operator_observations import OperatorObservations, of_step
from headrace.runtime.messages.stream_progress import Clock
from headrace.runtime.messages.task_messages import (
    RejectsFile,
    ResultsFile,
    RunRef,
    ScanReceipt,
    StateMessage,
    StateReceipt,
    stream_receipts,
)
from headrace.runtime.plan.adaptive.join_orders import probe_profiles
from headrace.runtime.plan.plan_files import plan_in_force
from headrace.runtime.plan.user_functions import callable_by_name
from headrace.runtime.progress.plan_index import index_of
from headrace.runtime.progress.punctuation import after_scans
from headrace.runtime.results.time_merge import by_instant
from headrace.runtime.tasks.file_writes import AT_ONCE, FileWrites
from headrace.runtime.tasks.state.agenda import agenda_for, leave, visits
from headrace.runtime.tasks.state.emission_limits import emission_limits, is_long
from headrace.runtime.tasks.state.result_runs import ResultRuns
from headrace.runtime.tasks.state.result_streams import ResultStream
from headrace.runtime.tasks.state.round_progress import RoundProgress
from headrace.runtime.tasks.state.state_runs import (
    TaskRun,
    open_task_run,
    rows_of_cohort,
)
from headrace.runtime.tasks.timing import Ledger
from headrace.store.files.container import parts, streamed
from headrace.store.files.filesystem import LocalStore
from headrace.time import Instant

if TYPE_CHECKING:
    from headrace.operators.families.finishing import ResultsByQuery
    from headrace.runtime.tasks.state.compaction import MergedAhead

_MOST_AHEAD = 1 << 25
"""Bytes of runs that are merged between epochs: what is merged stays in memory until the next one."""
_STREAMED_FROM = 1 << 16
"""Rows of a family's deltas from which its results are not in memory together."""
_LARGE = 1 << 21
"""Bytes of state that are not in memory a second time while they are written."""


class StateTask:
    """One epoch of a range of slots: it is advanced, merged and written, or only read."""

    def __init__(
        self,
        message: StateMessage,
        blobs: Sequence[ScanBlob],
        *,
        cached: bool = False,
        numbers: Iterator[int] | None = None,
        writes: FileWrites = AT_ONCE,
    ) -> None:
        """With `cached`, only what is due is visited: see `Agenda`. `numbers` as in `ResultRuns`."""
        self._writes = writes
        self._store = LocalStore.at(message.root, synced=message.synced)
        self._message = message
        self.plan = plan_in_force(self._store, message.plan, message.doubled_errors)
        self._index = index_of(self.plan)
        if message.live is not None:
            close_state_runs(self._store, message.live)
        self._runs = [self._opened(ref) for ref in message.runs]
        seen = stream_receipts((blob.receipt for blob in blobs), self.plan)
        self.round = RoundProgress.of(
            self._index, message, after_scans(self.plan.streams, message.streams, seen)
        )
        self._state: dict[str, pa.Table] = {}
        self.results: dict[str, pa.Table] = {}
        self._unordered: dict[str, None] = {}
        self._instants: dict[str, tuple[Instant, Instant]] = {}
        """The first and the last instant of results that came in order."""
        self.rejected: dict[str, list[Rejected]] = {}
        self.failures: dict[str, QueryFailure] = {}
        """Operators that failed, in scan tasks or here."""
        self._seen: dict[str, OperatorObservation] = {}
        self._probes = probe_profiles(message.join_orders, message.epoch)
        self._ledger = Ledger()
        """Time and rows of each state to advance and to merge."""
        self._replaced: tuple[str, ...] = ()
        self._level = 0
        self._ahead: MergedAhead | None = None
        self._written: list[RunRef] = []
        self._advanced: list[tuple[str, Cohort]] = []
        self.result_runs = ResultRuns(message, self.plan, itertools.count() if numbers is None else numbers)
        self._result_streams: dict[str, list[ResultStream]] = {}
        """By retention, the results that are made as they are written."""
        self._result_files: tuple[ResultsFile, ...] = ()
        self._agenda = agenda_for(self._index, message, self._runs) if cached else None
        memories = None if self._agenda is None else self._agenda.memories
        self._caching = Caching(message.join_caches, memories, measures=True)
        self._scans: list[ScanReceipt] = []
        self._take_in(blobs)

    def _take_in(self, blobs: Sequence[ScanBlob]) -> None:
        """Take in the blobs of a level's scan tasks, and find what is to be visited."""
        self._deltas = deltas_by_state(blobs)
        for blob in blobs:
            self._scans.append(blob.receipt)
            self.failures |= blob.receipt.failures
            for operator, rejected in blob.rejected.items():
                if rejected:
                    self.rejected.setdefault(operator, []).extend(rejected)
        self._visited = visits(self.round, self._agenda, self._runs, self._deltas)
        """The states to visit, with the operators that take part."""

    def rise(self, blobs: Sequence[ScanBlob]) -> None:
        """Continue with the next level, whose scan of this epoch's results has sent these blobs.

        What a state got at a lower level is a run for it from here on.
        """
        seen = stream_receipts((blob.receipt for blob in blobs), self.plan)
        self.round = self.round.next_level(seen)
        self._take_in(blobs)
        fresh = {
            name: table for name, table in self._state.items() if name.partition("/")[0] in self._visited
        }
        if fresh:
            ref = RunRef("", self._message.low, self._message.high, 0, 0, self._message.epoch)
            self._runs.append(TaskRun(self._store, ref, fresh, False))
            for name in fresh:
                del self._state[name]

    def emission_limits(self) -> dict[str, Instant]:
        """Operators with too many windows for one epoch, and where they stop in it."""
        limits: dict[str, Instant] = {}
        for name, operators in self._visited.items():
            try:
                advance = self.round.advance_of_all(name)
                if advance is not None and not is_long(operators[0], advance):
                    continue
                limits |= emission_limits({name: operators}, self.round.advance, self._runs, self._deltas)
            except Exception as failure:  # noqa: BLE001 - of any kind: it is theirs
                self._fail(operators, failure)
        return limits

    def _try(self, operators: Sequence[Operator], step: Callable[..., None], *arguments: Any) -> None:
        """Run a step of operators; an error in it is theirs."""
        try:
            step(*arguments)
        except Exception as failure:  # noqa: BLE001 - of any kind: it is theirs
            self._fail(operators, failure)

    def _fail(self, operators: Sequence[Operator], failure: Exception) -> None:
        """Record that operators failed, so that the epoch continues without them; errors that are not theirs are raised."""
        isolated = all(operator.id in self._message.isolated for operator in operators)
        failed = QueryFailure(of_query(failure), isolated)
        self.failures |= {operator.id: failed for operator in operators}

    def advance_all(self) -> None:
        """Run the operators that are visited."""
        functions = registered(callable_by_name(self.plan.functions))
        with functions, probing(self._probes), caching(self._caching):
            for name, taking in self._visited.items():
                with self._ledger.timed(name):
                    if taking[0].family_key is None:
                        for operator in taking:
                            self._try((operator,), self.advance, operator)
                    elif taking[0].on_request is not None:
                        self._try(taking, self._store_selections, name, taking)
                    else:
                        for queries in self._advancing_together(taking):
                            self._try(queries, self._advance_family, name, queries)

    def _advancing_together(self, queries: Sequence[Operator]) -> list[list[Operator]]:
        """The queries of a family that advance together, and each isolated one."""
        isolated = self._message.isolated
        together = [query for query in queries if query.id not in isolated]
        return ([together] if together else []) + [[query] for query in queries if query.id in isolated]

    def _advance_family(self, name: str, queries: Sequence[Operator]) -> None:
        """Run the queries of one family, those with the same advance together."""
        new_sections: dict[str, list[pa.Table]] = {}
        for cohort, advance in self._cohorts(name, queries):
            stored = [run.of_cohort(name, cohort) for run in self._runs if name in run.states]
            runs = [sections for sections, _ in stored]
            rows = sum((of_run for _, of_run in stored), np.zeros_like(cohort.numbers))
            deltas = []
            for delta in self._deltas.get(name, ()):
                counts = {section: QueryRowCounts.of(table) for section, table in delta.items()}
                deltas.append(rows_of_cohort(delta, counts, cohort))
            arrived = sum(table.num_rows for delta in deltas for table in delta.values())
            retention = self._retention_of_stream(cohort, arrived)
            stream = None if retention is None else cohort.stream(runs, deltas, advance)
            step = cohort.advance(runs, deltas, advance) if stream is None else FamilyStep(stream.state, {})
            self._advanced.append((name, cohort))
            self._schedule(cohort.queries, [*runs, step.state], advance)
            for section, table in step.state.items():
                new_sections.setdefault(section, []).append(table)
                rows += QueryRowCounts.of(table).among(cohort.numbers)
            self._ledger[name].rows_in += arrived
            if stream is None or retention is None:
                self._ledger[name].rows_out += self._collect_all(cohort, step.steps, rows.tolist())
            else:
                result_stream = ResultStream.of(name, cohort, stream, rows.tolist())
                self._result_streams.setdefault(retention, []).append(result_stream)
        for section, tables in new_sections.items():
            key = f"{name}/{section}"
            self._state[key] = gathered([self._state[key], *tables] if key in self._state else tables)

    def _retention_of_stream(self, cohort: Cohort, rows: int) -> str | None:
        """The retention of results that are made as they are written: those of many cells, for one file, that no level reads."""
        upper = self._message.upper
        if rows < _STREAMED_FROM or self._agenda is None or (upper is not None and upper.count):
            return None
        return self.result_runs.retention_of_all(cohort.queries)

    def _streamed(self, streams: Sequence[ResultStream]) -> Iterator[ResultsByQuery]:
        """The results of cohorts as they are made; those that a cohort makes at once are collected at its end."""
        for stream in streams:
            try:
                yield from stream.portions(self._ledger)
                with self._ledger.timed(stream.name):
                    rows = self._collect_all(stream.cohort, *stream.left())
                self._ledger[stream.name].rows_out += rows + int(stream.taken.sum())
                self.order_results()
            except Exception as failure:  # noqa: BLE001 - of any kind: it is theirs
                self._fail(stream.cohort.queries, failure)

    def _cohorts(self, name: str, queries: Sequence[Operator]) -> Sequence[tuple[Cohort, Advance]]:
        """The queries of a state with the same advance together: in most epochs all of them."""
        advance = self.round.advance_of_all(name)
        if advance is not None:
            return [(cohort_of(tuple(queries)), advance)]
        return cohorts(queries, {query.id: self.round.advance(query) for query in queries})

    def _schedule(self, operators: Sequence[Operator], runs: Sequence[Sections], advance: Advance) -> None:
        if self._agenda is not None:
            self._agenda.plan_visit(self.round, operators, runs, advance)

    def _store_selections(self, name: str, queries: Sequence[Operator]) -> None:
        """Store the rows of this epoch that pass selections; nothing is emitted."""
        bits, rows = arrived(self._deltas.get(name, ()), queries)
        if bits.num_rows:
            self._state[f"{name}/{BITS}"] = bits
        for operator, count in rows.items():
            self._collect(operator, Step(), count)
        self._schedule(queries, (), self.round.advance(queries[0]))

    def advance(self, operator: Operator) -> None:
        """Run one operator and collect its step."""
        runs = [sections for run in self._runs if (sections := run.of(operator.id))]
        deltas = self._deltas.get(operator.id, ())
        step = self._step(operator, runs, deltas)
        for section, table in step.state.items():
            if table.num_rows:
                self._state[f"{operator.id}/{section}"] = table
        stored = [sections.items() for sections in (*runs, step.state)]
        rows = sum(table.num_rows for items in stored for name, table in items if are_searched(name))
        self._ledger[operator.id].rows_in += sum(
            table.num_rows for delta in deltas for table in delta.values()
        )
        self._ledger[operator.id].rows_out += self._collect(operator.id, step, rows)
        self._schedule((operator,), [*runs, step.state], self.round.advance(operator))

    def _step(self, operator: Operator, runs: Sequence[Sections], deltas: Sequence[Sections]) -> Step:
        """An operator's step; where its stream promises for single groups, these advance up to their promise."""
        groups = self.round.groups(operator)
        if groups is None:
            return operator.advance(runs, deltas, self.round.advance(operator))
        return operator.advance_groups(runs, deltas, self.round.advance(operator), groups)

    def _collect_all(
        self,
        cohort: Cohort,
        steps: Mapping[str, Step],
        state_rows: Sequence[int],
        taken: Sequence[int] = (),
    ) -> int:
        """Collect a cohort's steps, without results that were `taken`; returns their rows. Queries with one step have one measurement."""
        results, quiet = 0, dict[tuple[int, int, int], OperatorObservation]()
        none = [0] * len(state_rows)
        for query, rows, taken_rows in zip(cohort.queries, state_rows, taken or none, strict=True):
            step = steps[query.id]
            if step.results is not None or step.rejected or query.id in self._seen:
                results += self._collect(query.id, step, rows, taken_rows)
                continue
            key = id(step), rows, taken_rows
            if key not in quiet:
                quiet[key] = of_step(step, rows, taken_rows)
            self._seen[query.id] = quiet[key]
        return results

    def _collect(self, operator: str, step: Step, state_rows: int, taken: int = 0) -> int:
        """Collect an operator's results and measurements; returns the number of result rows."""
        results = 0 if step.results is None else step.results.num_rows
        if results:
            former = self.results.get(operator)
            if former is None and step.instants is not None:
                self._instants[operator] = step.instants
            else:
                self._instants.pop(operator, None)
            self.results[operator] = (
                step.results if former is None else pa.concat_tables([former, step.results])
            )
            self._unordered[operator] = None
        if step.rejected:
            self.rejected.setdefault(operator, []).extend(step.rejected)
        seen = of_step(step, state_rows, taken)
        self._seen[operator] = self._seen[operator].plus(seen) if operator in self._seen else seen
        return results

    def latest(self, operator: Operator) -> pa.Table | None:
        """The latest closed windows in an operator's state."""
        with registered(callable_by_name(self.plan.functions)):
            return operator.latest([sections for run in self._runs if (sections := _own(operator, run))])

    def order_results(self) -> None:
        """Sort new results by instant, as they are written, but for pairs, which have no order."""
        for query in self._unordered:
            self.result_runs.run_of(query)
            if query in self._instants or self.plan.operators[query].makes_pairs:
                continue
            try:
                self.results[query] = by_instant(self.results[query])
            except Exception as failure:  # noqa: BLE001 - of any kind: it is the query's
                self._fail((self.plan.operators[query],), failure)
        self._unordered.clear()

    def compact(self) -> None:
        """Merge the runs that are due into this epoch's run; take over what was merged since the last epoch instead, if anything was."""
        self._ahead = self._taken_over()
        if not self._runs:
            return
        from headrace.runtime.tasks.state.run_merging import MergeFailed, RunMerging  # noqa: PLC0415 - of runs

        merging = RunMerging(self.round, self._agenda, self._runs, self._ledger)
        chosen = merging.divided()
        if self._ahead is None:
            chosen |= merging.due(self._message.epoch)
        if not chosen:
            return
        try:
            merged = merging.merged(chosen, self._state)
        except MergeFailed as failed:  # the runs are merged in a later epoch
            taking_part = [query for query in failed.operators if self.round.takes_part(query.id)]
            self._fail(taking_part, failed.failure)
            return
        self._state, self._level, self._replaced = dict(merged.sections), merged.level, merged.replaced

    def _taken_over(self) -> MergedAhead | None:
        """What was merged since the last epoch, of runs that are all still there."""
        ahead = None if self._agenda is None else self._agenda.take_merged()
        if ahead is None or not {run.ref.name for run in self._runs}.issuperset(ahead.merged.replaced):
            return None
        for name, account in ahead.ledger.items():
            self._ledger[name].nanoseconds += account.nanoseconds
        return ahead

    def write_results(self) -> None:
        """Write results, of which some are made only now; if operators fail meanwhile, no receipt names what was written."""
        streams = {retention: self._streamed(of) for retention, of in self._result_streams.items()}
        with registered(callable_by_name(self.plan.functions)):
            self._result_files = self.result_runs.write(
                self._store, self.results, self._instants, self._writes, streams
            )

    def write(self) -> StateReceipt:
        """Write state and rejects; the receipt names them, and the results."""
        message = self._message
        self._written = [*self._write_merged(), *self._write_state()]
        rejects = {}
        for operator, rejected in self.rejected.items():
            name = file_names.query_rejects(operator, message.epoch, message.task)
            self._store.write_once(name, [encode_query_rejects(rejected)], durable=False)
            rejects[operator] = RejectsFile(name, sum(part.rows for part in rejected))
        return StateReceipt(
            task=message.task,
            runs=tuple(self._written),
            replaced=self._all_replaced,
            results=self._result_files,
            rejects=rejects,
            scans=tuple(self._scans) if message.task == 0 else (),
            operators=OperatorObservations.of(self._seen),
            work=self._work(),
            punctuation={name: progress.punctuation for name, progress in self.round.now.streams.items()},
            due=self._next_due(),
            joins=self._probes.observed,
            caches=self._caching.observed,
            delays=self._probes.delays,
            heavy=self._probes.heavy,
        )

    def _next_due(self) -> Mapping[Clock, Instant]:
        if self._agenda is None:
            return {}
        leave(self._agenda, self._message)
        return self._agenda.next_due()

    def _work(self) -> dict[str, WorkObservation]:
        """Time of each state that was visited or merged, and its bytes: in runs that stay, and in this epoch's."""
        fresh = known_sizes(self._store, self._written[-1].name) if self._state else {}
        replaced = self._all_replaced
        staying = [run for run in self._runs if run.ref.name and run.ref.name not in replaced]
        stored = {
            name: fresh.get(name, 0) + sum(run.bytes_of(name) for run in staying) for name in self._ledger
        }
        return self._ledger.seen("state", stored)

    @property
    def _all_replaced(self) -> tuple[str, ...]:
        """The runs that others have replaced in this epoch."""
        return self._replaced if self._ahead is None else (*self._ahead.merged.replaced, *self._replaced)

    def _write_merged(self) -> Iterator[RunRef]:
        """The run that was merged ahead, which has nothing of this epoch."""
        if self._ahead is not None and self._ahead.merged.sections:
            yield self._write_run(self._ahead.merged.sections, self._ahead.merged.level, self._ahead.epoch)

    def _write_state(self) -> Iterator[RunRef]:
        if self._state:
            yield self._write_run(self._state, self._level, self._message.epoch)

    def _write_run(self, sections: Mapping[str, pa.Table], level: int, epoch: int) -> RunRef:
        name, sizes = file_names.state_run(self._message.epoch, self._message.task), bytes_by_state(sections)
        if sum(sizes.values()) < _LARGE:
            encoded = list(parts(sections))
            size = sum(memoryview(part).nbytes for part in encoded)
            self._writes.add(partial(self._store.write_once, name, encoded, durable=False))
        else:  # section by section, in memory that the next one uses again
            each = streamed({section: table} for section, table in sections.items())
            size = self._store.write_once(name, each, durable=False)
        keep_state_run(self._store, name, sections, sizes)
        if self._agenda is not None:
            self._agenda.checked.add(name)
        return RunRef(name, self._message.low, self._message.high, level, size, epoch)

    def prepare_next(self) -> None:
        """Between epochs: find the rows that the next one will read, and merge the runs that it would merge.

        The last that is done with a task, once its receipt is on its way. Nothing is written: what is merged counts if the next epoch does,
        which also makes up for what fails here.
        """
        message, agenda = self._message, self._agenda
        if agenda is None or self.failures or (self._index.levels and message.upper is None):
            return
        from headrace.runtime.tasks.state.compaction import MergedAhead  # noqa: PLC0415 - of a process that stays
        from headrace.runtime.tasks.state.run_merging import RunMerging  # noqa: PLC0415

        with suppress(Exception):  # of any kind: the next epoch meets it, and reports whose it is
            replaced = self._all_replaced
            refs = [run.ref for run in self._runs if run.ref.name and run.ref.name not in replaced]
            runs = [self._opened(ref) for ref in (*refs, *self._written)]
            for name, cohort in self._advanced:
                for run in runs:
                    if name in run.states:
                        run.of_cohort(name, cohort)
            merging = RunMerging(self.round, agenda, runs, Ledger())
            due = merging.due(message.epoch + 1)
            if sum(run.ref.bytes for run in runs if run.ref.name in due) <= _MOST_AHEAD:
                agenda.ahead = MergedAhead(message.epoch, merging.merged(due, {}), merging.ledger)

    def _opened(self, ref: RunRef) -> TaskRun:
        """A run, cut to the task's slots."""
        message = self._message
        return open_task_run(self._store, ref, message.low, message.high, message.plan, self.plan.operators)


def _own(operator: Operator, run: TaskRun) -> Sections:
    """An operator's rows of a run; sections without any are left out."""
    rows = {name: operator.own_rows([table])[0] for name, table in run.of(state_name(operator)).items()}
    return {name: table for name, table in rows.items() if table.num_rows}
