"""A flood of rows over a hub on Spark, by the clock: rows are pushed at times the hub's capacity, whatever it does, and it is recorded
when those of each moment were answered, and from which shares; and its archive and repaired answers, compared with what was pushed.

Twelve queries count and add by groups where a regular expression holds, which makes a row cost more than its generation does: four
alerts, worthless at half of the rows; five dashboards, which hardly suffer; three reports, costliest, which lose with every row. A policy is
chosen by a patch of the control; each runs in a process and a session of its own.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from benchmarks.simulated_hub import EqualShares
from headrace.algebra.quality_of_service import QualityOfService, UtilityGraph
from headrace.archive.runs import POSITION
from headrace.observation import EpochObservation
from headrace.overload.controller import Control
from headrace.runtime.hub.hub import Hub

EVERY: Final = 0.25
"""Seconds from push to push."""
BEFORE: Final = 10.0
"""Seconds at a fifth of the capacity, in which costs are measured."""
USELESS_AFTER: Final = 40.0
"""Seconds after which no answer has any utility: the flood's rows that are not answered by then are worth nothing."""
REPAIR_LIMIT: Final = 240.0
"""Seconds of calm in which all answers have to be repaired."""
STREAM: Final = "CREATE STREAM s (at TIMESTAMP, k INT, v INT) USING push TIMESTAMP BY at"
_STRICT: Final = UtilityGraph(((0.0, 1.0), (0.1, 0.9), (0.5, 0.0)))
_TOLERANT: Final = UtilityGraph(((0.0, 1.0), (0.75, 0.9), (0.95, 0.8)))
_LINEAR: Final = UtilityGraph(((0.0, 1.0), (1.0, 0.0)))
_QUICK: Final = UtilityGraph(((3.0, 1.0), (10.0, 0.0)))
_PATIENT: Final = UtilityGraph(((6.0, 1.0), (40.0, 0.0)))


@dataclass(frozen=True, slots=True)
class FloodedQuery:
    """A query: its groups, how many patterns a row is tested with, and what its answers are worth."""

    groups: int
    patterns: int
    quality: QualityOfService

    @property
    def text(self) -> str:
        """The query without what it is worth."""
        tests = " AND ".join(
            f"NOT regexp_like(concat('row ', CAST(v AS STRING), ' of ', CAST(k AS STRING)), '^(a|b|row) .*{n}{n}{n}{n}[0-9]+$')"
            for n in range(self.patterns)
        )
        return (
            f"SELECT window_end, k % {self.groups} AS g, COUNT(*) AS n, SUM(v) AS total FROM s [RANGE TUMBLING 1 SECOND] "
            f"WHERE {tests} GROUP BY k % {self.groups}"
        )

    @property
    def stated(self) -> str:
        """The clauses about its answers."""
        delay, loss = self.quality.delay, self.quality.loss
        assert delay is not None
        assert loss is not None
        late = ", ".join(f"{utility} AT {at} SECONDS" for at, utility in delay.points)
        lost = ", ".join(f"{utility} AT {100 * share} PERCENT" for share, utility in loss.points)
        return f"WITH SHEDDING (repair) WITH QOS (delay ({late}), loss ({lost}))"


QUERIES: Final[Mapping[str, FloodedQuery]] = {
    **{f"alert{n}": FloodedQuery(5 + n, 1, QualityOfService(_QUICK, _STRICT)) for n in range(4)},
    **{f"dashboard{n}": FloodedQuery(20 + n, 3, QualityOfService(_PATIENT, _TOLERANT)) for n in range(5)},
    **{f"report{n}": FloodedQuery(50 + n, 6, QualityOfService(_PATIENT, _LINEAR)) for n in range(3)},
}


@dataclass(frozen=True, slots=True)
class Flooded:
    """One run: the capacity in rows a second, the utility on average over the flood, and the state of archive and answers after it.

    `repaired` are the windows that were answered again; `right` whether all answers equal those of the same queries over the archive.
    """

    capacity: float
    utility: float
    greatest_delay: float
    changes: int
    pushed: int
    archived: int
    is_whole: bool
    repaired: int = 0
    right: bool | None = None
    seconds_of_repair: float = 0.0


