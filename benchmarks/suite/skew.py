"""The cost of sources with different lag: experiments E10 and E13, state of windows over a union and of a merge that keeps order.

Li, Window Queries over Data Streams (2008), figures 8-8 and 8-11. Ours is the whole of Headrace but Spark, with the progress of each source
of its own; the plan in order (`baselines/plans/in_order.py`) is run on the same rows: its merge holds rows of the early sources until the
others are there. Rows of state are counts, the same on
every machine.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean

import numpy as np
import pyarrow as pa

from benchmarks.baselines.plans.flows import Flow, Rows
from benchmarks.baselines.plans.in_order import Merge, WindowCount
from benchmarks.baselines.plans.plan import Node, run
from benchmarks.baselines.windows import Sliding
from benchmarks.charts import Curve, Curves
from benchmarks.expected import WrongAnswer
from benchmarks.report import Report
from benchmarks.thresholds import Ratio
from headrace.operators.base.group_codes import flat
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND

SKEWS, LATE = (0, 10, 20, 30, 40), (0, 2, 4, 6, 8, 10)
_BASE = 1_700_000_000 // 300 * 300
_EPOCH = 5


@dataclass(frozen=True, slots=True)
class Union:
    """Sources in order, each some seconds late: rows a second of each, and how late. Windows and groups of the query."""

    rates: tuple[int, ...]
    late: tuple[int, ...]
    seconds: int
    range: int
    slide: int
    groups: int

    def rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Event times in seconds, arrivals, sources and keys, in order of arrival."""
        rng = np.random.default_rng(51)
        parts = [np.sort(rng.integers(0, self.seconds, rate * self.seconds)) for rate in self.rates]
        at = np.concatenate(parts)
        source = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        arrive = at + np.array(self.late)[source]
        key = rng.integers(0, self.groups, len(at))
        order = np.argsort(arrive, kind="stable")
        return at[order], arrive[order], source[order], key[order]


@dataclass(frozen=True, slots=True)
class StateRows:
    """Rows at the peak and on average: of our state, and of a plan in order."""

    ours: tuple[int, float]
    in_order: tuple[int, float]


