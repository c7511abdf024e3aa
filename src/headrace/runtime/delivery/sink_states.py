"""States of sinks and actions: what each does, since when, why, how long it waits after failures, and how much of its
query's results it has not delivered; and the sinks of a home that is read without its hub.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from typing import Literal as Choice

from headrace.dataclass import dataclass
from headrace.errors import UserError
from headrace.runtime.delivery.cursor import FOLDER, Cursor
from headrace.runtime.home.file_names import name_of
from headrace.runtime.introspection.epoch_log import SINK, sink_lines
from headrace.runtime.messages.result_entry import answered
from headrace.runtime.results.result_log import retained_entries
from headrace.store.files.filesystem import MissingFile
from headrace.time import Instant

if TYPE_CHECKING:
    from headrace.runtime.home.home import Home

State = Choice["delivering", "retrying", "stopped", "closed"]
_DOUBLINGS: Final = 60
ACTION: Final = "action-"
"""Prefix of the names of actions' cursors, before an id: they are no sinks of a program, and SHOW ACTIONS has them."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How a sink deals with a receiver that fails: waits double from `first` to `longest` seconds.

    After `give_up_after` seconds of failures in a row it stops and no longer holds back retention; None: it never does.
    """

    first: float = 0.1
    longest: float = 30.0
    give_up_after: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.first <= self.longest:
            raise UserError(
                f"a sink cannot wait {self.first} to {self.longest} seconds between two attempts",
                remedy="waits=(0.1, 30.0) waits 0.1 seconds at first, and never more than 30.",
            )

    def wait(self, attempts: int) -> float:
        """Seconds to wait after so many failures in a row."""
        return min(self.longest, self.first * 2.0 ** min(attempts - 1, _DOUBLINGS))


@dataclass(frozen=True, slots=True)
class SinkState:
    """`state` since the instant `since`; `attempts` have failed in a row, `failures` since the sink was opened, the last one with
    `error`. `missed` entries of its results retention had removed before the sink was opened.
    """

    since: Instant
    state: State = "delivering"
    attempts: int = 0
    failures: int = 0
    error: str | None = None
    missed: int = 0

    def failed(self, error: BaseException, now: Instant) -> SinkState:
        """The state after one more failure."""
        message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        since = self.since if self.state == "retrying" else now
        return replace(
            self,
            state="retrying",
            since=since,
            attempts=self.attempts + 1,
            failures=self.failures + 1,
            error=message,
        )

    def now(self, state: State, at: Instant) -> SinkState:
        """The same in another state; one that delivers has no failures in a row."""
        return replace(self, state=state, since=at, attempts=0 if state == "delivering" else self.attempts)

    def as_event(self, sink: str, query: str, target: str) -> dict[str, Any]:
        """The state as a line of the home's `epochs.jsonl`."""
        return {
            "kind": SINK,
            "sink": sink,
            "query": query,
            "target": target,
            "state": self.state,
            "at": self.since,
            "attempts": self.attempts,
            "failures": self.failures,
            "error": self.error,
        }


def is_of_action(name: str) -> bool:
    """Whether a cursor is of an action; that of a sink of a query called `action` is not."""
    return re.fullmatch(f"{ACTION}[0-9a-f]{{32}}", name) is not None


def undelivered(home: Home, query: str | None, position: int) -> dict[str, int | None]:
    """Undelivered results of a sink at a position: epochs with results of its query, and bytes of the files that hold them.

    These bytes are the most that a sink holds back from retention: others may need the same files.
    """
    standing = None if query is None else home.catalog.query(query)
    if standing is None:
        return {"epochs_behind": None, "bytes_behind": None}
    epochs, files = set(), set()
    for _, entry in retained_entries(home, home.latest(), position):
        if standing.operator_id in answered(entry, home.store):
            epochs.add(entry["epoch"])
            files.add(entry["name"])
    return {"epochs_behind": len(epochs), "bytes_behind": sum(_size(home, name) for name in files)}


def _size(home: Home, name: str) -> int:
    """Bytes of a file; 0 if it was collected since the manifest was read."""
    with suppress(FileNotFoundError):
        return Path(home.store.path(name)).stat().st_size
    return 0


def recorded(home: Home) -> list[dict[str, Any]]:
    """The sinks of a home without its hub: by their positions and the log of epochs."""
    events: dict[str, Mapping[str, Any]] = {}
    for line in sink_lines(Path(home.store.root)):
        events[line["sink"]] = line
    receivers = {name_of(file.name.split("/")[1]) for file in home.store.list(f"{FOLDER}/")}
    reports = []
    for name in sorted(receivers | events.keys()):
        event = events.get(name, {})
        if is_of_action(name) or (not event and name.startswith("client-")):
            continue
        with suppress(MissingFile):
            position = Cursor(home.store, name).read()
            query = event.get("query")
            reports.append(
                {
                    "sink": name,
                    "query": query,
                    "target": event.get("target"),
                    "state": event.get("state"),
                    "since": event.get("at"),
                    "attempts": event.get("attempts"),
                    "error": event.get("error"),
                    "position": position,
                    **undelivered(home, query, position),
                }
            )
    return reports
