"""A query may read another query's results as a stream: live, over the archive, and at the provisional end."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from headrace.errors import UserError
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub

SUMS = "SELECT k, SUM(v) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k"
TOPS = "SELECT MAX(n) AS top, COUNT(*) AS sums, window_end FROM sums [RANGE 2 MINUTES SLIDE 2 MINUTES]"
MINUTES = 6


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A stream of six files, one a minute, each an epoch; `sums` reads it."""
    source = tmp_path / "in"
    source.mkdir()
    for minute in range(MINUTES):
        rows = [
            f"2024-01-01T00:0{minute}:{second:02d}Z,{'ab'[second % 2]},{second + minute}"
            for second in range(0, 60, 7)
        ]
        (source / f"{minute}.csv").write_text("\n".join(["at,k,v", *rows]) + "\n")
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(
            f"CREATE STREAM s (at TIMESTAMP, k STRING, v INT) USING csv OPTIONS (path '{source}', header 'true', "
            "order 'name', maxFilesPerTrigger '1') TIMESTAMP BY at"
        )
        hub.register(SUMS, "sums")
        yield hub


def tops(hub: Hub, name: str) -> list[tuple[int, int]]:
    """(greatest sum, number of sums) of each window of two minutes, committed and then provisional."""
    closing = hub.run_once()
    rows = hub.query(name).history().to_pylist() + closing[name].to_pylist()
    return [(row["top"], row["sums"]) for row in rows]


EXPECTED = [(145, 4), (155, 4), (165, 4)]


def test_windows_of_windows_close_as_far_as_the_inner_query_has_answered(hub: Hub) -> None:
    """By hand: `a` has 4 + 7k + … = 140 + 5·minute a minute, `b` less."""
    hub.register(TOPS, "tops")
    assert tops(hub, "tops") == EXPECTED


def test_a_reader_registered_late_sees_all_results(hub: Hub) -> None:
    """Law 7: as if it had been there first; nothing is late for it."""
    hub.run_once()
    hub.register(TOPS, "tops")
    assert tops(hub, "tops") == EXPECTED


def test_a_second_reader_reads_the_past_of_the_derived_stream(hub: Hub) -> None:
    """The first reader made the derived stream; the second replays it."""
    hub.register(TOPS, "tops")
    hub.run_once()
    hub.register(TOPS, "again")
    assert tops(hub, "again") == EXPECTED


def test_bounds_that_a_query_emits_are_in_the_way_only_of_who_names_them(hub: Hub) -> None:
    """The inner query has the ends of its windows; so do the windows over it, and a plain name could mean either."""
    hub.register(SUMS.replace("k,", "window_end, k,"), "ends")
    over = "FROM ends [RANGE TUMBLING 2 MINUTES]"
    hub.register(f"SELECT MAX(n) AS top, COUNT(*) AS sums, window.end AS e {over}", "tops")
    assert tops(hub, "tops") == EXPECTED
    for named in ("window_end", "ends.window_end", "*", "k, COUNT(*) AS c"):
        text = f"SELECT {named} {over}" + (" GROUP BY k, window_end" if "k" in named else "")
        with pytest.raises(
            UserError, match=r"'ends' has a column 'window_end', and so has its window"
        ) as refused:
            hub.register(text, "no")
        assert "Write window.end for the window's" in str(refused.value.remedy)
    hub.register("SELECT window_end, n FROM ends", "plain")


def test_a_query_that_is_read_neither_changes_nor_goes(hub: Hub) -> None:
    """Its readers' windows are over its results."""
    hub.register(TOPS, "tops")
    with pytest.raises(UserError, match="read by tops"):
        hub.execute("DROP QUERY sums")
    with pytest.raises(UserError, match="read by tops, so it cannot change"):
        hub.execute("ALTER QUERY sums AS SELECT COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE]")


@pytest.mark.parametrize("change", ["ALTER QUERY sums AS", "CREATE OR REPLACE QUERY sums AS"])
def test_a_query_cannot_read_itself(hub: Hub, change: str) -> None:
    """While the new text is bound the old one still has the name; the hub ran out of stack."""
    for source in ("SUMS", "(SELECT n FROM sums) AS t"):
        with pytest.raises(UserError, match="'sums' cannot read itself") as refused:
            hub.execute(f"{change} SELECT n FROM {source} WHERE n > 1")
        assert "line 1, column 1" in str(refused.value)
    hub.register(TOPS, "tops")
    assert tops(hub, "tops") == EXPECTED


