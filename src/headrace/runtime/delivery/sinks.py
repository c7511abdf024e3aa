"""Sinks: delivery of committed results to a receiver, each with a stated guarantee.

- a folder: every committed row exactly once. A file is named by its query and epoch and published if absent, so delivering
  an epoch again after a crash changes nothing.
- a callable: at least once, in epoch order. It gets (epoch, table); an epoch counts as delivered when it returns, so after a
  crash the last one may be repeated, with the same number.
- 'console': as a callable that prints.

The position of a sink is the name of a file in the home, so the next run continues from there. A slow sink delays only
itself: it runs in a thread of its own. A receiver that fails is called again with the same epoch, after growing waits, until the
hub is closed or `give_up_after` seconds have passed; meanwhile its results are retained. Provisional rows are never
delivered; a relation's rows are its changes.
"""

from __future__ import annotations

import sys
import threading
import time as stopwatch
from collections.abc import Callable, Iterator
from dataclasses import field
from hashlib import sha256
from pathlib import Path
from typing import TextIO, TypeAlias

import pyarrow as pa

from headrace.connectors.formats.rendering import FORMATS, render, to_text
from headrace.dataclass import dataclass
from headrace.errors import HeadraceError, UserError, did_you_mean
from headrace.runtime.delivery.cursor import Cursor, Due, due
from headrace.runtime.delivery.on_demand_changelog import require_changelog
from headrace.runtime.delivery.sink_states import Patience, SinkState
from headrace.runtime.epoch.pipeline import Pipeline
from headrace.runtime.home.file_names import file_name
from headrace.runtime.results.result_log import missed_since
from headrace.store.files.filesystem import LocalStore
from headrace.time import Instant

Receiver: TypeAlias = Callable[[int, pa.Table], object]


