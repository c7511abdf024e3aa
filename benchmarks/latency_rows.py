"""The rows of the suite `latency`: batches of a fiftieth of a second each, as tables and as bytes for peers in Java, the queries over
them, and what these must answer; and figures of what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.expected import WrongAnswer

EVERY_US = 20_000
"""Microseconds between two pushes on average, and of event time in a batch."""
_SHIFT_US = 10_000
"""The most that a push is later than that: as long as the shortest interval of checkpoints of a peer."""
WARM_UP = 200
"""Batches that are not measured."""
STREAM = "CREATE STREAM e (at TIMESTAMP, n BIGINT, key INT, value DOUBLE) USING push TIMESTAMP BY at"
FOLLOWED = "CREATE QUERY followed OPTIONS (retain '10 SECONDS') AS SELECT n FROM e WHERE n >= 0"
_SELECTION = "SELECT at, key, value FROM e WHERE key = {0} AND value > 0.9{0}"
_WINDOWS = (
    "SELECT window_end, key, COUNT(*) AS n, MAX(value) AS top FROM e [RANGE 10 SECONDS SLIDE 1 SECOND] "
    "WHERE key < {0} GROUP BY key"
)
_BEGIN_SECONDS = 1_700_000_000
_RANGE_SECONDS = 10
_SECOND_US = 1_000_000
_PARTS = 40
"""Of the time, of each of which the p99 is drawn."""
_BATCHES_A_SECOND = _SECOND_US // EVERY_US
_BYTES = np.dtype([("at", ">i8"), ("n", ">i8"), ("key", ">i4"), ("value", ">f8")])


def queries(count: int) -> dict[str, str]:
    """The standing queries besides the followed one: selections by even numbers, windows by odd ones."""
    return {
        f"q{number}": (_WINDOWS if number % 2 else _SELECTION).format(constant(number))
        for number in range(1, count)
    }


def constant(number: int) -> int:
    """The constant of a query's condition."""
    return number % 90 + 10


def batches(rows: int, count: int) -> list[pa.Table]:
    """The first row of each batch has its number, the others -1."""
    random = np.random.default_rng(7)
    tables = []
    for number in range(count):
        at = number * EVERY_US + np.arange(rows) * EVERY_US // rows
        marks = np.full(rows, -1)
        marks[0] = number
        stamps = pa.array(_BEGIN_SECONDS * _SECOND_US + at, pa.timestamp("us", "UTC"))
        columns = [stamps, marks, random.integers(0, 100, rows).astype(np.int32), random.random(rows)]
        tables.append(pa.table(columns, names=["at", "n", "key", "value"]))
    return tables


def dues_us(count: int) -> npt.NDArray[np.int64]:
    """When batches are due, in microseconds from the first: every 20 ms, each up to 10 ms later.

    So what a contender does every 10 ms, such as a checkpoint, is at any distance from a push; at equal distances it would be at one,
    which luck decides.
    """
    shifts = np.random.default_rng(11).integers(0, _SHIFT_US, count)
    dues: npt.NDArray[np.int64] = np.arange(count) * EVERY_US + shifts
    return dues - dues[0]


def write_dues(count: int, path: Path) -> None:
    """The same as 8 bytes each, big-endian."""
    path.write_bytes(dues_us(count).astype(">i8").tobytes())


def write_bytes(tables: Sequence[pa.Table], path: Path) -> None:
    """28 bytes for each row, big-endian: `at` in microseconds, `n`, `key` (4 bytes) and `value`."""
    rows = pa.concat_tables(tables)
    array = np.empty(rows.num_rows, _BYTES)
    for name in _BYTES.names or ():
        column = rows.column(name)
        array[name] = (column.cast(pa.int64()) if name == "at" else column).to_numpy()
    path.write_bytes(array.tobytes())


def until_ms(count: int) -> int:
    """Windows of so many batches that end by this millisecond are compared: rows are a second further at the end."""
    return (_BEGIN_SECONDS + _last_end(count)) * 1000


def _last_end(count: int) -> int:
    return count // _BATCHES_A_SECOND - 1


@dataclass(frozen=True, slots=True)
class Answers:
    """What the queries besides the followed one answered: selected rows, rows of windows, and the sum of their counts."""

    selected: int
    windows: int
    counted: int

    @staticmethod
    def from_json(value: dict[str, Any]) -> Answers:
        """Of a contender's line."""
        return Answers(value["selected"], value["windows"], value["counted"])

    def require(self, meant: Answers, contender: str) -> None:
        """Raises `WrongAnswer` where others are meant."""
        if self != meant:
            raise WrongAnswer(f"{contender} answered {self}, and not {meant}")


def expected(tables: Sequence[pa.Table], count: int) -> Answers:
    """By numpy; `count` queries with the followed one."""
    rows = pa.concat_tables(tables)
    key, value = rows.column("key").to_numpy(), rows.column("value").to_numpy()
    second = rows.column("at").cast(pa.int64()).to_numpy() // _SECOND_US - _BEGIN_SECONDS
    ends = _last_end(len(tables))
    by_second = np.zeros((100, len(tables) // _BATCHES_A_SECOND + 2), np.int64)
    np.add.at(by_second, (key, second), 1)
    total = np.concatenate([np.zeros((100, 1), np.int64), np.cumsum(by_second, axis=1)], axis=1)
    end = np.arange(1, ends + 1)
    in_windows = total[:, end] - total[:, np.maximum(end - _RANGE_SECONDS, 0)]
    selected = windows = counted = 0
    for number in range(1, count):
        limit = constant(number)
        if number % 2:
            windows += int((in_windows[:limit] > 0).sum())
            counted += int(in_windows[:limit].sum())
        else:
            selected += int(((key == limit) & (value > float(f"0.9{limit}"))).sum())
    return Answers(selected, windows, counted)


def percentiles(values: np.ndarray) -> dict[str, float]:
    """Median, 99th and 99.9th percentile, maximum."""
    return {f"p{cut:g}": round(float(np.percentile(values, cut)), 2) for cut in (50, 99, 99.9, 100)}


def timeline_of(waits: np.ndarray) -> list[float]:
    """The p99 of each part of the time."""
    return [round(float(np.percentile(part, 99)), 2) for part in np.array_split(waits, _PARTS)]
