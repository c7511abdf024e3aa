"""Joins of two and of three streams of which one key has much of the work, in four state tasks: with the key divided between them, and in one task.

Of two streams the key has a tenth of the rows. Of three it has as many as make about as many combinations.

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
_WINDOW = "[RANGE 2 SECONDS SLIDE 1 SECOND]"
_QUERIES = {
    "ab": f"SELECT COUNT(*) AS n, MAX(x.v - y.v) AS top FROM a x {_WINDOW}, b y {_WINDOW} WHERE x.k = y.k AND x.v + y.v = 1998",
    "abc": f"SELECT COUNT(*) AS n, MAX(x.v - y.v) AS top FROM a x {_WINDOW}, b y {_WINDOW}, c z {_WINDOW}"
    " WHERE x.k = y.k AND y.k = z.k AND x.v + y.v + z.v = 2997",
}
"""By the names of the streams."""


def hot_keys_of_joins(folder: Path, rows: int, rounds: int) -> tuple[list[dict[str, Any]], list[Ratio]]:
    """`rows` of each stream an epoch."""
    two, of_two = _hot_key(folder, "ab", rows, rounds)
    three, of_three = _hot_key(folder, "abc", rows, rounds)
    return [*two, *three], [*of_two, *of_three]


def _hot_key(folder: Path, streams: str, rows: int, rounds: int) -> tuple[list[dict[str, Any]], list[Ratio]]:
    longest: dict[bool, list[float]] = {True: [], False: []}
    whole: dict[bool, list[float]] = {True: [], False: []}
    answers = list[list[Any]]()
    for number in range(rounds):
        for divides in (False, True):
            path = folder / f"hot{number}-{streams}-{divides}"
            times, answer = _run(path, streams, rows, divides=divides)
            longest[divides].append(sum(task for task, _ in times))
            whole[divides].append(sum(epoch for _, epoch in times))
            answers.append(answer)
    if any(answer != answers[0] for answer in answers):
        raise WrongAnswer(f"Expected {answers[0][:2]} whether a key is divided or not, found another answer.")
    table = [
        {
            "what": f"a hot key{_of(streams)} {'divided between' if divides else 'in one of'} {TASKS} tasks, the largest task",
            "seconds": round(median(longest[divides]), 3),
        }
        for divides in (False, True)
    ]
    ratios = [
        Ratio(f"hot key{_of(streams)} divided, time of the largest task", _ratio(longest), 0.5, True),
        Ratio(f"hot key{_of(streams)} divided, processor time of whole epochs", _ratio(whole), 1.4, True),
    ]
    return table, ratios


def _of(streams: str) -> str:
    """What a case is called besides the first one."""
    return "" if streams == "ab" else " of three streams"


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


def _run(
    path: Path, streams: str, rows: int, *, divides: bool
) -> tuple[list[tuple[float, float]], list[Any]]:
    """Of each epoch the time of the largest state task, and the processor time of the whole; and the answer."""
    times = []
    with _dividing(divides=divides), Hub(path, LocalExecutor(), tasks=TASKS) as hub:
        for name in streams:
            hub.execute(f"CREATE STREAM {name} (at TIMESTAMP, k BIGINT, v BIGINT) USING push TIMESTAMP BY at")
        hub.register(_QUERIES[streams], "q")
        share = 0.1 if streams == "ab" else (0.0016 * rows * rows) ** (1 / 3) / rows
        for epoch in range(EPOCHS):
            for side, name in enumerate(streams):
                hub.push(name, _rows(side, epoch, rows, share))
            started = time.process_time()
            hub.loop.drain()
            times.append((hub.status()["last_epoch"]["seconds"]["state"], time.process_time() - started))
        answer = hub.query("q").history().to_pylist()
    return times[FIRST:], answer


def _rows(side: int, epoch: int, rows: int, share: float) -> pa.Table:
    rng = np.random.default_rng((side, epoch))
    at = _START + epoch * _SECOND + np.sort(rng.integers(0, _SECOND, rows))
    keys = np.where(rng.random(rows) < share, 0, rng.integers(1, rows, rows))
    columns = {
        "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
        "k": keys,
        "v": rng.integers(0, 1_000, rows),
    }
    return pa.table(columns)