def test_streams_that_end_for_good_emit_what_they_would_emit_if_they_ended_here(tmp_path: Path) -> None:
    """A query over another one, or over pairs of two streams, ends after what it reads."""
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(
            """CREATE STREAM a (k INT, at TIMESTAMP) USING push TIMESTAMP BY at;
            CREATE STREAM b (k INT, at TIMESTAMP) USING push TIMESTAMP BY at;
            CREATE QUERY counts AS SELECT k, COUNT(*) AS n FROM a [RANGE TUMBLING 10 SECONDS] GROUP BY k;
            CREATE QUERY sums AS SELECT SUM(n) AS total FROM counts [RANGE TUMBLING 1 MINUTE];
            CREATE QUERY most AS SELECT MAX(total) AS top FROM sums [RANGE TUMBLING 1 HOUR];
            CREATE QUERY joined AS SELECT x.k, COUNT(*) AS n
              FROM a [RANGE TUMBLING 10 SECONDS] x, b [RANGE TUMBLING 10 SECONDS] y WHERE x.k = y.k GROUP BY x.k;"""
        )
        rows = [{"k": number % 2, "at": start + dt.timedelta(seconds=3 * number)} for number in range(30)]
        hub.push("a", rows)
        hub.push("b", rows[:-1])
        hub.loop.drain()
        names = ("counts", "sums", "most", "joined")
        provisional = {name: table.to_pylist() for name, table in hub.finish().items()}
        expected = {
            name: hub.query(name).history().to_pylist()
            + [{key: row[key] for key in row if not key.startswith("__")} for row in provisional[name]]
            for name in names
        }
        assert [row["total"] for row in expected["sums"]] == [20, 10]
        hub.finish(seal=True)
        for name in names:
            assert sorted(hub.query(name).history().to_pylist(), key=repr) == sorted(
                expected[name], key=repr
            ), name


@pytest.mark.parametrize("at_rest", [("sums",), ("tops",), ("sums", "tops"), ()])
def test_queries_over_one_that_is_paused_when_the_stream_ends_end_when_it_is_resumed(
    hub: Hub, at_rest: tuple[str, ...]
) -> None:
    hub.register(TOPS, "tops")
    hub.register("SELECT * FROM tops", "again")
    hub.run_once()
    for name in at_rest:
        hub.execute(f"PAUSE QUERY {name}")
    hub.finish(seal=True)
    complete = hub.query("again").history().num_rows
    assert (complete == len(EXPECTED)) == (not at_rest)
    for name in at_rest:
        hub.execute(f"RESUME QUERY {name}")
        hub.catch_up()
    for name in ("tops", "again"):
        rows = hub.query(name).history().to_pylist()
        assert [(row["top"], row["sums"]) for row in rows] == EXPECTED


AT_ROWS = (
    "[ROWS 2 SLIDE 2]",
    "[ROWS 2 SLIDE 2 WATTR row_num]",
    "[PARTITION BY k ROWS 1 SLIDE 1]",
    "[RANGE 3 SECONDS SLIDE 2 ROWS]",
    "[SESSION 2 SECONDS]",
    "[DELTA 2 ON v]",
)
FEW = [
    (1, "a"),
    (3, "b"),
    (10, "a"),
    (20, "c"),
    (20, "c"),
    (21, "d"),
    (40, "a"),
    (41, "e"),
    (60, "b"),
    (61, "f"),
    (90, "a"),
]


