"""Results on their way out: cursors over committed results, each with a stated guarantee.

- a folder: every committed row exactly once. A file is named by its query and epoch and published if absent, so delivering
  an epoch again after a crash finds it done.
- a callable: at least once, in epoch order. It gets (epoch, table); an epoch counts as delivered when it returns, so after a
  crash the last one may come again, and the epoch's number tells.
- 'console': as a callable that prints.

Where a sink has come to is the name of a file in the home, so the next run goes on from there. A slow sink holds up nothing but
itself: it runs in a thread of its own. Provisional rows are never delivered; a relation's rows are its changes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeAlias

import pyarrow as pa

from headrace.errors import HeadraceError, UserError, did_you_mean
from headrace.runtime.delivering import Cursor, Due, due
from headrace.runtime.exporting import file_name
from headrace.runtime.output import FORMATS, render, to_text
from headrace.runtime.retelling import require_told
from headrace.store.filesystem import LocalStore

if TYPE_CHECKING:
    from headrace.runtime.hub import Hub

Receiver: TypeAlias = Callable[[int, pa.Table], object]
_IDLE_SECONDS = 0.5


@dataclass(slots=True)
class Sink:
    """One query's results to one receiver. `deliver` may be called by hand; `start` does so in a thread."""

    hub: Hub
    query: str
    receive: Receiver
    cursor: Cursor
    failure: BaseException | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None

    def deliver(self) -> int:
        """Hand over every epoch that is committed and was not delivered; how many."""
        count = 0
        with self._lock:
            for part in self._due():
                if part.rows is not None:
                    self.receive(part.epoch, part.rows)
                    count += 1
                self.cursor.write(part.position)
        return count

    def _due(self) -> Iterator[Due]:
        """What is committed and was not delivered."""
        home = self.hub.home
        start = self.cursor.read()
        if start < home.list_of(manifest := home.latest(), "results").length:
            yield from due(home, manifest, *self.hub.operator_and_query(self.query), start)

    def start(self) -> None:
        """Deliver in a thread, as epochs come, until `close`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"headrace-sink-{self.query}", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Deliver what is committed and stop.

        Raises `HeadraceError` when the receiver had failed; the next run delivers again from the epoch it failed on.
        """
        self._stop.set()
        with self.hub.loop.published:
            self.hub.loop.published.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self.failure is None:
            self.deliver()
            return
        failure, self.failure = self.failure, None
        raise HeadraceError(f"the sink of query '{self.query}' failed: {failure}") from failure

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if not self.deliver():
                    with self.hub.loop.published:
                        self.hub.loop.published.wait(_IDLE_SECONDS)
        except BaseException as error:  # noqa: BLE001 - kept for whoever closes the sink
            self.failure = error


def open_sink(
    hub: Hub, query: str, to: str | Path | Receiver, style: str = "csv", name: str | None = None
) -> Sink:
    """A sink for a query's results; `name` tells two sinks of one query to like targets apart.

    Raises `UserError` for an unknown query or format.
    """
    require_told(query, hub.operator_and_query(query)[0])
    if style not in FORMATS:
        raise UserError(f"there is no format '{style}'", remedy=did_you_mean(style, FORMATS))
    if callable(to):
        receive, target = to, "callable"
    elif to == "console":
        receive, target = _to_console(query, sys.stdout), "console"
    else:
        folder = Path(to).expanduser().absolute()
        receive, target = _to_folder(folder, query, style), str(folder)
    return Sink(
        hub,
        query,
        receive,
        Cursor(hub.home.store, name or f"{query}-{sha256(target.encode()).hexdigest()[:12]}"),
    )


def _to_folder(folder: Path, query: str, style: str) -> Receiver:
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