@dataclass(slots=True)
class Sink:
    """One query's results to one receiver. `deliver` may be called by hand; `start` does so in a thread."""

    pipeline: Pipeline
    query: str
    target: str
    receive: Receiver
    cursor: Cursor
    state: SinkState
    patience: Patience = field(default_factory=Patience)
    failure: BaseException | None = None
    """The last one, until a delivery succeeds."""
    _failing_since: float = 0.0
    _closed: bool = False
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None

    @property
    def is_delivering(self) -> bool:
        """Whether it delivers: it is not closed, and has not given up."""
        return not self._closed and self.state.state != "stopped"

    def deliver(self) -> int:
        """Pass every committed and undelivered epoch to the receiver; how many. Raises what the receiver raises."""
        count = 0
        with self._lock:
            for part in self._due():
                if part.rows is not None:
                    self.receive(part.epoch, part.rows)
                    count += 1
                self.cursor.write(part.position)
                self._worked()
            self._worked()
        return count

    def _due(self) -> Iterator[Due]:
        """The epochs that are committed and were not delivered."""
        home = self.pipeline.home
        start = self.cursor.read()
        if start < home.list_of(manifest := home.latest(), "results").length:
            yield from due(home, manifest, *self.pipeline.operator_and_query(self.query), start)

    def start(self) -> None:
        """Deliver in a thread, as epochs are committed, until `close`."""
        if self._thread is None:
            self._log()
            self._thread = threading.Thread(target=self._run, name=f"headrace-sink-{self.query}", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Deliver what is committed and stop; a second time it does nothing.

        Raises `HeadraceError` when the receiver fails even now, or the sink had given up; the next run delivers again from the
        epoch it failed on.
        """
        if self._closed:
            return
        self._closed = True
        self._stop.set()
        with self.pipeline.loop.published:
            self.pipeline.loop.published.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self.state.state == "stopped":
            raise HeadraceError(f"the sink of query '{self.query}' stopped: {self.failure}") from self.failure
        try:
            self.deliver()
        except Exception as failure:
            self._become(self.state.failed(failure, self._now()).now("closed", self._now()))
            raise HeadraceError(f"the sink of query '{self.query}' failed: {failure}") from failure
        self._become(self.state.now("closed", self._now()))

    def _run(self) -> None:
        while not self._stop.is_set():
            epoch = self.pipeline.loop.engine.published.epoch
            try:
                count = self.deliver()
            except Exception as failure:  # noqa: BLE001 - whatever a receiver raises, it is called again
                wait = self._failed(failure)
                if wait is None:
                    return
                self._stop.wait(wait)
            except BaseException as failure:  # noqa: BLE001 - stored for close(): this is no failure to wait for
                self._give_up(failure)
                return
            else:
                if not count:
                    self.pipeline.loop.wait_for_epoch_after(epoch, self._stop.is_set)

    def _failed(self, failure: Exception) -> float | None:
        """Record a failure; how many seconds to wait before the next attempt, None when there is none."""
        now, limit = stopwatch.monotonic(), self.patience.give_up_after
        if self.failure is None:
            self._failing_since = now
        left = None if limit is None else self._failing_since + limit - now
        if self.pipeline.catalog.query(self.query) is None or (left is not None and left <= 0):
            self._give_up(failure)
            return None
        is_first, self.failure = self.failure is None, failure
        self.state = self.state.failed(failure, self._now())
        if is_first:
            self._log()
        wait = self.patience.wait(self.state.attempts)
        return wait if left is None else min(wait, left)

    def _give_up(self, failure: BaseException) -> None:
        self.failure = failure
        self._become(self.state.failed(failure, self._now()).now("stopped", self._now()))

    def _worked(self) -> None:
        """Record a successful attempt."""
        if self.failure is not None:
            self.failure = None
            self._become(self.state.now("delivering", self._now()))

    def _become(self, state: SinkState) -> None:
        self.state = state
        self._log()

    def _log(self) -> None:
        self.pipeline.record(self.state.as_event(self.cursor.name, self.query, self.target))

    def _now(self) -> Instant:
        return self.pipeline.loop.engine.clock()


def open_sink(
    pipeline: Pipeline,
    query: str,
    to: str | Path | Receiver,
    style: str = "csv",
    name: str | None = None,
    patience: Patience | None = None,
) -> Sink:
    """A sink for a query's results; `name` distinguishes two sinks of one query to equal targets.

    Raises `UserError` for an unknown query or format.
    """
    operator = pipeline.operator_and_query(query)[0]
    require_changelog(query, operator)
    if style not in FORMATS:
        raise UserError(f"there is no format '{style}'", remedy=did_you_mean(style, FORMATS))
    if callable(to):
        receive, target = to, "callable"
    elif to == "console":
        receive, target = _to_console(query, sys.stdout), "console"
    else:
        folder = Path(to).expanduser().absolute()
        receive, target = folder_receiver(folder, query, style), str(folder)
    cursor = Cursor(pipeline.home.store, name or f"{query}-{sha256(target.encode()).hexdigest()[:12]}")
    missed = missed_since(pipeline.home, pipeline.home.latest(), operator.id, cursor.read())
    state = SinkState(pipeline.loop.engine.clock(), missed=missed)
    return Sink(pipeline, query, target, receive, cursor, state, patience or Patience())


def folder_receiver(folder: Path, query: str, style: str) -> Receiver:
    """Writes a file for each epoch to a folder, which is made now.

    Raises `UserError` when it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot make the folder {folder}: {error.strerror}", remedy="Name another one."
        ) from error
    store = LocalStore(folder)

    def receive(epoch: int, table: pa.Table) -> None:
        store.put_if_absent(f"{file_name(query)}-{epoch:012d}.{style}", render(table, style))

    return receive


def _to_console(query: str, stream: TextIO) -> Receiver:
    def receive(epoch: int, table: pa.Table) -> None:
        stream.write(f"{query}, epoch {epoch}\n{to_text(table)}\n")
        stream.flush()

    return receive
