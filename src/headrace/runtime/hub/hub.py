"""The hub: the interface of a program to a running Headrace. One writer of a home, many readers.

Statements change the catalog; epochs run in one background thread (`running`) or until the input is consumed
(`run_once`). All public methods may be called from any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

import pyarrow as pa

from headrace.algebra.windows.user_windows import UserWindow
from headrace.catalog.definition_json import to_json
from headrace.catalog.definitions import QueryDefinition
from headrace.language.statements.query_options import checked_owner, checked_tags
from headrace.language.statements.statement import Form, Statement
from headrace.language.statements.stream_keywords import StreamOptions
from headrace.observation import EpochFailure, EpochObservation
from headrace.planner.lowering.materialization import Materialize
from headrace.runtime.delivery import on_demand_changelog, sinks
from headrace.runtime.delivery.open_actions import OpenActions
from headrace.runtime.delivery.open_sinks import OpenSinks
from headrace.runtime.delivery.sink_states import Patience
from headrace.runtime.epoch import push
from headrace.runtime.epoch.engine import Engine
from headrace.runtime.epoch.executor import Executor
from headrace.runtime.epoch.loop import Loop
from headrace.runtime.epoch.pipeline import Pipeline
from headrace.runtime.epoch.supervisor import Retries
from headrace.runtime.home.home import Home
from headrace.runtime.hub.query_handle import QueryHandle
from headrace.runtime.ingest.backpressure import Backpressure
from headrace.runtime.introspection.epoch_log import EpochLog
from headrace.runtime.introspection.status import status
from headrace.runtime.plan import user_functions, user_windows
from headrace.runtime.plan.derived_streams import owner_of
from headrace.runtime.results import result_log
from headrace.runtime.results.result_log import visible
from headrace.runtime.spark import frames
from headrace.runtime.statements.change_batch import Permit, as_written
from headrace.runtime.statements.execute import Statements
from headrace.runtime.statements.former_queries import plan_again
from headrace.runtime.statements.outcome import Outcome
from headrace.store.files.disk import Disk
from headrace.store.files.lock import HomeLock
from headrace.store.maintenance.home_format import put_format
from headrace.time import Clock, now

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.runtime.delivery.actions.receivers import Receivers
    from headrace.runtime.hub.check import Report


_LOG: Final = logging.getLogger("headrace.hub")


class Hub(Pipeline):
    """Streams, relations and standing queries of one home."""

    def __init__(
        self,
        path: Path,
        executor: Executor,
        *,
        clock: Clock = now,
        tasks: int | None = None,
        retries: Retries | None = None,
        synopsis_bytes: int | None = None,
        receivers: Receivers | None = None,
        disk: Disk | None = None,
    ) -> None:
        self._listeners: list[Callable[[EpochObservation], None]] = []
        self._failure_listeners: list[Callable[[EpochFailure], None]] = []
        with ExitStack() as opened:  # closes what was opened when the rest fails
            opened.enter_context(HomeLock(path))
            home = Home.at(path, disk)
            put_format(home.store)
            engine = Engine(home, executor, clock, tasks or max(1, executor.cores))
            self.open_sinks = OpenSinks(home)
            loop = Loop(engine, self._epoch_published, self._epoch_failed, retries or Retries())
            loop.supervisor.revive = self._revive
            self.log_of_epochs = EpochLog(path)
            opened.callback(self.log_of_epochs.close)
            super().__init__(path, home, loop, self.log_of_epochs.write, synopsis_bytes=synopsis_bytes)
            self.frames = frames.StreamingFrames(self)
            self.backpressure = Backpressure(engine.intake, lambda: self.loop.is_running)
            self.frames.wait_for_room = self.backpressure.wait_for_room
            self._pushing = push.Pushing(home, engine, self.backpressure)
            self._pushing.unlogged.find_lost()
            self.actions = OpenActions(self, partial(self._pushing.push, durable=True), receivers)
            engine.retention.holds = self._held
            self._statements = Statements(self, self.frames.check, self.open_sinks.report, self.actions)
            plan_again(self)
            self.actions.start()
            self._closing = opened.pop_all()

    def log(self, *entries: Mapping[str, Any]) -> None:
        """As a pipeline; actions follow the queries, and DataFrames the streams, that they belong to."""
        super().log(*entries)
        self.frames.logged(entries)
        self.actions.logged(entries)

    def _held(self) -> dict[str, int]:
        """The first result of each operator that a sink or an action has not delivered."""
        held = self.open_sinks.held()
        for operator, position in self.actions.held().items():
            held[operator] = min(position, held.get(operator, position))
        return held

    # -- statements --------------------------------------------------------------------------------------------------

    def execute(self, script: str) -> list[Outcome]:
        """Run statements ended by `;`. Raises `UserError` with line and column; statements before it have taken effect."""
        self.require_open()
        return self._statements.execute(script)

    def execute_or_refuse(
        self, script: str, *, zone: str = "UTC", permit: Permit = as_written
    ) -> list[Outcome]:
        """Run a script of a client: a mistake in a definition leaves none of its definitions.

        `zone`: the time zone of its literals; SET TIME ZONE in it ends with it. `permit` returns the statement to run in place of
        each, or raises, before any is run.
        """
        self.require_open()
        return self._statements.execute_or_refuse(script, zone, permit)

    def carry_out(self, statement: Statement, script: str) -> Outcome:
        """Run one parsed statement of a script. Raises `UserError` with its place in the script."""
        self.require_open()
        return self._statements.carry_out(statement, script)

    def execute_each(
        self, statements: Iterable[Statement], script: str, before: Callable[[Statement], bool]
    ) -> Iterator[Outcome]:
        """Run parsed statements of a script until `before` one returns False; registrations in a row are one change."""
        self.require_open()
        return self._statements.execute_each(statements, script, before)

    def register(
        self,
        select: str,
        name: str,
        *,
        from_now: bool = False,
        owner: str | None = None,
        tags: Sequence[str] = (),
        materialize: Materialize | None = None,
    ) -> QueryHandle:
        """Register a standing query over all archived rows, then live ones; `from_now` skips the archive.

        People find and administer queries by `owner` and `tags`: SHOW QUERIES WHERE tag = '…', PAUSE QUERIES WHERE …
        `materialize`: how much of its answer is stored between two INVOKEs, "none", "partial" or "complete"; None: chosen by the planner.
        """
        (handle,) = self.register_many(
            {name: select}, from_now=from_now, owner=owner, tags=tags, materialize=materialize
        )
        return handle

    def register_many(
        self,
        selects: Mapping[str, str],
        *,
        from_now: bool = False,
        owner: str | None = None,
        tags: Sequence[str] = (),
        materialize: Materialize | None = None,
    ) -> list[QueryHandle]:
        """Register standing queries by name from their texts, all or none: one entry of the log, one plan; the options are those of `register`.

        Raises `UserError` that names the query of the first mistake.
        """
        labels = QueryDefinition(
            "", "", from_now, owner=checked_owner(owner), tags=checked_tags(tags), materialize=materialize
        )
        self.require_open()
        self._statements.create_queries(selects, labels)
        return [QueryHandle(self, self._statements, name) for name in selects]

    def query(self, name: str) -> QueryHandle:
        """The standing query of that name."""
        self.catalog.require_query(name)
        return QueryHandle(self, self._statements, name)

    def drop_query(self, name: str) -> None:
        """Remove a standing query. Raises `UserError` while others read it."""
        self._statements.drop("query", name)

    def create_stream(self, name: str, frame: DataFrame, **options: Unpack[StreamOptions]) -> None:
        """Make a stream of any Spark streaming DataFrame; Spark runs it, and its micro-batches are ingested.

        The keywords are the clauses and options of CREATE STREAM (see `StreamOptions`): `timestamp='at'`, `slack='5 SECONDS'`
        or a `timedelta`, … A home that is opened again needs the same call again. Raises `UserError` where CREATE STREAM would.
        """
        self.require_open()
        schema = frames.schema_of(frame)
        self._statements.create_stream(name, schema, frames.SPARK_STREAM, options)
        self.frames.add(name, frame)

    def register_function(
        self,
        name: str,
        body: Callable[..., Any],
        parameters: Sequence[str],
        result: str,
        *,
        by_row: bool = True,
        strict: bool = True,
    ) -> None:
        """Make a Python function usable wherever a scalar function is, here and in later runs of this home.

        `parameters` and `result` are SQL types. `body` takes one row's values and returns one; with `by_row=False` it takes
        Arrow arrays and returns as many values. `strict`: NULL in, NULL out, without a call. It must be deterministic. Another
        body under the same name is called for rows that are read from the next epoch on; rows of before keep their results.
        """
        definition = user_functions.define(name, body, parameters, result, by_row=by_row, strict=strict)
        self.log(user_functions.entry(self.catalog, self.plan, definition))

    def register_window(self, name: str, kind: type[UserWindow]) -> None:
        """Make a class usable as `[WINDOW name(constants)]`, here and in later runs of this home.

        The contract is `headrace.UserWindow`; `headrace.check_window(kind(constants))` tests it. Registering the same
        code again does nothing. Raises `UserError` for another class while a query uses the name.
        """
        definition = user_windows.define(name, kind)
        if user_windows.is_new(self.catalog, definition):
            self.log({"do": "put_window", "window": to_json(definition)})

    def push(
        self, stream: str, rows: pa.Table | Any, *, producer: str | None = None, sequence: int | None = None
    ) -> int:
        """Push rows to a stream made USING push: an Arrow table, a pandas frame or a list of dicts; how many.

        Durable on return. A call repeated with its producer and sequence counts once; `PushFailed` names both. It may wait for room:
        see `headrace.runtime.ingest.backpressure`.
        """
        self.require_open()
        return self._pushing.push(stream, rows, producer, sequence)

    def pushed(self, stream: str, producer: str) -> int | None:
        """The greatest sequence of a producer whose rows are durable; None for one that is not retained."""
        return self._pushing.pushed(stream, producer)

    def acknowledge_amnesia(self, stream: str | None = None) -> int:
        """Clear the reports of rows that crashes may have lost, `status()["amnesia"]`, of a stream or of all; how many there were."""
        self.require_open()
        return self._pushing.unlogged.acknowledge(stream)

    # -- running -----------------------------------------------------------------------------------------------------

    def run_once(self, *, seal: bool = False) -> dict[str, pa.Table]:
        """Consume all input there is, then answer as if the streams ended: provisional rows by query name.

        With `seal` the end is final: the closing rows are committed, and none are returned. A relation's rows are its
        changes, with `__change` and `__at`.
        """
        self.catch_up()
        closing = self.finish(seal=seal) | ({} if seal else on_demand_changelog.closing_of_selections(self))
        rows_of = {}
        for name, table in closing.items():
            operator, query = self.operator_and_query(name)
            rows = result_log.ordered(table, operator.sort, query.schema.names)
            rows_of[name] = visible(rows, query, changes=True)
        return rows_of

    def catch_up(self, proceed: Callable[[], bool] = lambda: True, *, last: bool = False) -> bool:
        """Consume all input that is there now; False when `proceed` returned False before that.

        Rows that arrive meanwhile may wait for the next call, so this ends also on sources that never end. `last`: the home is
        deleted after this, and no statement follows; rows that no query reads again are not archived.
        """
        self.require_open()
        self.frames.drain()
        self.loop.engine.rounds.is_last = last
        return self.loop.catch_up(proceed)

    def finish(self, *, seal: bool = False) -> dict[str, pa.Table]:
        """Answer as if the streams ended here, without reading further: rows with their system columns; see `run_once`."""
        self.require_open()
        if seal:
            self.loop.seal()
            return {}
        with self.loop.lock:
            closing = self.loop.engine.closing()
        named = {query.operator_id: query.definition.name for query in self.catalog.queries.values()}
        self.closing_rejects = {}
        self.closing_failures = {
            named.get(owner_of(operator), operator): reason for operator, reason in closing.failures.items()
        }
        for operator, reasons in closing.rejected.items():
            name = named.get(owner_of(operator), operator)
            self.closing_rejects[name] = (*self.closing_rejects.get(name, ()), *reasons)
        return {named[operator]: table for operator, table in closing.answers.items() if operator in named}

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Run epochs in the background for the length of a `with` block."""
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def start(self) -> None:
        """Run epochs in the background until `stop`."""
        self.require_open()
        self.frames.start()
        self.loop.start()

    def stop(self) -> None:
        """Finish the epoch under way; the home is ready for the next run."""
        try:
            self.frames.stop()
        finally:
            self.loop.stop()

    def give_up_start(self) -> None:
        """End the start of Spark, if it is under way: an epoch that waits for it fails. For a program that was asked to stop."""
        self.loop.engine.executor.give_up()

    def sink(
        self,
        query: str,
        to: str | Path | sinks.Receiver,
        *,
        format: str = "csv",  # noqa: A002 - the word users know
        name: str | None = None,
        waits: tuple[float, float] = (0.1, 30.0),
        give_up_after: float | None = None,
    ) -> sinks.Sink:
        """Deliver a query's committed results to a folder, a callable or the 'console', from where the last run stopped.

        A folder gets one file an epoch, each row exactly once; a callable gets (epoch, table) at least once, in order, in a
        thread of its own until the hub is closed. `name` distinguishes two sinks to one target, or to two callables. A failed delivery is repeated,
        after `waits` of 0.1, 0.2, … at most 30 seconds, without end or for `give_up_after` seconds.
        """
        self.require_open()
        sink = sinks.open_sink(self, query, to, format, name, Patience(*waits, give_up_after))
        self.open_sinks.add(sink)
        return sink

    def on_epoch(self, listener: Callable[[EpochObservation], None]) -> None:
        """Call `listener` with each epoch's observation after it is committed."""
        self._listeners.append(listener)

    def on_failure(self, listener: Callable[[EpochFailure], None]) -> None:
        """Call `listener` with each attempt at an epoch that failed, before the next one."""
        self._failure_listeners.append(listener)

    # -- reading -----------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """The newest epoch's measurements (see `headrace.observation`) and each stream's totals, as plain values."""
        known = status(self, self.open_sinks.report(), self.actions.report())
        lost = [amnesia.as_json() for amnesia in self._pushing.unlogged.lost()]
        held_back = sorted(self.loop.engine.intake.held_back)
        return {**known, "amnesia": lost, "backpressure": self.backpressure.as_dict(), "held_back": held_back}

    def explain(self, query: str | None = None, form: Form = "text") -> str:
        """The plan, its sharing and its cost: all of it, or one query's part; as "text", "dot" or "svg"."""
        from headrace.runtime.introspection.explain import explain_all, explain_query  # noqa: PLC0415 - with its drawings

        return explain_all(self.home, form) if query is None else explain_query(self.home, query, form)

    def check(self) -> Report:
        """Verify the home: every manifest, run, list and log. Changes nothing; see `headrace check`."""
        from headrace.runtime.hub.check import check  # noqa: PLC0415 - rarely asked for

        return check(self.path)

    def archive(self, stream: str, fraction: float = 1.0) -> DataFrame:
        """All archived rows of a stream as a Spark DataFrame; or the blocks that hold a fraction of them, at random."""
        return frames.archive(self, stream, fraction)

    def vacuum(self) -> None:
        """Reduce the archives of streams with the option `reduce` by the age of their rows, at once."""
        with self.loop.lock:
            self.loop.engine.vacuum()

    def close(self) -> None:
        """Stop, and release the home: after it, a hub can be read, and refuses writes.

        An error of one part leaves no other part open; the first error is raised at the end.
        """
        parts = (
            *(self._stop_if_running, self.actions.close, self.open_sinks.close),
            *(self._pushing.unlogged.close, self._release),
        )
        errors = [error for part in parts if (error := _error_of(part)) is not None]
        if errors:
            raise errors[0]

    def _stop_if_running(self) -> None:
        if self.loop.is_running:
            self.stop()

    def _release(self) -> None:
        self.is_closed = True
        with self._closing:
            self.loop.engine.executor.close()

    def on_close(self, action: Callable[[], object]) -> None:
        """Call `action` when the hub is closed (the last registered first)."""
        self._closing.callback(action)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _epoch_published(self, seen: EpochObservation) -> None:
        self.last = seen
        self.log_of_epochs.epoch(seen)
        self.actions.published()
        for listener in self._listeners:
            try:
                listener(seen)
            except Exception:  # noqa: BLE001 - of any kind: it is logged, and the loop and others go on
                _LOG.exception("epoch %d is published; a listener to epochs failed", seen.epoch)

    def _epoch_failed(self, failure: EpochFailure) -> None:
        self.log_of_epochs.write(failure.as_dict())
        for listener in self._failure_listeners:
            listener(failure)

    def _revive(self) -> None:
        if self.loop.engine.executor.revive():
            self.frames.restart()


def _error_of(part: Callable[[], object]) -> BaseException | None:
    """What a call raises."""
    try:
        part()
    except BaseException as error:  # noqa: BLE001 - raised when all parts are closed
        return error
    return None
