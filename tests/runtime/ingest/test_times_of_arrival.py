"""Streams that have no event time of their own: arrival stamps under every kind of archive, and the rate source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import UserError
from headrace.operators.base.operator import AT
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.results import result_log
from headrace.time import SECOND

T0 = 1_700_000_000 * SECOND
COUNTED = "SELECT COUNT(*) AS n, SUM(v) AS total FROM s [RANGE TUMBLING 10 SECONDS]"


class Watch:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = T0

    def __call__(self) -> int:
        return self.now


def hub_of(folder: Path, clock: Watch, tasks: int = 2) -> Hub:
    return Hub(folder / "home", LocalExecutor(), clock=clock, tasks=tasks)


def emitted(hub: Hub, name: str) -> list[tuple[Any, ...]]:
    """(seconds after T0 at which the window ends, the query's columns), in order."""
    operator, query = hub.operator_and_query(name)
    answers = []
    for part in result_log.epochs_of(hub.home, hub.home.latest(), operator.id):
        ends = part.table.column(AT).to_pylist()
        rows = part.table.select(query.schema.names).to_pylist()
        answers += [((end - T0) // SECOND, *row.values()) for end, row in zip(ends, rows, strict=True)]
    return sorted(answers)


def arriving(folder: Path, clock: Watch, hub: Hub) -> None:
    """Six files, one every 4 seconds; file i has the rows i and 10 i."""
    for number in range(6):
        (folder / "in" / f"{number}.csv").write_text(f"{number}\n{10 * number}\n")
        hub.catch_up()
        clock.now += 4 * SECOND


WHOLE = [(10, 6, 33), (20, 4, 77)]
"""Files 0 to 2 come in the first ten seconds, 3 and 4 in the next; the last window is still open."""


@pytest.mark.parametrize("archive", ["copy", "in place", "none"])
def test_rows_without_an_event_time_are_stamped_when_they_arrive_and_stay_so(
    tmp_path: Path, archive: str
) -> None:
    clock = Watch()
    (tmp_path / "in").mkdir()
    with hub_of(tmp_path, clock) as hub:
        hub.execute(
            f"CREATE STREAM s (v BIGINT) USING csv OPTIONS (path '{tmp_path}/in', archive '{archive}');"
            f"CREATE QUERY first AS {COUNTED};"
        )
        arriving(tmp_path, clock, hub)
        assert emitted(hub, "first") == WHOLE
    clock.now += 1000 * SECOND
    with hub_of(tmp_path, clock, 3) as hub:
        assert bool(hub.home.store.list("archive/")) is (archive == "copy")
        hub.execute(f"CREATE QUERY later AS {COUNTED}; CREATE QUERY now_on FROM NOW AS {COUNTED};")
        (tmp_path / "in" / "6.csv").write_text("6\n60\n")
        hub.catch_up()
        ended = [*WHOLE, (30, 2, 55)]
        assert emitted(hub, "first") == ended
        # What is read again has the stamps of when it came, not of when it is read; without an archive nothing is read,
        # and the window that is still open is filled from the panes of the query that was there.
        assert emitted(hub, "later") == (ended[-1:] if archive == "none" else ended)
        assert emitted(hub, "now_on") == []
        clock.now += 20 * SECOND
        (tmp_path / "in" / "7.csv").write_text("7\n")
        hub.catch_up()
        assert emitted(hub, "later")[-1] == emitted(hub, "now_on")[-1] == emitted(hub, "first")[-1]
        assert emitted(hub, "now_on") == [(1030, 2, 66)]
        assert hub.status()["streams"]["s"]["late"] == 0
        assert hub.check().faults == 0


def test_a_query_over_a_stream_without_archive_answers_across_a_restart_what_it_began(tmp_path: Path) -> None:
    clock = Watch()
    (tmp_path / "in").mkdir()
    with hub_of(tmp_path, clock) as hub:
        hub.execute(
            f"CREATE STREAM s (v BIGINT) USING csv OPTIONS (path '{tmp_path}/in', archive 'none');"
            f"CREATE QUERY q AS {COUNTED};"
        )
        (tmp_path / "in" / "0.csv").write_text("1\n")
        hub.catch_up()
    (tmp_path / "in" / "0.csv").unlink()  # no epoch reads it again
    clock.now += 5 * SECOND
    with hub_of(tmp_path, clock, 1) as hub:
        (tmp_path / "in" / "1.csv").write_text("2\n")
        hub.catch_up()
        clock.now += 10 * SECOND
        (tmp_path / "in" / "2.csv").write_text("3\n")
        hub.catch_up()
        assert emitted(hub, "q") == [(10, 2, 3)]


def test_a_rate_stream_gives_every_number_once_at_its_time_whatever_the_steps_and_restarts(
    tmp_path: Path,
) -> None:
    clock, expected = Watch(), {}
    for value in range(7 * 35 + 1):
        window = (value * SECOND // 7) // (10 * SECOND) * 10 + 10
        expected.setdefault(window, []).append(value)
    query = (
        "SELECT COUNT(*) AS n, MIN(value) AS low, MAX(value) AS top, SUM(value) AS total"
        " FROM ticks [RANGE TUMBLING 10 SECONDS]"
    )
    with hub_of(tmp_path, clock) as hub:
        hub.execute(
            "CREATE STREAM ticks (timestamp TIMESTAMP, value BIGINT) USING rate OPTIONS (rowsPerSecond '7')"
            f" TIMESTAMP BY timestamp; CREATE QUERY q AS {query};"
        )
        for step in (0, 1, 300_000, 7 * SECOND, 50_000):
            clock.now += step
            hub.catch_up()
    for restart, step in enumerate((3 * SECOND, 11 * SECOND + 7)):
        clock.now += step
        with hub_of(tmp_path, clock, 1 + restart) as hub:
            hub.catch_up()
    clock.now = T0 + 35 * SECOND
    with hub_of(tmp_path, clock, 3) as hub:
        hub.catch_up()
        assert hub.status()["streams"]["ticks"]["rows"] == 7 * 35 + 1
        assert emitted(hub, "q") == [
            (end, len(values), values[0], values[-1], sum(values))
            for end, values in expected.items()
            if end <= 30
        ]
        hub.execute(f"CREATE QUERY again AS {query};")
        hub.catch_up()
        assert emitted(hub, "again") == emitted(hub, "q")


def test_a_rate_stream_of_other_columns_is_refused_when_it_is_made(tmp_path: Path) -> None:
    with hub_of(tmp_path, Watch()) as hub:
        with pytest.raises(
            UserError, match=r"line 2, column 1: 't': a rate source has a TIMESTAMP and a BIGINT"
        ):
            hub.execute("SHOW STREAMS;\nCREATE STREAM t (a STRING) USING rate;")
        assert hub.catalog.stream("t") is None
        hub.execute("CREATE STREAM t (at TIMESTAMP, n BIGINT) USING rate;")
        hub.catch_up()


def test_a_file_stream_that_falls_silent_goes_on_with_the_clock_also_after_a_restart(tmp_path: Path) -> None:
    clock = Watch()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.csv").write_text("1,2023-11-14 22:13:21\n2,2023-11-14 22:13:27\n")  # T0 + 1, + 7
    with hub_of(tmp_path, clock) as hub:
        hub.execute(
            f"CREATE STREAM s (v BIGINT, at TIMESTAMP) USING csv OPTIONS (path '{tmp_path}/in')"
            f" TIMESTAMP BY at IDLE TIMEOUT INTERVAL 30 SECONDS; CREATE QUERY q AS {COUNTED};"
        )
        hub.catch_up()
        clock.now += 29 * SECOND
        assert hub.loop.step() is None
        assert emitted(hub, "q") == []
    clock.now += 2 * SECOND
    with hub_of(tmp_path, clock, 1) as hub:
        hub.loop.drain()
        assert emitted(hub, "q") == [(10, 2, 3)]
        assert hub.status()["streams"]["s"]["rows"] == 2
