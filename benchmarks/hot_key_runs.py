"""A join of two streams of which one key has a tenth of the rows, in four state tasks: with the key divided between them, and in one task.

The tasks run one after the other in one process, so the time of each is its own; ways take turns. Windows of two epochs hold the rows; nearly all pairs
fail the condition, so what is measured is the search. The first epochs, in which the key is not divided yet and those before it drain, are left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.expected import WrongAnswer
from benchmarks.thresholds import Ratio
from headrace.adaptive.joins import hot_keys
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub

TASKS, EPOCHS, FIRST = 4, 14, 6
_START, _SECOND = 1_700_000_040_000_000, 1_000_000
_QUERY = (
    "SELECT COUNT(*) AS n, MAX(x.v - y.v) AS top FROM a x [RANGE 2 SECONDS SLIDE 1 SECOND],"
    " b y [RANGE 2 SECONDS SLIDE 1 SECOND] WHERE x.k = y.k AND x.v + y.v = 1998"
)


def hot_key(folder: Path, rows: int, rounds: int) -> tuple[list[dict[str, Any]], list[Ratio]]:
    """`rows` of each stream an epoch."""
    longest: dict[bool, list[float]] = {True: [], False: []}
    whole: dict[bool, list[float]] = {True: [], False: []}
    answers = list[list[Any]]()
    for number in range(rounds):
        for divides in (False, True):
            times, answer = _run(folder / f"hot{number}-{divides}", rows, divides=divides)
            longest[divides].append(sum(task for task, _ in times))
            whole[divides].append(sum(epoch for _, epoch in times))
            answers.append(answer)
    if any(answer != answers[0] for answer in answers):
        raise WrongAnswer(f"Expected {answers[0][:2]} whether a key is divided or not, found another answer.")
    table = [
        {
            "what": f"a hot key {'divided between' if divides else 'in one of'} {TASKS} tasks, the largest task",
            "seconds": round(median(longest[divides]), 3),
        }
        for divides in (False, True)
    ]
    ratios = [
        Ratio("hot key divided, time of the largest task", _ratio(longest), 0.5, True),
        Ratio("hot key divided, processor time of whole epochs", _ratio(whole), 1.4, True),
    ]
    return table, ratios


def _ratio(times: dict[bool, list[float]]) -> float:
    return median(times[True]) / median(times[False])


@contextmanager
def _dividing(*, divides: bool) -> Iterator[None]:
    """A block in which no tasks are so uneven that keys are divided, or only those that are."""
    uneven = hot_keys.UNEVEN
    hot_keys.UNEVEN = uneven if divides else float("inf")  # type: ignore[misc]
    try:
        yield
    finally:
        hot_keys.UNEVEN = uneven  # type: ignore[misc]


def _run(path: Path, rows: int, *, divides: bool) -> tuple[list[tuple[float, float]], list[Any]]:
    """Of each epoch the time of the largest state task, and the processor time of the whole; and the answer."""
    times = []
    with _dividing(divides=divides), Hub(path, LocalExecutor(), tasks=TASKS) as hub:
        for name in "ab":
            hub.execute(f"CREATE STREAM {name} (at TIMESTAMP, k BIGINT, v BIGINT) USING push TIMESTAMP BY at")
        hub.register(_QUERY, "q")
        for epoch in range(EPOCHS):
            for side, name in enumerate("ab"):
                hub.push(name, _rows(side, epoch, rows))
            started = time.process_time()
            hub.loop.drain()
            times.append((hub.status()["last_epoch"]["seconds"]["state"], time.process_time() - started))
        answer = hub.query("q").history().to_pylist()
    return times[FIRST:], answer


def _rows(side: int, epoch: int, rows: int) -> pa.Table:
    rng = np.random.default_rng((side, epoch))
    at = _START + epoch * _SECOND + np.sort(rng.integers(0, _SECOND, rows))
    keys = np.where(rng.random(rows) < 0.1, 0, rng.integers(1, rows, rows))
    columns = {
        "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
        "k": keys,
        "v": rng.integers(0, 1_000, rows),
    }
    return pa.table(columns)