def skew(rows: int, rounds: int) -> Report:
    """E10: counts of a minute by group over two sources, one of them 0 to 40 s behind."""
    del rounds
    seconds = 300
    rate = max(20, min(rows // (2 * seconds), 500))
    measured = {lag: state_rows(Union((rate, rate), (0, lag), seconds, 60, 60, 4 * rate)) for lag in SKEWS}
    in_order = [union.in_order[0] for union in measured.values()]
    steps = np.diff(in_order)
    ratios = [
        Ratio("our peak at 40 s to that at none", measured[40].ours[0] / measured[0].ours[0], 2.5, True),
        Ratio(
            "growth in order for 10 s more: the least to rows that arrive in 10 s",
            float(steps.min()) / (10 * rate),
            0.8,
        ),
        Ratio("growth in order for 10 s more: the greatest", float(steps.max()) / (10 * rate), 1.2, True),
    ]
    return _report("skew", "E10: windows over sources with lag", "skew", measured, ratios, rate)


def late_union(rows: int, rounds: int) -> Report:
    """E13: counts of five minutes by one over two sources and a thin one that is 0 to 10 s late."""
    del rounds
    seconds = 900
    rate = max(10, min(rows // (2 * seconds), 200))
    measured = {
        delay: state_rows(Union((rate, rate, 1), (0, 0, delay), seconds, 300, 60, 100)) for delay in LATE
    }
    in_order = [union.in_order[1] for union in measured.values()]
    ratios = [
        Ratio(
            "our state at 10 s to that at none, on average",
            measured[10].ours[1] / measured[0].ours[1],
            1.1,
            True,
        ),
        Ratio("the same in order", in_order[-1] / in_order[0], 1.1),
        Ratio("least growth in order for 2 s more", float(np.diff(in_order).min()), 0),
    ]
    return _report("late-union", "E13: windows over a thin late source", "delay", measured, ratios, rate)


def state_rows(union: Union) -> StateRows:
    """Run the union through Headrace, check its counts, and count what a plan in order keeps."""
    at, arrive, source, key = union.rows()
    state: list[int] = []
    with tempfile.TemporaryDirectory() as folder, Hub(Path(folder), LocalExecutor(), tasks=1) as hub:
        hub.execute(f"""
            CREATE STREAM s (k INT, source INT, at TIMESTAMP) USING push TIMESTAMP BY at SLACK 0 SECONDS
              PROGRESS PER (source) EXPECT {len(union.rates)};
        """)
        query = hub.register(
            f"SELECT window_end, k, COUNT(*) AS n FROM s [RANGE {union.range} SECONDS SLIDE {union.slide} SECONDS] GROUP BY k",
            "q",
        )
        operator = hub.operator_and_query("q")[0].id
        hub.on_epoch(
            lambda seen: (
                state.append(seen.operators[operator].state_rows) if operator in seen.operators else None
            )
        )
        stamps = pa.array((at + _BASE) * SECOND).cast(pa.timestamp("us", "UTC"))
        table = pa.table(
            {"k": pa.array(key, pa.int32()), "source": pa.array(source, pa.int32()), "at": stamps}
        )
        stops = np.searchsorted(arrive, np.arange(_EPOCH, arrive[-1] + _EPOCH + 1, _EPOCH))
        start = 0
        for stop in stops.tolist():
            if stop > start:
                hub.push("s", table.slice(start, stop - start))
                hub.loop.drain()
            start = stop
        check(query.history(), union, at, key)
    half = len(state) // 4
    held = held_in_order(union, at, source, key)
    return StateRows((max(state[half:]), mean(state[half:])), (max(held), mean(held)))


def check(answer: pa.Table, union: Union, at: np.ndarray, key: np.ndarray) -> None:
    """Compare every emitted window with a count of the rows. Raises `WrongAnswer`."""
    end = flat(answer.column("window_end")).cast(pa.int64()).to_numpy() // SECOND - _BASE
    if not len(end):
        raise WrongAnswer("Expected windows, found none.")
    for window in np.unique(end).tolist():
        held = (at >= window - union.range) & (at < window)
        right = np.bincount(key[held], minlength=union.groups)
        rows = answer.filter(pa.array(end == window))
        counts = np.zeros(union.groups, np.int64)
        counts[flat(rows.column("k")).to_numpy()] = flat(rows.column("n")).to_numpy()
        if not np.array_equal(counts, right):
            raise WrongAnswer(f"The window that ends at second {window} is wrong.")


def held_in_order(union: Union, at: np.ndarray, source: np.ndarray, key: np.ndarray) -> list[int]:
    """By second: rows that wait in a merge of the sources, and partials of open windows behind it; once a window is open
    and while all sources still send."""
    ran = run(
        [
            Node("merge", Merge.of(len(union.late)), tuple(f"s{index}" for index in range(len(union.late)))),
            Node("count", WindowCount(Sliding(union.range, union.slide)), ("merge",)),
        ],
        {f"s{index}": _by_second(union, at, source, key, index) for index in range(len(union.late))},
    )
    moments = slice(max(union.late) + union.range, union.seconds)
    return [sum(held) for held in zip(*(held[moments] for held in ran.held.values()), strict=True)]


def _by_second(union: Union, at: np.ndarray, source: np.ndarray, key: np.ndarray, index: int) -> list[Flow]:
    """What a source, in order and late by so many seconds, sends in each second."""
    times, keys, late = at[source == index], key[source == index], union.late[index]
    cuts = np.searchsorted(times, np.arange(union.seconds + 1) - late)
    return [
        Flow(
            Rows(times[low:high], keys[low:high], keys[low:high]),
            moment + 1 - late if moment >= late else None,
        )
        for moment, (low, high) in enumerate(pairwise(cuts.tolist()))
    ]


def _report(
    name: str, title: str, varied: str, measured: dict[int, StateRows], ratios: list[Ratio], rate: int
) -> Report:
    table = [
        {
            f"{varied}_s": value,
            "state_rows": held.ours[0],
            "state_rows_on_average": round(held.ours[1]),
            "rows_in_order": held.in_order[0],
            "rows_in_order_on_average": round(held.in_order[1]),
        }
        for value, held in measured.items()
    ]
    x = list(measured)
    drawn = Curves(
        "Rows kept at most",
        (f"{varied} in seconds", "rows"),
        [
            Curve("headrace", x, [union.ours[0] for union in measured.values()], "ours"),
            Curve("in order", x, [union.in_order[0] for union in measured.values()], "theirs"),
        ],
    )
    notes = [
        f"{rate} rows a second of each full source, epochs of {_EPOCH} s of arrivals. State counts the runs that wait to be merged."
    ]
    return Report(name, title, table, ratios, [], "", notes, picture=drawn)
