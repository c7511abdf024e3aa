"""SET TIME ZONE and the option timeZone: by whose clocks texts and queries read times, for good."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import UserError
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub

STREAM = "CREATE STREAM s (k INT, at TIMESTAMP) USING push TIMESTAMP BY at;"
BERLIN = "SET TIME ZONE 'Europe/Berlin';"
NOON = dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)
BY_DAY = "SELECT CAST(at AS DATE) AS day, COUNT(*) AS n FROM s GROUP BY CAST(at AS DATE)"


def answer(hub: Hub, name: str) -> list[dict[str, Any]]:
    return hub.query(name).invoke().to_pylist()


def push(hub: Hub, *moments: dt.datetime) -> None:
    hub.push("s", [{"k": index, "at": moment} for index, moment in enumerate(moments)])
    hub.loop.drain()


def test_a_query_reads_times_by_the_clocks_of_the_session_it_was_made_in(tmp_path: Path) -> None:
    parts = (
        "SELECT hour(at) AS h, CAST(at AS STRING) AS told, date_trunc('DAY', at) AS day,"
        " at > TIMESTAMP '2024-07-01 13:30:00' AS later, at + INTERVAL 1 DAY AS next FROM s"
    )
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(
            f"{STREAM} CREATE QUERY there AS {parts}; {BERLIN} CREATE QUERY here AS {parts};"
            f" CREATE QUERY said OPTIONS (timeZone 'Asia/Tokyo') AS {parts};"
        )
        hub.register(parts, "api")
        push(hub, NOON)
        day = dt.timedelta(days=1)
        midnight = NOON.replace(hour=0)
        utc = {"h": 12, "told": "2024-07-01 12:00:00", "day": midnight, "later": False, "next": NOON + day}
        berlin = {
            "h": 14,
            "told": "2024-07-01 14:00:00",
            "day": midnight - dt.timedelta(hours=2),
            "later": True,
            "next": NOON + day,
        }
        assert answer(hub, "there") == [utc]
        assert answer(hub, "here") == answer(hub, "api") == [berlin]
        assert answer(hub, "said")[0]["h"] == 21


def test_a_day_is_a_calendar_s_where_clocks_are_moved(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(
            f"{STREAM} {BERLIN} CREATE QUERY moved AS SELECT at + INTERVAL 1 DAY AS t, at - INTERVAL 24 HOURS AS u FROM s;"
        )
        push(hub, dt.datetime(2024, 3, 30, 11, tzinfo=dt.UTC))
        (row,) = answer(hub, "moved")
        assert row["t"] == dt.datetime(2024, 3, 31, 10, tzinfo=dt.UTC), "noon, an hour sooner"
        assert row["u"] == dt.datetime(2024, 3, 29, 11, tzinfo=dt.UTC)


def test_the_zone_of_a_query_outlives_the_process_and_another_session(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(f"{STREAM} {BERLIN} CREATE QUERY days AS {BY_DAY};")
        push(hub, NOON, NOON.replace(hour=22, minute=30))
    with open_hub(tmp_path / "home", local=True) as hub:
        push(hub, NOON.replace(hour=23))
        held = sorted((row["day"].day, row["n"]) for row in answer(hub, "days"))
        assert held == [(1, 1), (2, 2)]
        hub.execute(f"{BERLIN} CREATE QUERY days AS {BY_DAY};")  # equal to what is there
        with pytest.raises(UserError, match="differs in"):
            hub.execute(f"SET TIME ZONE 'UTC'; CREATE QUERY days AS {BY_DAY};")
        hub.execute(f"ALTER QUERY days AS {BY_DAY}")
        hub.loop.drain()
        assert answer(hub, "days") == [{"day": dt.date(2024, 7, 1), "n": 3}], "this session reads UTC"


@pytest.mark.parametrize("form", ["csv", "json"])
def test_texts_without_a_zone_mean_what_the_clocks_of_the_stream_s_zone_show(
    tmp_path: Path, form: str
) -> None:
    times = [
        "2024-07-01 12:00:00",
        "2024-07-01T12:00:00Z",
        "2024-07-01 12:00:00+05:00",
        "2024-10-27 02:30:00.25",
    ]
    if form == "csv":
        text = "k,at\n" + "".join(f"{k},{time_text}\n" for k, time_text in enumerate(times))
    else:
        text = "".join(f'{{"k": {k}, "at": "{time_text}"}}\n' for k, time_text in enumerate(times))
    (tmp_path / "rows").write_text(text, encoding="utf-8")
    options = f"(path '{tmp_path}/rows'" + (", header 'true')" if form == "csv" else ")")
    stream = f"(k INT, at TIMESTAMP) USING {form} OPTIONS {options} TIMESTAMP BY at SLACK INTERVAL 1 DAY;"
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(
            f"CREATE STREAM u {stream} {BERLIN} CREATE STREAM b {stream}"
            " CREATE QUERY us AS SELECT k, at FROM u; CREATE QUERY bs AS SELECT k, at FROM b;"
        )
        hub.loop.drain()
        utc = {row["k"]: row["at"] for row in answer(hub, "us")}
        berlin = {row["k"]: row["at"] for row in answer(hub, "bs")}
    assert berlin[0] == utc[0] - dt.timedelta(hours=2)
    assert berlin[1] == utc[1] == NOON
    assert berlin[2] == utc[2] == NOON - dt.timedelta(hours=5)
    assert berlin[3] == utc[3] - dt.timedelta(hours=2), "shown twice: the first time, in summer"


def test_patterns_of_times_follow_the_zone_too(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("1,01/07/2024 12:00:00\n", encoding="utf-8")
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(
            f"""CREATE STREAM s (k INT, at TIMESTAMP) USING csv OPTIONS (path '{tmp_path}/rows.csv',
            timestampFormat 'dd/MM/yyyy HH:mm:ss', timeZone 'America/New_York') TIMESTAMP BY at;
            CREATE QUERY q AS SELECT at FROM s;"""
        )
        hub.loop.drain()
        assert answer(hub, "q") == [{"at": NOON + dt.timedelta(hours=4)}]


def test_a_promise_of_the_rows_is_read_by_the_clocks_of_the_stream(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("1,2024-07-01 23:00:00\n2,2024-07-02 00:00:00\n", encoding="utf-8")
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(
            f"""{BERLIN} CREATE STREAM s (k INT, at TIMESTAMP) USING csv OPTIONS (path '{tmp_path}/rows.csv')
            TIMESTAMP BY at PUNCTUATED BY hour(at) = 0;
            CREATE QUERY q AS SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 1 HOUR];"""
        )
        hub.loop.drain()
        assert [row["n"] for row in hub.query("q").history().to_pylist()] == [1]


def test_a_zone_that_does_not_exist_is_reported_where_it_is(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True) as hub:
        for text in (
            "SET TIME ZONE 'Mars/Olympus'",
            "CREATE STREAM z (k INT) USING csv OPTIONS (path '/tmp', timeZone 'Mars/Olympus')",
            "CREATE QUERY z OPTIONS (timeZone 'Mars/Olympus') AS SELECT 1 AS one FROM s",
        ):
            with pytest.raises(UserError, match="there is no time zone 'Mars/Olympus'") as raised:
                hub.execute(text)
            assert raised.value.span is not None
            assert text[raised.value.span.start :].startswith("'Mars")


def test_a_query_can_be_given_another_zone(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(f"{STREAM} CREATE QUERY q AS SELECT hour(at) AS h FROM s;")
        push(hub, NOON)
        hub.execute("ALTER QUERY q SET (timeZone 'Asia/Tokyo')")
        hub.loop.drain()
        assert answer(hub, "q") == [{"h": 21}]
