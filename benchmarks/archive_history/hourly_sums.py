"""Questions about hours and days from sums: those of a registered query by the hour, and those that an earlier question has left."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.runtime.hub.hub import Hub
from headrace.runtime.invoke.questions import run_sums
from headrace.schema import STAMP

START: Final = 1_699_920_000
"""The beginning of a day, in seconds."""
HOURS, HOUR_ROWS = 60, 600
SYMBOLS: Final = 3
HOURLY: Final = (
    "SELECT symbol, COUNT(*) AS n, SUM(price) AS total FROM ticks [RANGE TUMBLING 1 HOUR] GROUP BY symbol"
)
QUESTION: Final = (
    "SELECT symbol, COUNT(*) AS n, SUM(price) AS total FROM ticks {} GROUP BY symbol WITHIN 0 PERCENT"
)
_READ: Final = re.compile(r"read ([\d,]+) of")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question: the rows that it read, those that it has to read at least, and whether its answer is that of all rows."""

    name: str
    read: int
    expected: int
    is_exact: bool


def asked(folder: Path) -> list[Asked]:
    """Questions over two and a half days: from a copy by the hour, and from the sums that the first question has left."""
    return [*_eager(folder / "eager"), *_lazy(folder / "lazy")]


def _eager(folder: Path) -> Iterator[Asked]:
    """A copy by the hour: questions about whole hours and days read no row, others those of the hours that they cut."""
    with hr.open(folder, local=True) as hub:
        _stream(hub, 0, HOURS, f"CREATE QUERY hourly OPTIONS (tags 'summary') AS {HOURLY}")
        last = HOURS - 1  # the last hour is not closed
        yield _ask(hub, "copy: an hour", (5, 6), 0)
        yield _ask(hub, "copy: a day", (24, 48), 0)
        yield _ask(hub, "copy: 59 hours", (0, last), 0)
        yield _ask(hub, "copy: a day from half past to half past", (10.5, 34.5), 2 * HOUR_ROWS)


def _lazy(folder: Path) -> Iterator[Asked]:
    """No copy: the first question reads all rows, later ones what is new."""
    run_sums.cached.clear()
    with hr.open(folder, local=True) as hub:
        _stream(hub, 0, HOURS)
        yield _ask(hub, "no copy: first question", (0, HOURS), HOURS * HOUR_ROWS)
        yield _ask(hub, "no copy: second question", (0, HOURS), 0)
        _stream(hub, HOURS, HOURS + 2)
        yield _ask(hub, "no copy: two hours later", (0, HOURS + 2), 2 * HOUR_ROWS)
        yield _ask(hub, "no copy: a day of it", (24, 48), 0)
    run_sums.cached.clear()


def _stream(hub: Hub, first: int, last: int, query: str | None = None) -> None:
    if not first:
        hub.execute(
            "CREATE STREAM ticks (at TIMESTAMP, symbol BIGINT, price BIGINT) USING push OPTIONS (blocks '4') TIMESTAMP BY at"
        )
    if query is not None:
        hub.execute(query)
    for number in range(first, last):
        at, symbol, price = _hour(number)
        hub.push("ticks", pa.table({"at": pa.array(at).cast(STAMP), "symbol": symbol, "price": price}))
        hub.catch_up()


def _hour(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(number)
    at = (START + number * 3600) * 1_000_000 + np.arange(HOUR_ROWS) * (3600 * 1_000_000 // HOUR_ROWS)
    return at, draw.integers(0, SYMBOLS, HOUR_ROWS), draw.integers(100, 900, HOUR_ROWS)


def _ask(hub: Hub, name: str, hours: tuple[float, float], expected: int) -> Asked:
    begin, end = (np.datetime64(int((START + 3600 * hour) * 1e6), "us") for hour in hours)
    last = end - np.timedelta64(1, "us")
    times = f"BEGIN TIMESTAMP '{_text(begin)}' END TIMESTAMP '{_text(last)}'"
    (outcome,) = hub.execute(QUESTION.format(times))
    assert outcome.table is not None
    found = sorted((row["symbol"], row["n"], row["total"]) for row in outcome.table.to_pylist())
    parts = [_hour(number) for number in range(int(hours[0]), int(np.ceil(hours[1])))]
    at, symbol, price = (np.concatenate(each) for each in zip(*parts, strict=True))
    within = (at >= begin.astype(np.int64)) & (at <= last.astype(np.int64))
    truth = [
        (one, float((within & (symbol == one)).sum()), float(price[within & (symbol == one)].sum()))
        for one in range(SYMBOLS)
    ]
    read = _READ.search(outcome.message)
    assert read is not None
    return Asked(name, int(read[1].replace(",", "")), expected, found == truth)


def _text(instant: np.datetime64) -> str:
    return str(instant).replace("T", " ")
