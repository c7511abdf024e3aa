"""The claims on time series (PAT-1 to PAT-6) on a served hub: series arrive over the network while queries are registered and dropped, and it is killed."""

from __future__ import annotations

import signal
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.time import SECOND
from tests.server.serving import served

STREAM = (
    "CREATE STREAM readings (series STRING, x DOUBLE, y DOUBLE, at TIMESTAMP) USING push"
    " OPTIONS (maxAhead '1000 days') TIMESTAMP BY at SLACK INTERVAL 5 SECONDS"
)
STATISTICS = (
    "SELECT series, COUNT(*) AS n, AVG(x) AS mean, STDDEV(x) AS deviation, MIN(x) AS least, MAX(x) AS greatest,"
    " COUNT(DISTINCT y) AS ys, CORR(x, y) AS r FROM readings [RANGE {range} SECONDS SLIDE 10 SECONDS] GROUP BY series"
)
SERIES, SECONDS = 60, 120
ALL = [
    (f"series-{number}", float((second * 7 + number) % 13), float((second * 5 + number * 3) % 11), second)
    for second in range(SECONDS)
    for number in range(SERIES)
]


def table(rows: list[tuple[str, float, float, int]]) -> pa.Table:
    series, x, y, seconds = zip(*rows, strict=True)
    at = pa.array([second * SECOND for second in seconds], pa.timestamp("us", tz="UTC"))
    return pa.table({"series": series, "x": x, "y": y, "at": at})


def meant(length: int) -> dict[tuple[int, str], tuple[Any, ...]]:
    """The statistics of each series in each window that has ended, computed from the list of rows."""
    ended = (SECONDS - 1 - 5) // 10 * 10
    found = {}
    for end in range(10, ended + 1, 10):
        for number in range(SERIES):
            name = f"series-{number}"
            values = [
                (x, y) for series, x, y, second in ALL if series == name and end - length <= second < end
            ]
            xs, ys = [x for x, _ in values], [y for _, y in values]
            r = statistics.correlation(xs, ys)
            figures = (len(xs), statistics.fmean(xs), statistics.stdev(xs), min(xs), max(xs), len({*ys}), r)
            found[end, name] = figures
    return found


def ended(rows: pa.Table) -> dict[tuple[int, str], tuple[Any, ...]]:
    """The same of a query's results; each window of each series once."""
    names = ("n", "mean", "deviation", "least", "greatest", "ys", "r")
    found = {}
    for row in rows.to_pylist():
        key = int(row["window_end"].timestamp()), row["series"]
        assert key not in found
        found[key] = tuple(row[name] for name in names)
    return found


def assert_equal(rows: pa.Table, length: int, since: int = 0) -> None:
    wanted = {key: figures for key, figures in meant(length).items() if key[0] > since}
    found = {key: figures for key, figures in ended(rows).items() if key[0] > since}
    assert found.keys() == wanted.keys()
    for key, figures in found.items():
        assert figures == pytest.approx(wanted[key], rel=1e-9, abs=1e-9), key


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def select(length: int) -> str:
    return STATISTICS.format(range=length).replace("SELECT series", "SELECT series, window_end")


@pytest.mark.timeout(300)
def test_series_arrive_while_queries_come_and_go_and_the_hub_is_killed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with served(home) as hub, hr.connect(home) as client:
        client.execute(STREAM)
        client.register(select(20), "early")
        client.register("SELECT COUNT(*) AS n FROM readings", "arrived")
        client.register(select(40), "resized")
        pushing = threading.Thread(target=_push, args=(home, 0, SECONDS // 2))
        pushing.start()
        for number in range(10):  # a fifth of all queries and more, again and again, while rows arrive
            client.register(select(10 + 10 * (number % 3)), f"guest_{number}")
            if number % 2:
                client.execute(f"PAUSE QUERY guest_{number - 1}; DROP QUERY guest_{number - 1}")
        pushing.join()
        until(lambda: client.query("arrived").invoke().to_pylist() == [{"n": SERIES * SECONDS // 2}])
        client.execute("ALTER QUERY resized SET WINDOW [RANGE 20 SECONDS SLIDE 10 SECONDS]")
        hub.process.send_signal(signal.SIGKILL)
        hub.process.wait()
    with served(home), hr.connect(home) as client:
        client.execute("RESUME QUERIES LIKE 'guest%'; DROP QUERIES LIKE 'guest%'")
        client.register(select(30), "late")
        _push(home, SECONDS // 2, SECONDS)
        until(lambda: client.query("arrived").invoke().to_pylist() == [{"n": SERIES * SECONDS}])
        early = client.query("early").history()
        assert_equal(early, 20)
        until(lambda: len(ended(client.query("late").history())) == len(meant(30)))
        assert_equal(
            client.query("late").history(), 30
        )  # from the archive: as if it had been there from the start
        assert_equal(client.query("resized").history(), 20, since=SECONDS // 2)
        client.register(
            "SELECT series, x, y, at FROM readings BEGIN TIMESTAMP '1970-01-01 00:00:50' END TIMESTAMP '1970-01-01 00:01:10'",
            "between",
        )
        until(lambda: client.query("between").invoke().num_rows == SERIES * 21)
        read = [
            (row["series"], row["x"], row["y"], int(row["at"].timestamp()))
            for row in client.query("between").invoke().to_pylist()
        ]
        assert sorted(read) == sorted(row for row in ALL if 50 <= row[3] <= 70)


def _push(home: Path, first: int, end: int) -> None:
    with hr.connect(home) as client:
        for second in range(first, end, 5):
            client.push("readings", table([row for row in ALL if second <= row[3] < second + 5]))
