"""Queries over past and future from the OSCAR paper, each registered when part of its data is archived already.

Chandrasekaran & Franklin, Remembrance of Streams Past (2004). Queries read archives whole; commuters are also asked of a sample of cars.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub

MIDNIGHT = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
FIVE = MIDNIGHT + dt.timedelta(hours=17)
WEEK = 7


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute("CREATE STREAM cars (car INT, place STRING, at TIMESTAMP) USING push TIMESTAMP BY at")
        hub.execute(
            "CREATE STREAM ticks (symbol STRING, price DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at"
        )
        yield hub


def arrive(hub: Hub, stream: str, rows: list[dict[str, Any]]) -> None:
    hub.push(stream, rows)
    hub.catch_up()


def seen(car: int, place: str, at: dt.datetime) -> dict[str, Any]:
    return {"car": car, "place": place, "at": at}


def test_the_load_on_a_freeway_is_emitted_every_quarter_of_the_rush_hour(hub: Hub) -> None:
    """OQ-1: a landmark query that asks at half past five for all since five, and then continues to the end at seven."""
    rng = np.random.default_rng(1)
    minutes = sorted(rng.uniform(-30, 180, 900).tolist())
    rows = [
        seen(number, ("ashby", "bay bridge", "elsewhere")[number % 3], FIVE + dt.timedelta(minutes=minute))
        for number, minute in enumerate(minutes)
    ]
    rng.shuffle(places := [row["place"] for row in rows])
    rows = [row | {"place": place} for row, place in zip(rows, places, strict=True)]
    asked = sum(minute < 30 for minute in minutes)
    arrive(hub, "cars", rows[:asked])
    hub.register(
        "SELECT window_end, COUNT(*) FILTER (WHERE place = 'ashby') - COUNT(*) FILTER (WHERE place = 'bay bridge') AS more"
        " FROM cars [LANDMARK SLIDE 15 MINUTES] WHERE place IN ('ashby', 'bay bridge')"
        " BEGIN TIMESTAMP '2024-05-01 17:00:00' END TIMESTAMP '2024-05-01 19:00:00'",
        "load",
    )
    arrive(hub, "cars", rows[asked:])

    def more(end: dt.datetime) -> int:
        held = [row["place"] for row in rows if FIVE <= row["at"] < end]
        return held.count("ashby") - held.count("bay bridge")

    loads = {row["window_end"]: row["more"] for row in hub.query("load").history().to_pylist()}
    ends = [FIVE + dt.timedelta(minutes=quarter) for quarter in range(15, 121, 15)]
    assert {end: loads[end] for end in ends} == {end: more(end) for end in ends}


def test_commuters_are_those_seen_at_the_same_exit_and_hour_on_every_day_of_a_week(hub: Hub) -> None:
    """OQ-2: asked on the fifth day; a car that misses one day, or comes at another hour, is none."""
    rng = np.random.default_rng(2)
    rows = []
    for day in range(2 * WEEK):
        for car in range(20):
            if car < 6 or rng.random() < 0.8:
                hour = 8 if car < 12 or day % 5 else 10
                place = "ashby" if car < 16 or day % 3 else "powell"
                rows.append(
                    seen(
                        car,
                        place,
                        MIDNIGHT + dt.timedelta(days=day, hours=hour, seconds=int(rng.integers(3600))),
                    )
                )
    rows.append(seen(-1, "ashby", MIDNIGHT + dt.timedelta(days=2 * WEEK + 2)))
    rows.sort(key=lambda row: row["at"])
    asked = sum(row["at"] < MIDNIGHT + dt.timedelta(days=4) for row in rows)
    arrive(hub, "cars", rows[:asked])
    hub.register(
        "SELECT window_start, COUNT(*) AS n FROM (SELECT car, COUNT(DISTINCT CAST(at AS DATE)) AS days"
        f" FROM cars [RANGE {WEEK} DAYS SLIDE 1 DAY] WHERE place = 'ashby' AND EXTRACT(HOUR FROM at) = 8 GROUP BY car"
        f" HAVING COUNT(DISTINCT CAST(at AS DATE)) = {WEEK}) AS regulars [RANGE TUMBLING 1 DAY]",
        "commuters",
    )
    for start in range(asked, len(rows), 40):
        arrive(hub, "cars", rows[start : start + 40])

    def commuters(today: int) -> int:
        week = range(today - WEEK + 1, today + 1)
        days: dict[int, set[int]] = {}
        for row in rows:
            day = (row["at"] - MIDNIGHT).days
            if day in week and row["place"] == "ashby" and row["at"].hour == 8:
                days.setdefault(row["car"], set()).add(day)
        return sum(len(days_seen) == WEEK for days_seen in days.values())

    by_day = {
        (row["window_start"] - MIDNIGHT).days: row["n"]
        for row in hub.query("commuters").history().to_pylist()
    }
    assert by_day == {today: commuters(today) for today in range(WEEK - 1, 2 * WEEK)}
    assert min(by_day.values()) >= 6
    assert len(set(by_day.values())) > 1


def test_all_that_was_archived_and_all_that_comes_is_counted(hub: Hub) -> None:
    """OQ-3, at no reduction."""
    rows = [seen(number, "ashby", MIDNIGHT + dt.timedelta(seconds=number)) for number in range(500)]
    arrive(hub, "cars", rows[:400])
    hub.register("SELECT COUNT(*) AS n FROM cars", "all_cars")
    hub.catch_up()
    assert hub.query("all_cars").invoke().to_pylist() == [{"n": 400}]
    arrive(hub, "cars", rows[400:])
    assert hub.query("all_cars").invoke().to_pylist() == [{"n": 500}]


def test_a_daily_average_comes_of_hourly_sums_and_counts(hub: Hub) -> None:
    """OQ-4, with its copies of an hour and of a day as queries; an average of averages would be another."""
    rng = np.random.default_rng(4)
    rows = [
        {
            "symbol": "ab"[int(rng.integers(2))],
            "price": float(rng.integers(100, 999)) / 4,
            "at": MIDNIGHT + dt.timedelta(hours=float(hour)),
        }
        for hour in sorted(rng.triangular(0, 20, 72, 600).tolist())
    ]
    arrive(hub, "ticks", rows[:250])
    hub.execute("""
        CREATE QUERY hourly AS SELECT symbol, SUM(price) AS total, COUNT(*) AS n, AVG(price) AS mean
          FROM ticks [RANGE TUMBLING 1 HOUR] GROUP BY symbol;
        CREATE QUERY daily AS SELECT symbol, window_start, SUM(total) / SUM(n) AS mean, AVG(mean) AS wrong
          FROM hourly [RANGE TUMBLING 1 DAY] GROUP BY symbol;
        CREATE QUERY daily_from_ticks AS SELECT symbol, window_start, AVG(price) AS mean
          FROM ticks [RANGE TUMBLING 1 DAY] GROUP BY symbol;
    """)
    arrive(hub, "ticks", [*rows[250:], {"symbol": "c", "price": 1.0, "at": MIDNIGHT + dt.timedelta(days=4)}])
    daily = hub.query("daily").history().to_pylist()
    means = {(row["symbol"], row["window_start"]): row["mean"] for row in daily}
    meant = {
        (row["symbol"], row["window_start"]): row["mean"]
        for row in hub.query("daily_from_ticks").history().to_pylist()
    }
    assert len(means) == 6
    assert means == pytest.approx(meant, rel=1e-9)
    assert any(abs(row["mean"] - row["wrong"]) > 1e-3 for row in daily)


def test_commuters_of_a_sample_of_cars_are_exactly_those_of_its_cars(tmp_path: Path) -> None:
    """OQ-2 asked of a part of the archive: half of the rows would keep one of 128 commuters; half of the cars keep half of them."""
    rng, cars = np.random.default_rng(5), 6000
    always = rng.random(cars) < 0.3
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(
            "CREATE STREAM cars (car INT, place STRING, at TIMESTAMP) USING push"
            " OPTIONS (blocks '8', blocksBy 'car') TIMESTAMP BY at"
        )
        seen_on = np.zeros(cars, np.int64)
        for day in range(WEEK):
            here = np.flatnonzero(always | (rng.random(cars) < 0.8))
            seen_on[here] += 1
            minute = np.sort(rng.integers(0, 60 * 24, len(here)))
            at = np.datetime64("2024-05-01", "us") + day * np.timedelta64(86_400_000_000, "us")
            hub.push(
                "cars",
                pa.table(
                    {
                        "car": here.astype(np.int32),
                        "place": ["ashby"] * len(here),
                        "at": pa.array(at + minute * np.timedelta64(60_000_000, "us")).cast(
                            pa.timestamp("us", "UTC")
                        ),
                    }
                ),
            )
            hub.catch_up()
        text = (
            "SELECT COUNT(*) AS n FROM (SELECT car FROM cars WHERE place = 'ashby' GROUP BY car"
            f" HAVING COUNT(DISTINCT CAST(at AS DATE)) = {WEEK}) AS regulars WITHIN {{}} PERCENT"
        )
        (part,), (whole,) = (hub.execute(text.format(percent))[0].table.to_pylist() for percent in (10, 0))
    commuters = int((seen_on == WEEK).sum())
    assert whole == {"n": float(commuters), "n_error": 0.0, "kept": 1.0}
    assert part["kept"] < 0.5
    assert part["n"] * part["kept"] == pytest.approx(round(part["n"] * part["kept"]))  # whole commuters
    assert abs(part["n"] - commuters) <= 2 * part["n_error"]
