"""Questions that read the closed windows of registered queries in place of rows: the same answer, from fewer rows; never from windows that do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.time import SECOND

START = 1_699_999_200 * SECOND
"""A full hour."""
HOURS, HOUR_ROWS = 12, 900
HOURLY = (
    "SELECT symbol, g, COUNT(*) AS n, COUNT(price) AS prices, SUM(price) AS total, SUM(price) FILTER (WHERE g > 1) AS part"
    " FROM ticks AS t [RANGE TUMBLING 1 HOUR] WHERE t.g < 4 GROUP BY symbol, g"
)


def hour(number: int) -> pa.Table:
    rng = np.random.default_rng(number)
    at = START + number * 3600 * SECOND + np.arange(HOUR_ROWS) * 4 * SECOND
    return pa.table(
        {
            "at": pa.array(at).cast(pa.timestamp("us", tz="UTC")),
            "symbol": np.where(rng.random(HOUR_ROWS) < 0.3, "a", "b"),
            "g": rng.integers(0, 5, HOUR_ROWS),
            "price": pa.array(rng.integers(100, 900, HOUR_ROWS) / 4, mask=rng.random(HOUR_ROWS) < 0.1),
        }
    )


@contextmanager
def opened(path: Path, query: str = HOURLY, options: str = "OPTIONS (tags 'x, Summary')") -> Iterator[Hub]:
    with open_hub(path, local=True) as hub:
        hub.execute(
            "CREATE STREAM ticks (at TIMESTAMP, symbol STRING, g BIGINT, price DOUBLE) USING push"
            " OPTIONS (blocks '4') TIMESTAMP BY at"
        )
        hub.execute(f"CREATE QUERY hourly {options} AS {query}")
        for number in range(HOURS):
            hub.push("ticks", hour(number))
            hub.catch_up()
        yield hub


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with opened(tmp_path_factory.mktemp("summaries") / "home") as hub:
        yield hub


def ask(hub: Hub, text: str) -> tuple[list[dict[str, object]], str]:
    (outcome,) = hub.execute(f"{text} WITHIN 0 PERCENT")
    assert outcome.table is not None
    return outcome.table.to_pylist(), outcome.message


@pytest.mark.parametrize(
    ("select", "read"),
    [
        ("SELECT symbol, AVG(price) AS mean, COUNT(*) AS n FROM ticks WHERE g < 4 {} GROUP BY symbol", 2),
        ("SELECT symbol, g, SUM(price) AS total FROM ticks WHERE g < 4 {} GROUP BY symbol, g", 2),
        ("SELECT SUM(price) FILTER (WHERE g > 1) / COUNT(price) AS ratio FROM ticks WHERE g < 4 {}", 2),
        ("SELECT COUNT(*) AS n FROM ticks {}", 10),  # other conditions
        ("SELECT g % 2 AS r, COUNT(*) AS n FROM ticks WHERE g < 4 {} GROUP BY g % 2", 10),  # other groups
        ("SELECT COUNT(*) FILTER (WHERE g > 1) AS n FROM ticks WHERE g < 4 {}", 10),  # not counted
        ("SELECT PERCENTILE(price, 0.5) AS p, COUNT(*) AS n FROM ticks WHERE g < 4 {}", 10),
    ],
)
def test_the_answer_is_that_of_the_rows(
    hub: Hub, select: str, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From half past two until half past eleven: rows of two hours, or of ten."""
    text = select.format("BEGIN TIMESTAMP '2023-11-15 00:30:00' END TIMESTAMP '2023-11-15 09:29:59'")
    found, message = ask(hub, text)
    assert f"read {read * HOUR_ROWS:,} of {read * HOUR_ROWS:,} archived rows" in message
    assert ("windows from 2023-11-15T01:00:00Z to 2023-11-15T09:00:00Z from 'hourly'" in message) == (
        read == 2
    )
    monkeypatch.setattr("headrace.runtime.invoke.questions.answer.summary_of", lambda *_: None)
    exact, _ = ask(hub, text)
    assert len(found) == len(exact)
    for one, other in zip(found, exact, strict=True):
        assert one == {
            name: pytest.approx(value) if isinstance(value, float) else value for name, value in other.items()
        }


