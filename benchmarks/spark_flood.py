"""A flood of rows over a hub on Spark, by the clock: rows are pushed at times the hub's capacity, whatever it does, and it is recorded
when those of each moment were answered, and from which shares; then its archive, its estimates and its repaired answers are compared
with what was pushed.

Twelve queries count and add by groups where a regular expression holds, which makes a row cost more than its generation does: four
alerts, worthless at half of the rows; five dashboards, which hardly suffer; three reports, costliest, which lose with every row, most
with those of large values. A policy is chosen by a patch of the control; each runs in a process and a session of its own.
"""

from __future__ import annotations

import hashlib
import statistics
import tempfile
import time
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
from headrace.algebra.quality_of_service import Importance, QualityOfService, UtilityGraph
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
REPAIR_TIMES: Final = 12.0
"""The length of the flood in which all answers have to be repaired; what was dropped is several times that of work."""
VALUES: Final = 100_000
GROUPS: Final = 1000
ENOUGH: Final = 30
"""Rows read of a group, from which on intervals of a normal distribution are not rough."""
STREAM: Final = "CREATE STREAM s (at TIMESTAMP, k INT, v INT) USING push TIMESTAMP BY at"
_STRICT: Final = UtilityGraph(((0.0, 1.0), (0.1, 0.9), (0.5, 0.0)))
_TOLERANT: Final = UtilityGraph(((0.0, 1.0), (0.75, 0.9), (0.95, 0.8)))
_LINEAR: Final = UtilityGraph(((0.0, 1.0), (1.0, 0.0)))
LEAST_USELESS_AFTER: Final = 10.0
"""Seconds after which alerts are worthless."""
_QUICK: Final = UtilityGraph(((3.0, 1.0), (LEAST_USELESS_AFTER, 0.0)))
_PATIENT: Final = UtilityGraph(((6.0, 1.0), (USELESS_AFTER, 0.0)))
_LARGE: Final = Importance("v", (0.6 * VALUES, 0.9 * VALUES), (0.1, 0.4, 1.0))
"""Six of ten rows have a value of the first interval, three of the second."""


@dataclass(frozen=True, slots=True)
class FloodedQuery:
    """A query: its groups, how many patterns a row is tested with, and what its answers are worth."""

    groups: int
    patterns: int
    quality: QualityOfService

    @property
    def frequencies(self) -> tuple[float, ...]:
        """How its rows divide into intervals of importance."""
        return (1.0,) if self.quality.importance is None else (0.6, 0.3, 0.1)

    @property
    def text(self) -> str:
        """The query without what it is worth; its patterns are of four digits in the last number, which has three."""
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
        value = self.quality.importance
        levels = ""
        if value is not None:
            below = (
                f"{level} BELOW {bound:g}" for level, bound in zip(value.levels, value.bounds, strict=False)
            )
            levels = f", value {value.column} ({', '.join(below)}, {value.levels[-1]} OTHERWISE)"
        return f"WITH SHEDDING (repair) WITH QOS (delay ({late}), loss ({lost}){levels})"


QUERIES: Final[Mapping[str, FloodedQuery]] = {
    **{f"alert{n}": FloodedQuery(5 + n, 1, QualityOfService(_QUICK, _STRICT)) for n in range(4)},
    **{f"dashboard{n}": FloodedQuery(20 + n, 8, QualityOfService(_PATIENT, _TOLERANT)) for n in range(5)},
    **{f"report{n}": FloodedQuery(50 + n, 16, QualityOfService(_PATIENT, _LINEAR, _LARGE)) for n in range(3)},
}


@dataclass(frozen=True, slots=True)
class Flooded:
    """One run: the capacity in rows a second, the utility on average over the flood, and the state of archive and answers after it.

    `repaired` are the windows that were answered again; `are_right` whether all answers are those of the rows that were pushed;
    `honest` the part of the intervals of estimates that held the truth.
    """

    capacity: float
    utility: float
    greatest_delay: float
    changes: int
    pushed: int
    archived: int = 0
    is_whole: bool = False
    repaired: int = 0
    are_right: bool = False
    honest: float = 0.0
    seconds_of_repair: float = 0.0


@dataclass(slots=True)
class _Source:
    """Pushes rows on schedule and remembers them: when each batch arrived, how many rows it had, and counts and sums by second and group."""

    hub: Hub
    digest: Any = field(default_factory=hashlib.sha256)
    arrived: list[tuple[float, int]] = field(default_factory=list)
    truth: dict[int, npt.NDArray[np.float64]] = field(default_factory=dict)
    rows: int = 0
    upto: int = 0
    """Event times ascend: no row is late."""
    _random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(17))

    def push(self, rows: int, arrived: float) -> None:
        """A batch whose rows are of the time since the last one."""
        now = max(int(time.time() * 1e6), self.upto + rows)
        begin = max(self.upto, now - int(EVERY * 1e6))
        at = begin + (np.arange(rows) * ((now - begin) / rows)).astype(np.int64)
        self.upto = now
        k, v = self._random.integers(0, GROUPS, rows), self._random.integers(0, VALUES, rows)
        table = pa.table(
            {
                "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
                "k": pa.array(k.astype(np.int32)),
                "v": pa.array(v.astype(np.int32)),
            }
        )
        self.hub.push("s", table)
        self.digest.update(np.stack([at, k, v]).T.tobytes())
        seconds = at // 1_000_000
        for second in range(int(seconds[0]), int(seconds[-1]) + 1):
            first, after = np.searchsorted(seconds, [second, second + 1])
            now_k, now_v = k[first:after], v[first:after]
            sums = self.truth.setdefault(second, np.zeros((2, GROUPS)))
            sums += [np.bincount(now_k, minlength=GROUPS), np.bincount(now_k, now_v, minlength=GROUPS)]
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

    def answer(self, end: int, groups: int) -> npt.NDArray[np.float64]:
        """Counts and sums of the window of a second that ends then, by group of a query."""
        of_each = np.zeros((2, groups))
        for group in range(groups):
            of_each[:, group] = self.truth.get(end - 1, np.zeros((2, GROUPS)))[:, group::groups].sum(axis=1)
        return of_each