@pytest.mark.parametrize("window", AT_ROWS)
def test_no_result_of_windows_that_end_at_rows_is_late_for_a_reader_that_follows_them(
    tmp_path: Path, window: str
) -> None:
    """An epoch a row and no slack: a window that ends at the punctuation is emitted after it, and its time is before it."""
    queries = {
        "ended": f"SELECT k, v, window_end AS e FROM s {window}",
        "plain": "SELECT k, v, e FROM ended",
        "outer": "SELECT window_end, k, COUNT(*) AS n, SUM(v) AS t FROM ended [RANGE TUMBLING 20 SECONDS] GROUP BY k",
    }
    emitted = {}
    for late in (False, True):
        with open_hub(tmp_path / f"{late}", local=True) as hub:
            hub.execute("CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
            if not late:
                hub.register_many(queries)
            for number, (second, k) in enumerate(FEW):
                at = dt.datetime.fromtimestamp(second, dt.UTC)
                hub.push("s", [{"k": k, "v": number, "at": at}])
                hub.run_once()
            if late:
                hub.register_many(queries)
            closing = hub.run_once()
            for name in queries:
                rows = hub.query(name).history().to_pylist()
                rows += closing[name].to_pylist() if name in closing else []
                emitted[name, late] = sorted(map(repr, rows))
    assert emitted["plain", False] == emitted["ended", False] == emitted["plain", True]
    assert emitted["outer", False] == emitted["outer", True]
    assert len(emitted["outer", False]) > 3


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("slack", [0, 7])
def test_windows_of_delta_that_the_end_of_the_stream_ends_reach_the_queries_over_them(
    tmp_path: Path, sealed: bool, slack: int
) -> None:
    """Each key has a window in progress when the stream ends, and punctuation has passed the rows of all but the last."""
    queries = {
        "held": "SELECT k, COUNT(*) AS v, window_end AS e FROM s [PARTITION BY k DELTA 2 ON v] GROUP BY k",
        "plain": "SELECT k, v, e FROM held",
        "outer": "SELECT k, SUM(v) AS v FROM held [RANGE TUMBLING 20 SECONDS] GROUP BY k",
    }
    emitted = {}
    for size in (1, 4, 9):
        with open_hub(tmp_path / f"{size}", local=True) as hub:
            hub.execute(
                f"CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at SLACK {slack} SECONDS"
            )
            hub.register_many(queries)
            rows = [
                {"k": "abcdef"[n % 6], "v": 0, "at": dt.datetime.fromtimestamp(1 + 5 * n, dt.UTC)}
                for n in range(13)
            ]
            for start in range(0, len(rows), size):
                hub.push("s", rows[start : start + size])
                hub.run_once()
            if sealed:
                hub.finish(seal=True)
            closing = {} if sealed else hub.run_once()
            for name in queries:
                all_rows = hub.query(name).history().to_pylist()
                all_rows += closing[name].to_pylist() if name in closing else []
                emitted[name, size] = sorted(map(repr, all_rows))
    assert emitted["plain", 1] == emitted["held", 1]
    assert len(emitted["outer", 1]) == len(emitted["held", 1]) == 6
    for name in queries:
        assert emitted[name, 1] == emitted[name, 4] == emitted[name, 9]


def test_a_variance_of_integers_that_did_not_change_is_not_emitted_as_a_change(tmp_path: Path) -> None:
    """The same hundred values in every window, cut into epochs and tasks in another way each time."""
    with open_hub(tmp_path, local=True) as hub:
        hub.execute("CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        select = "SELECT VARIANCE(v) AS x, STDDEV_POP(v) AS y FROM s [RANGE TUMBLING 100 SECONDS]"
        hub.register(f"ISTREAM({select})", "changes")
        values = [(n * 7919) % 1013 for n in range(100)]
        for window in range(6):
            rows = [
                {"k": "a", "v": v, "at": dt.datetime.fromtimestamp(100 * window + n, dt.UTC)}
                for n, v in enumerate(values[window:] + values[:window])
            ]
            for start in range(0, 100, 7 + 13 * window):
                hub.push("s", rows[start : start + 7 + 13 * window])
                hub.run_once()
        changes = hub.query("changes").history().to_pylist()
    exact = [Fraction(v) for v in values]
    mean = sum(exact) / 100
    spread = sum((v - mean) ** 2 for v in exact)
    assert [(row["x"], row["y"]) for row in changes] == [
        (pytest.approx(float(spread / 99), rel=1e-15), pytest.approx(float(spread / 100) ** 0.5, rel=1e-15))
    ]