def test_without_a_beginning_every_closed_window_is_read_and_the_open_one_from_rows(hub: Hub) -> None:
    found, message = ask(hub, "SELECT COUNT(*) AS n FROM ticks WHERE g < 4")
    assert f"read {HOUR_ROWS:,} of {HOUR_ROWS:,} archived rows" in message
    assert found[0]["n"] == sum((hour(number)["g"].to_numpy() < 4).sum() for number in range(HOURS))
    (outcome,) = hub.execute("EXPLAIN SELECT COUNT(*) AS n FROM ticks WHERE g < 4 WITHIN 2 PERCENT")
    assert outcome.table is not None
    assert any(
        "windows to 2023-11-15T09:00:00Z from 'hourly'" in line for line in outcome.table["plan"].to_pylist()
    )


def test_of_a_run_that_a_window_cuts_the_rows_outside_are_read(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(
            "CREATE STREAM ticks (at TIMESTAMP, symbol STRING, g BIGINT, price DOUBLE) USING push TIMESTAMP BY at;"
            f" CREATE QUERY hourly OPTIONS (tags 'summary') AS {HOURLY}"
        )
        rows = pa.concat_tables(list(map(hour, range(3))))
        for first in range(0, 3 * HOUR_ROWS, HOUR_ROWS * 3 // 2):
            hub.push("ticks", rows.slice(first, HOUR_ROWS * 3 // 2))
            hub.catch_up()
        found, message = ask(hub, "SELECT COUNT(*) AS n FROM ticks WHERE g < 4")
        assert found[0]["n"] == (rows["g"].to_numpy() < 4).sum()
        assert "windows to 2023-11-15T00:00:00Z" in message
        assert f"read {HOUR_ROWS * 3 // 2:,} of" in message


def test_an_estimate_has_the_error_of_its_rows_alone(hub: Hub) -> None:
    text = "SELECT SUM(price) AS total FROM ticks WHERE g < 4 BEGIN TIMESTAMP '2023-11-14 22:30:00' END NOW"
    (outcome,) = hub.execute(f"{text} WITHIN 50 PERCENT")
    assert outcome.table is not None
    (row,) = outcome.table.to_pylist()
    exact = ask(hub, text)[0][0]["total"]
    assert 0 <= row["total_error"] < 0.05 * row["total"]
    assert abs(row["total"] - exact) <= max(2 * row["total_error"], 1e-6)


@pytest.mark.parametrize(
    ("query", "options"),
    [
        (HOURLY, ""),
        (HOURLY, "OPTIONS (tags 'summary', retain '2 HOURS')"),
        (HOURLY.replace("TUMBLING 1 HOUR", "2 HOURS SLIDE 1 HOUR"), "OPTIONS (tags 'summary')"),
        (f"{HOURLY} HAVING COUNT(*) > 100", "OPTIONS (tags 'summary')"),
    ],
)
def test_windows_that_do_not_have_everything_are_not_read(tmp_path: Path, query: str, options: str) -> None:
    with opened(tmp_path / "home", query, options) as hub:
        found, message = ask(hub, "SELECT COUNT(*) AS n FROM ticks WHERE g < 4")
        assert "hourly" not in message
        assert found[0]["n"] == sum((hour(number)["g"].to_numpy() < 4).sum() for number in range(HOURS))


def test_windows_that_lack_rows_on_which_another_aggregate_failed_are_not_read(tmp_path: Path) -> None:
    query = "SELECT symbol, SUM(price) AS total, SUM(12 / g) AS part FROM ticks [RANGE TUMBLING 1 HOUR] GROUP BY symbol"
    with opened(tmp_path / "home", query) as hub:
        assert hub.status()["rejected"]["hourly"]
        found, message = ask(hub, "SELECT SUM(price) AS total FROM ticks")
        assert "hourly" not in message
        assert found[0]["total"] == sum(
            sum(hour(number)["price"].drop_null().to_pylist()) for number in range(HOURS)
        )


def test_a_summary_that_is_complete_since_an_instant_is_read_from_there(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(
            "CREATE STREAM ticks (at TIMESTAMP, symbol STRING, g BIGINT, price DOUBLE) USING push TIMESTAMP BY at"
        )
        for number in range(HOURS):
            if number == 5:
                hub.execute(f"CREATE QUERY hourly FROM NOW OPTIONS (tags 'summary') AS {HOURLY}")
            hub.push("ticks", hour(number).slice(0, 500))
            hub.push("ticks", hour(number).slice(500))
            hub.catch_up()
        found, message = ask(hub, "SELECT COUNT(*) AS n FROM ticks WHERE g < 4")
        assert found[0]["n"] == sum((hour(number)["g"].to_numpy() < 4).sum() for number in range(HOURS))
        assert "windows from 2023-11-15T03:00:00Z to 2023-11-15T09:00:00Z" in message


def test_runs_that_a_question_has_read_whole_are_not_read_again(hub: Hub) -> None:
    """Their sums are those of rows, also where they are added to others, and only for the same groups, terms and conditions."""
    text = "SELECT {}, COUNT(*) AS n, AVG(price) AS mean FROM ticks{} WHERE price > 60 {} GROUP BY {}"
    until = "BEGIN TIMESTAMP '2023-11-14 22:00:00' END TIMESTAMP '2023-11-15 {}:30:00'"
    first, message = ask(hub, text.format("symbol", "", until.format("04"), "symbol"))
    assert f"read {7 * HOUR_ROWS:,} of {7 * HOUR_ROWS:,} archived rows" in message
    wider = text.format("t.symbol", " AS t", until.format("06"), "t.symbol")
    second, message = ask(hub, wider)
    others = f", sums of {6 * HOUR_ROWS:,} others from earlier questions"
    assert f"read {3 * HOUR_ROWS:,} of {9 * HOUR_ROWS:,} archived rows{others}" in message
    rows = pa.concat_tables(list(map(hour, range(9)))).to_pandas()
    rows = rows[(rows.price > 60) & (rows["at"] <= "2023-11-15T06:30:00Z")]
    assert [row["n"] for row in second] == rows.groupby("symbol").price.count().to_list()
    assert [row["mean"] for row in second] == pytest.approx(rows.groupby("symbol").price.mean().to_list())
    assert first[0]["n"] < second[0]["n"]
    narrow, message = ask(hub, text.format("symbol", "", until.format("01"), "symbol"))
    assert f"read {HOUR_ROWS:,} of" in message  # of a run that is known, but cut by the end
    assert [row["n"] for row in narrow] == rows[rows["at"] <= "2023-11-15T01:30:00Z"].groupby(
        "symbol"
    ).price.count().to_list()
    for other in (
        wider.replace("60", "61"),
        wider.replace("t.symbol", "t.g"),
        wider.replace("COUNT(*)", "COUNT(g)"),
    ):
        _, message = ask(hub, other)
        assert f"read {9 * HOUR_ROWS:,} of" in message


def test_a_sample_and_the_sums_of_runs_are_one_estimate(hub: Hub) -> None:
    text = "SELECT SUM(price) AS total FROM ticks WHERE g <> 3 BEGIN TIMESTAMP '2023-11-14 22:00:00' END {}"
    ask(hub, text.format("TIMESTAMP '2023-11-15 03:59:59'"))
    (outcome,) = hub.execute(f"{text.format('NOW')} WITHIN 40 PERCENT")
    assert "others from earlier questions" in outcome.message
    assert outcome.table is not None
    (row,) = outcome.table.to_pylist()
    exact = ask(hub, text.format("NOW"))[0][0]["total"]
    assert 0.5 < row["kept"] <= 1
    assert abs(row["total"] - exact) <= max(2 * row["total_error"], 1e-6)