@dataclass(slots=True)
class _Source:
    """Pushes rows on schedule and remembers them: when each batch arrived, and how many rows it had."""

    hub: Hub
    digest: Any = field(default_factory=hashlib.sha256)
    arrived: list[tuple[float, int]] = field(default_factory=list)
    rows: int = 0
    _random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(17))

    def push(self, rows: int, arrived: float) -> None:
        """A batch whose rows are of this moment."""
        now = int(time.time() * 1e6)
        batch = {
            "at": now - EVERY * 1e6 + np.arange(rows) * (EVERY * 1e6 / max(rows, 1)),
            "k": self._random.integers(0, 1000, rows),
            "v": self._random.integers(0, 100_000, rows),
        }
        at, k, v = (np.ascontiguousarray(batch[name], np.int64) for name in ("at", "k", "v"))
        table = pa.table(
            {
                "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
                "k": pa.array(k.astype(np.int32)),
                "v": pa.array(v.astype(np.int32)),
            }
        )
        self.hub.push("s", table)
        self.digest.update(np.stack([at, k, v]).T.tobytes())
        self.rows += rows
        self.arrived.append((arrived, rows))

    def pour(self, rate: float, seconds: float, done: Callable[[], bool] = lambda: False) -> None:
        """So many rows a second, until it is done; a push that is late does not delay the next ones."""
        began, number = time.perf_counter(), 0
        while number * EVERY < seconds and not done():
            due = began + number * EVERY
            time.sleep(max(0.0, due - time.perf_counter()))
            self.push(max(1, round(rate * EVERY)), due)
            number += 1


def flood(policy: str, times: float, seconds: float) -> Flooded:
    """A flood of `times` the capacity for so long; with the policy "QOS" it is waited until all answers are repaired."""
    with (
        _controlled(policy),
        tempfile.TemporaryDirectory(prefix="headrace-flood-") as folder,
        hr.open(Path(folder) / "home") as hub,
    ):
        hub.execute(STREAM)
        for name, query in QUERIES.items():
            hub.execute(f"CREATE QUERY {name} AS {query.text} {query.stated}")
        source, committed = _Source(hub), list[tuple[float, int]]()
        hub.on_epoch(lambda seen: _note(seen, committed))
        capacity = _capacity(hub, source)
        with hub.running():
            source.pour(capacity / 5, BEFORE)
            first = len(source.arrived)
            source.pour(capacity * times, seconds)
            last = len(source.arrived)
            _wait(lambda: sum(rows for _, rows in committed) >= source.rows, USELESS_AFTER)
            utility, delay = _utility(hub, source, committed, range(first, last))
            changes = hub.status()["overload"]["changes"]
            began = time.perf_counter()
            if policy == "QOS":
                source.pour(capacity / 20, REPAIR_LIMIT, lambda: _is_repaired(hub))
            repair = time.perf_counter() - began
        if policy != "QOS":
            return Flooded(capacity, utility, delay, changes, source.rows, 0, is_whole=False)
        hub.catch_up()
        archived, digest = _archived(hub)
        repaired = sum(report["repaired"] for report in hub.status()["repairs"].values())
        return Flooded(
            capacity,
            utility,
            delay,
            changes,
            source.rows,
            archived,
            digest == source.digest.hexdigest(),
            repaired,
            _are_right(hub),
            repair,
        )


@contextmanager
def _controlled(policy: str) -> Iterator[None]:
    patched: dict[str, Any] = {
        "QOS": {},
        "random dropping": {"dropping": EqualShares.dropping},
        "backpressure": {"decided": lambda control, _: control},
    }[policy]
    with ExitStack() as patches:
        if patched:
            patches.enter_context(mock.patch.multiple(Control, **patched))
        yield


