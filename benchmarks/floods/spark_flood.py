"""A flood of rows over a hub on Spark, by the clock: rows are pushed at times the hub's capacity, whatever it does, and it is recorded
when those of each moment were answered, and from which shares; then its archive, its estimates and its repaired answers are compared
with what was pushed. A policy is chosen by a patch of the control; each runs in a process and a session of its own.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from benchmarks.floods.answers import Compared, compared
from benchmarks.floods.flood_source import Checksum, Source
from benchmarks.floods.flooded_queries import KINDS, QUERIES, STREAM, USELESS_AFTER
from benchmarks.simulated_hub import EqualShares
from headrace.observation import EpochObservation
from headrace.overload.controller import Control
from headrace.runtime.hub.hub import Hub

BEFORE: Final = 10.0
"""Seconds at a fifth of the capacity, in which costs are measured."""
LONGEST_REPAIR: Final = 20.0
"""The length of the flood in which all answers have to be repaired; what was dropped is several times that of work."""
AFTER, AFTER_EVERY = 1 / 20, 4.0
"""Rows a second after the flood, as a part of the capacity, and the seconds from push to push."""
QOS: Final = "QOS"


@dataclass(frozen=True, slots=True)
class Moment:
    """Rows of a second of the flood: how long after its beginning they arrived, the longest delay of their answers in seconds, the share of rows that these are
    from by kind of query, and the total utility.
    """

    at: float
    delay: float
    utility: float
    kept: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class AfterFlood:
    """The state of archive and answers after a flood; `windows` are those that were repaired, in so many `seconds`."""

    archive: Checksum
    answers: Compared
    windows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Flooded:
    """One run: the capacity in rows a second, rows pushed to it a second, what was pushed, how often shares changed, and each second of the flood."""

    capacity: float
    rate: float
    pushed: Checksum
    changes: int
    moments: Sequence[Moment]
    after: AfterFlood

    def utility(self, seconds: float) -> float:
        """The total utility, on average over the first seconds of the flood."""
        return statistics.fmean(moment.utility for moment in self.moments if moment.at < seconds)

    @property
    def greatest_delay(self) -> float:
        """Of all rows of the flood, in seconds."""
        return max(moment.delay for moment in self.moments)


@dataclass(slots=True)
class Published:
    """Epochs with rows: their numbers, when they were published, and how many rows they had."""

    epoch: list[int] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def note(self, seen: EpochObservation) -> None:
        """Take in an epoch."""
        if seen.kind == "epoch" and seen.rows:
            self.epoch.append(seen.epoch)
            self.at.append(time.perf_counter())
            self.rows.append(seen.rows)


def flooded(
    policy: str, times: float, seconds: float, capacity: float | None = None, *, repair: bool = False
) -> Flooded:
    """A flood of `times` the capacity for so long, and until all answers are repaired if they shall be.

    Without a `capacity` it is what was measured just before.
    """
    with (
        _controlled(policy),
        tempfile.TemporaryDirectory(prefix="headrace-flood-") as folder,
        hr.open(Path(folder) / "home") as hub,
    ):
        hub.execute(STREAM)
        for name, query in QUERIES.items():
            hub.execute(f"CREATE QUERY {name} AS {query.text} {query.stated}")
        source, published = Source(hub), Published()
        measured = capacity_of(hub, source)
        capacity = measured if capacity is None else capacity
        hub.on_epoch(published.note)
        counted_from = len(source.due)
        with hub.running():
            source.pour(capacity / 5, BEFORE)
            first, began = len(source.due), time.perf_counter()
            source.pour(capacity * times, seconds)
            rate = sum(rows for _, rows in source.due[first:]) / (time.perf_counter() - began)
            pushed = sum(rows for _, rows in source.due[counted_from:])
            _wait(lambda: sum(published.rows) >= pushed, USELESS_AFTER)
            moments = moments_of(hub, source.due[counted_from:], first - counted_from, published)
            changes = hub.status()["overload"]["changes"]
            began = time.perf_counter()
            if repair:
                longest = LONGEST_REPAIR * seconds
                source.pour(capacity * AFTER, longest, lambda: is_repaired(hub), AFTER_EVERY)
            took = time.perf_counter() - began
        if repair:
            hub.catch_up()
        windows = sum(report["repaired"] for report in hub.status()["repairs"].values())
        after = AfterFlood(archived(hub), compared(hub, source), windows, took)
        return Flooded(capacity, rate, source.checksum, changes, moments, after)


@contextmanager
def _controlled(policy: str) -> Iterator[None]:
    patched: dict[str, Any] = {
        QOS: {},
        "random dropping": {"dropping": EqualShares.dropping},
        "backpressure": {"decided": lambda control, _: control},
    }[policy]
    with ExitStack() as patches:
        if patched:
            patches.enter_context(mock.patch.multiple(Control, **patched))
        yield


def capacity_of(hub: Hub, source: Source) -> float:
    """Rows a second of epochs one after the other, once the session and its workers are warm: the median of five batches of the same size."""
    rows, rates, warm = 2_000, list[float](), 12
    while len(rates) < 5:
        for _ in range(4):
            source.push(rows, 0.0)
        began = time.perf_counter()
        hub.catch_up()
        took = time.perf_counter() - began
        warm -= 1
        if took >= 1.5 and warm <= 0:
            rates.append(4 * rows / took)
        elif warm <= 0:
            rows, rates = 2 * rows, []
    return statistics.median(rates)


def _wait(done: Callable[[], bool], seconds: float) -> None:
    until = time.perf_counter() + seconds
    while not done() and time.perf_counter() < until:
        time.sleep(0.05)


def is_repaired(hub: Hub) -> bool:
    """Whether no answer waits for repair."""
    return not any(report["waiting"] for report in hub.status()["repairs"].values())


def entries_of(hub: Hub) -> list[Mapping[str, Any]]:
    """The entries of the archive, an epoch each."""
    manifest = hub.home.latest()
    return [entry for _, entry in hub.home.list_of(manifest, "archive:s").iterate(hub.home.store.read, 0)]


def moments_of(
    hub: Hub, due: Sequence[tuple[float, int]], first: int, published: Published
) -> tuple[Moment, ...]:
    """The seconds of the flood, which begins with the batch `first`; each batch was answered when the epoch with its last row was published."""
    operators = {name: hub.catalog.require_query(name).operator_id for name in QUERIES}
    ends = np.cumsum(published.rows)
    shares = {entry["epoch"]: entry.get("shares", {}) for entry in entries_of(hub)}
    now, upto, began = time.perf_counter(), sum(rows for _, rows in due[:first]), due[first][0]
    seconds: dict[int, list[Moment]] = {}
    for at, rows in due[first:]:
        upto += rows
        epoch = int(np.searchsorted(ends, upto))
        is_answered = epoch < len(ends)
        delay = (published.at[epoch] if is_answered else now) - at
        chosen = shares[published.epoch[epoch]] if is_answered else {}
        used = {name: chosen.get(operators[name], (1.0,)) if is_answered else (0.0,) for name in QUERIES}
        utility = sum(query.utility(delay, used[name]) for name, query in QUERIES.items()) * is_answered
        kept = {
            kind: statistics.fmean(
                query.kept(used[name]) for name, query in QUERIES.items() if query.kind == kind
            )
            for kind in KINDS
        }
        seconds.setdefault(int(at - began), []).append(Moment(at - began, delay, utility, kept))
    return tuple(map(_together, seconds.values()))


def _together(batches: Sequence[Moment]) -> Moment:
    """The batches of a second: the longest delay, and what is left on average."""
    kept = {kind: statistics.fmean(batch.kept[kind] for batch in batches) for kind in KINDS}
    utility = statistics.fmean(batch.utility for batch in batches)
    return Moment(batches[0].at, max(batch.delay for batch in batches), utility, kept)


def archived(hub: Hub) -> Checksum:
    """The rows of the archive, file by file: joined runs are in one file, which several entries name."""
    found = Checksum()
    for name in dict.fromkeys(name for entry in entries_of(hub) for name in entry["files"]):
        file = pq.ParquetFile(pa.BufferReader(hub.home.store.map(name)))
        for batch in file.iter_batches(1 << 20, columns=["at", "k", "v"]):
            found.add(*(batch.column(column).cast(pa.int64()).to_numpy() for column in ("at", "k", "v")))
    return found