def flood(policy: str, times: float, seconds: float, capacity: float | None = None) -> Flooded:
    """A flood of `times` the capacity for so long; with the policy "QOS" it is waited until all answers are repaired.

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
        source, committed = _Source(hub), list[tuple[float, int]]()
        measured = _capacity(hub, source)
        capacity = measured if capacity is None else capacity
        hub.on_epoch(lambda epoch: _note(epoch, committed))
        counted_from = len(source.arrived)
        with hub.running():
            source.pour(capacity / 5, BEFORE)
            first = len(source.arrived)
            source.pour(capacity * times, seconds)
            pushed = sum(rows for _, rows in source.arrived[counted_from:])
            _wait(lambda: sum(rows for _, rows in committed) >= pushed, USELESS_AFTER)
            utility, delay = _utility(hub, source.arrived[counted_from:], committed, first - counted_from)
            changes, began = hub.status()["overload"]["changes"], time.perf_counter()
            if policy != "QOS":
                return Flooded(capacity, utility, delay, changes, source.rows)
            source.pour(capacity / 20, REPAIR_TIMES * seconds, lambda: _is_repaired(hub))
            repair = time.perf_counter() - began
        hub.catch_up()
        archived, digest = _archived(hub)
        repaired = sum(report["repaired"] for report in hub.status()["repairs"].values())
        is_whole, (are_right, honest) = digest == source.digest.hexdigest(), _compared(hub, source)
        figures = archived, is_whole, repaired, are_right, honest, repair
        return Flooded(capacity, utility, delay, changes, source.rows, *figures)


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


def _is_repaired(hub: Hub) -> bool:
    return not any(report["waiting"] for report in hub.status()["repairs"].values())


def _entries(hub: Hub) -> list[Mapping[str, Any]]:
    manifest = hub.home.latest()
    return [entry for _, entry in hub.home.list_of(manifest, "archive:s").iterate(hub.home.store.read, 0)]


def _utility(
    hub: Hub, arrived: list[tuple[float, int]], committed: list[tuple[float, int]], first: int
) -> tuple[float, float]:
    """The sum over queries on average over the batches from the `first` on, each answered when its epoch was published; the greatest delay."""
    operators = {name: hub.catalog.require_query(name).operator_id for name in QUERIES}
    shares = [entry.get("shares", {}) for entry in _entries(hub) if entry["rows"]][-len(committed) :]
    ends = np.cumsum([rows for _, rows in committed])
    total, greatest, upto = 0.0, 0.0, sum(rows for _, rows in arrived[:first])
    for at, rows in arrived[first:]:
        upto += rows
        epoch = int(np.searchsorted(ends, upto))
        if epoch >= len(ends):
            greatest = max(greatest, time.perf_counter() - at)
            continue
        delay = committed[epoch][0] - at
        greatest = max(greatest, delay)
        for name, query in QUERIES.items():
            used = shares[epoch].get(operators[name], (1.0,))
            used = used if len(used) == len(query.frequencies) else used * len(query.frequencies)
            total += query.quality.utility(delay, query.quality.lost(used, query.frequencies))
    return total / (len(arrived) - first), greatest


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


def _compared(hub: Hub, source: _Source) -> tuple[bool, float]:
    """Whether the changes of every query add up to the answers of all rows; the part of intervals of estimates that held the truth."""
    held, intervals, are_right = 0, 0, True
    for name, query in QUERIES.items():
        changes = hub.query(name).history()
        ends = changes["window_end"].cast(pa.int64()).to_numpy() // 1_000_000
        columns = {
            column: changes[column].cast(pa.float64()).to_numpy()
            for column in ("g", "n", "total", "n_error", "kept", "__change")
        }
        truths = np.stack([source.answer(end, query.groups) for end in range(ends.min(), ends.max() + 1)])
        count, total = truths[ends - ends.min(), :, columns["g"].astype(int)].T
        is_estimate = (columns["n_error"] > 0) & (columns["__change"] > 0)
        is_estimate &= columns["kept"] * columns["n"] >= ENOUGH
        holds = np.abs(columns["n"] - count) <= columns["n_error"] + 1e-6
        held, intervals = held + int(holds[is_estimate].sum()), intervals + int(is_estimate.sum())
        is_exact = (columns["n_error"] == 0) & (columns["n"] == count) & (columns["total"] == total)
        groups, sign = ends * query.groups + columns["g"].astype(int), columns["__change"].astype(int)
        remaining = np.bincount(groups - groups.min(), np.where(is_exact, sign, 0)).astype(int)
        others = np.bincount(groups - groups.min(), np.where(is_exact, 0, sign)).astype(int)
        expected = truths[:, 0].ravel() > 0
        remaining = np.pad(remaining, (int(groups.min() % query.groups), 0))
        remaining = np.pad(remaining, (0, len(expected) - len(remaining)))
        are_right &= bool((remaining == expected).all()) and not others.any()
    return are_right, held / max(intervals, 1)