def _note(seen: EpochObservation, committed: list[tuple[float, int]]) -> None:
    if seen.kind == "epoch" and seen.rows:
        committed.append((time.perf_counter(), seen.rows))


def _capacity(hub: Hub, source: _Source) -> float:
    """Rows a second of epochs one after the other, once the session and its workers are warm."""
    rows, took, warm = 2_000, 0.0, 12
    while took < 1.5 or warm:
        for _ in range(4):
            source.push(rows, 0.0)
        began = time.perf_counter()
        hub.catch_up()
        took = time.perf_counter() - began
        warm = max(0, warm - 1)
        rows *= 1 if warm else 2
    return 4 * rows / 2 / took


def _wait(done: Callable[[], bool], seconds: float) -> None:
    until = time.perf_counter() + seconds
    while not done() and time.perf_counter() < until:
        time.sleep(0.05)


def _is_repaired(hub: Hub) -> bool:
    return not any(report["waiting"] for report in hub.status()["repairs"].values())


def _entries(hub: Hub) -> list[Mapping[str, Any]]:
    manifest = hub.home.latest()
    return [entry for _, entry in hub.home.list_of(manifest, "archive:s").iterate(hub.home.store.read, 0)]


def _utility(
    hub: Hub, source: _Source, committed: list[tuple[float, int]], flooded: range
) -> tuple[float, float]:
    """The sum over queries on average over the flood's batches, each answered when its epoch was published; the greatest delay."""
    operators = {name: hub.catalog.require_query(name).operator_id for name in QUERIES}
    shares = [entry.get("shares", {}) for entry in _entries(hub) if entry["rows"]]
    ends = np.cumsum([rows for _, rows in committed])
    total, greatest, upto = 0.0, 0.0, sum(rows for _, rows in source.arrived[: flooded.start])
    for number in flooded:
        arrived, rows = source.arrived[number]
        upto += rows
        epoch = int(np.searchsorted(ends, upto))
        if epoch >= len(ends):
            greatest = max(greatest, time.perf_counter() - arrived)
            continue
        delay = committed[epoch][0] - arrived
        greatest = max(greatest, delay)
        for name, query in QUERIES.items():
            (share,) = shares[epoch].get(operators[name], (1.0,))
            total += query.quality.utility(delay, 1 - share)
    return total / len(flooded), greatest


def _archived(hub: Hub) -> tuple[int, str]:
    """Rows of the archive, and their checksum in the order in which they were pushed."""
    names = ("at", "k", "v")
    files = [name for entry in _entries(hub) for name in entry["files"]]
    columns: dict[str, list[npt.NDArray[np.int64]]] = {name: [] for name in (POSITION, *names)}
    for file in files:
        table = pq.read_table(pa.BufferReader(hub.home.store.map(file)), columns=[POSITION, *names])
        for name, parts in columns.items():
            parts.append(table[name].cast(pa.int64()).to_numpy())
    whole = {name: np.concatenate(parts) for name, parts in columns.items()}
    order = np.argsort(whole[POSITION], kind="stable")
    rows = np.stack([whole[name][order] for name in names]).T
    return len(rows), hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()


def _are_right(hub: Hub) -> bool:
    """Whether the changes of every query add up to the answers of its text, registered now and answered from the archive."""
    for name, query in QUERIES.items():
        hub.execute(f"CREATE QUERY {name}_exact AS {query.text}")
    hub.catch_up()
    for name in QUERIES:
        changes, exact = (hub.query(each).history() for each in (name, f"{name}_exact"))
        held: Counter[tuple[Any, ...]] = Counter()
        for row in changes.select(["window_end", "g", "n", "total", "n_error", "__change"]).to_pylist():
            held[row["window_end"], row["g"], row["n"], row["total"], row["n_error"]] += row["__change"]
        rows = {row for row, count in held.items() if count}
        truth = {
            (row["window_end"], row["g"], row["n"], row["total"], 0.0)
            for row in exact.select(["window_end", "g", "n", "total"]).to_pylist()
        }
        if rows != truth:
            return False
    return True
