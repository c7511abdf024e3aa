"""Windows that slide over the time of one side of a join, in the pipeline: which window is emitted after which epoch, while the other
stream is ahead, the join is paused or behind, after restarts and for queries that are registered later.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import UnsupportedQuery
from tests.runtime.progress.test_pair_progress import minutes, opened, push

LATER = (
    "SELECT x.at AS xt, y.at AS yt, greatest(x.at, y.at) AS later FROM a x, b y"
    " WHERE x.k = y.k AND y.at BETWEEN x.at AND x.at + INTERVAL 10 MINUTES"
)


def over(column: str, window: str = "[RANGE TUMBLING 5 MINUTES WATTR {}]") -> str:
    return f"SELECT window_end, COUNT(*) AS n FROM pairs {window.format(column)}"


def test_a_window_over_one_side_waits_for_its_stream_and_for_the_other_less_the_interval(
    tmp_path: Path,
) -> None:
    queries = {"ordered": over("xt"), "paid": over("yt"), "last": over("later")}
    with opened(tmp_path, LATER, **queries) as hub:
        push(hub, "a", 1, 2, 6, 12)
        push(hub, "b", 3, 7, 13)
        push(hub, "b", upto=40)
        assert minutes(hub, "ordered") == [], "a has promised nothing"
        push(hub, "a", upto=9)
        assert minutes(hub, "ordered") == [(5, 4)], "the bound of a is 9, that of b less the interval 30"
        assert minutes(hub, "paid") == [(5, 2)]
        assert minutes(hub, "last") == [(5, 2)]
        plan = hub.explain("ordered")
        assert (
            "a window over xt is emitted once the punctuation of a and the punctuation of b less 10 MINUTES"
            " have passed its end" in plan
        )
        push(hub, "a", upto=15)
        assert minutes(hub, "ordered") == [(5, 4), (10, 2), (15, 1)]
        assert minutes(hub, "paid") == [(5, 2), (10, 3), (15, 2)]
    with opened(tmp_path, late=over("xt")) as hub:
        hub.loop.drain()
        assert minutes(hub, "late") == minutes(hub, "ordered"), "registered after all of it"
        assert hub.query("ordered").invoke().to_pylist()[0]["n"] == 1


def test_a_window_is_emitted_once_while_its_join_is_paused_and_behind(tmp_path: Path) -> None:
    with opened(tmp_path, LATER, ordered=over("xt")) as hub:
        push(hub, "a", 1, 2)
        push(hub, "b", 3, 8)
        push(hub, "b", upto=60)
        push(hub, "a", upto=9)
        assert minutes(hub, "ordered") == [(5, 4)]
        hub.execute("PAUSE QUERY pairs")
        push(hub, "a", 11, upto=14)
        push(hub, "a", upto=16)
        assert minutes(hub, "ordered") == [(5, 4)], "the join has not read the row at 11"
    with opened(tmp_path) as hub:
        push(hub, "a", upto=30)
        hub.execute("RESUME QUERY pairs")
        push(hub, "a", upto=31)
        hub.loop.drain()
        assert minutes(hub, "ordered") == [(5, 4)], "no row of b is within ten minutes after 11"
        push(hub, "a", 52)
        push(hub, "b", 61, upto=90)
        push(hub, "a", upto=60)
        assert minutes(hub, "ordered") == [(5, 4), (55, 1)]


def test_the_provisional_end_has_the_windows_that_wait(tmp_path: Path) -> None:
    with opened(tmp_path, LATER, ordered=over("xt"), last=over("later")) as hub:
        push(hub, "a", 1, 12, upto=14)
        push(hub, "b", 3, 13, upto=14)
        assert minutes(hub, "ordered") == []
        ending = hub.finish()
        assert ending["ordered"].column("n").to_pylist() == [1, 1]
        assert minutes(hub, "ordered") == [], "the windows are open still"
        push(hub, "b", 16)
        assert hub.finish()["last"].column("n").to_pylist() == [1, 1]
        assert hub.finish()["ordered"].column("n").to_pylist() == [1, 2]
        hub.finish(seal=True)
        assert minutes(hub, "ordered") == [(5, 1), (15, 2)]
        assert minutes(hub, "last") == [(5, 1), (15, 1), (20, 1)]


def test_the_provisional_end_of_a_join_of_windows_is_read_at_the_times_of_the_side(tmp_path: Path) -> None:
    held = "SELECT ISTREAM(x.at AS xt, y.at AS yt) FROM a x [RANGE 10 MINUTES], b y [NOW] WHERE x.k = y.k"
    with opened(tmp_path, held, ordered=over("xt"), paid=over("yt")) as hub:
        push(hub, "a", 1, 4, upto=5)
        push(hub, "b", 7, 8, upto=5)
        assert minutes(hub, "pairs") == [], "a may have a row at 7"
        ending = hub.finish()
        assert ending["ordered"].column("n").to_pylist() == [4], "the orders of the first five minutes"
        assert ending["paid"].column("n").to_pylist() == [4]
        assert ending["ordered"].column("window_end") != ending["paid"].column("window_end")
        push(hub, "a", 12, upto=16)
        push(hub, "b", 13, upto=16)
        assert minutes(hub, "ordered") == [(5, 5)], "16 less the range of 10 minutes"
        assert minutes(hub, "paid") == [(10, 4), (15, 2)]
        push(hub, "a", upto=24)
        push(hub, "b", upto=24)
        assert minutes(hub, "ordered") == [(5, 5)], "no result came, and both advance by themselves"
        push(hub, "a", upto=26)
        push(hub, "b", upto=26)
        assert minutes(hub, "ordered") == [(5, 5), (15, 1)]


def test_windows_over_a_side_that_is_joined_without_end_are_refused(tmp_path: Path) -> None:
    unbounded = "SELECT x.at AS xt FROM a x, b y WHERE x.k = y.k"
    with opened(tmp_path, unbounded) as hub:
        with pytest.raises(UnsupportedQuery, match="no window over 'xt' would close"):
            hub.register(over("xt"), "ordered")
        assert hub.catalog.query("ordered") is None


def test_a_window_over_one_side_may_be_of_a_join_in_the_same_query(tmp_path: Path) -> None:
    text = f"SELECT window_start, COUNT(*) AS n FROM ({LATER}) AS p WHERE yt > xt GROUP BY window(xt, '5 minutes')"
    with opened(tmp_path, LATER, inner=text) as hub:
        push(hub, "a", 1, 2, 6)
        push(hub, "b", 2, 7, upto=30)
        push(hub, "a", upto=20)
        assert minutes(hub, "inner") == [(0, 3), (5, 1)]
        assert hub.query("inner").invoke().to_pylist() == []
