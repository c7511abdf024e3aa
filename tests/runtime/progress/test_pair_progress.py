"""Punctuation of the times of joined rows, in the pipeline: which groups of a query over a join are emitted after which epoch.

G11 and Q7-1 of the thesis on windows (Li 2008, section 7.2): joint punctuation, individual punctuation, and what is read of it by
queries that group by one time, by both, by the later and by the earlier.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.runtime.backfill.backfill_scheduler import Chunk, ReplaySchedule
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.time import MINUTE

PAIRS = (
    "SELECT x.at AS xt, y.at AS yt, greatest(x.at, y.at) AS later, least(x.at, y.at) AS earlier FROM a x, b y"
    " WHERE x.k = y.k AND y.at BETWEEN x.at - INTERVAL 2 MINUTES AND x.at + INTERVAL 2 MINUTES"
)
WHOLE = "[RANGE TUMBLING ALL]"


@contextmanager
def opened(folder: Path, pairs: str = PAIRS, tasks: int = 2, **queries: str) -> Iterator[Hub]:
    """Two streams with rows at minutes, their pairs, and queries over these."""
    with Hub(folder / "home", LocalExecutor(), tasks=tasks) as hub:
        if hub.catalog.query("pairs") is None:
            for name in "ab":
                hub.execute(
                    f"CREATE STREAM {name} (k INT, at TIMESTAMP) USING push OPTIONS (maxAhead '100000 days') TIMESTAMP BY at"
                    " PUNCTUATED EXTERNALLY"
                )
            hub.register(pairs, "pairs")
        for name, text in queries.items():
            if hub.catalog.query(name) is None:
                hub.register(text, name)
        yield hub


def push(hub: Hub, stream: str, *minutes: float, upto: float | None = None) -> None:
    """Rows at minutes, and then the promise that no row below a minute follows."""
    if minutes:
        at = pa.array([round(minute * MINUTE) for minute in minutes], pa.int64()).cast(
            pa.timestamp("us", "UTC")
        )
        hub.push(stream, pa.table({"k": pa.array([1] * len(minutes), pa.int32()), "at": at}))
    if upto is not None:
        hub.punctuate(stream, round(upto * MINUTE))
    hub.loop.drain()


def minutes(hub: Hub, name: str) -> list[tuple[float, ...]]:
    """What was emitted: times in minutes, and counts."""
    return sorted(tuple(map(_plain, row.values())) for row in hub.query(name).history().to_pylist())


def _plain(value: Any) -> float:
    return value if isinstance(value, int) else value.timestamp() / 60


def by(*columns: str, over: str = "pairs") -> str:
    listed = ", ".join(columns)
    return f"SELECT {listed}, COUNT(*) AS n FROM {over} {WHOLE} GROUP BY {listed}"


def test_golden_11_joint_punctuation_closes_what_individual_punctuation_does_not_yet(tmp_path: Path) -> None:
    queries = {
        "both": by("xt", "yt"),
        "one": by("xt"),
        "other": by("yt"),
        "last": by("later"),
        "first": by("earlier"),
    }
    with opened(tmp_path, **queries) as hub:
        push(hub, "a", 0.5, 1.5, 2.5)
        push(hub, "b", 0.25, 0.75, 2)
        assert minutes(hub, "both") == []
        push(hub, "a", upto=2)
        push(hub, "b", upto=1)
        assert minutes(hub, "both") == [
            (0.5, 0.25, 1),
            (0.5, 0.75, 1),
            (1.5, 0.25, 1),
            (1.5, 0.75, 1),
        ], "joint punctuation (2, 1)"
        assert minutes(hub, "other") == [], "on S1's time it is 2 - 2, and on S0's 1 - 2"
        assert minutes(hub, "one") == []
        assert minutes(hub, "last") == [(0.5, 1), (0.75, 1)], (
            "the later time is below 1 for pairs of these alone"
        )
        push(hub, "a", upto=3)
        assert minutes(hub, "other") == [(0.25, 2), (0.75, 3)], (
            "on S1's time it reaches 1 when S0's bound reaches 3"
        )
        assert minutes(hub, "one") == []
        assert minutes(hub, "first") == []
        push(hub, "b", upto=3)
        assert minutes(hub, "one") == [(0.5, 3)]
        assert minutes(hub, "first") == [(0.25, 2), (0.5, 2), (0.75, 2)], "the earlier time waits for both"
        push(hub, "b", upto=9)
        assert len(minutes(hub, "one")) == 3
        assert len(minutes(hub, "first")) == 3, "an older row of S1 may still have a pair, which is earlier"


def test_pairs_of_windows_are_bounded_by_what_has_been_emitted_of_them(tmp_path: Path) -> None:
    """ISTREAM emits the instants that all streams have passed: pairs that begin later are there, and not emitted yet."""
    pairs = "SELECT ISTREAM(x.at AS xt, y.at AS yt) FROM a x [RANGE 2 MINUTES], b y [RANGE 1 MINUTE] WHERE x.k = y.k"
    with opened(tmp_path, pairs, both=by("xt", "yt"), one=by("xt"), other=by("yt")) as hub:
        push(hub, "a", 0.5, 2.25, upto=3)
        push(hub, "b", 1.5, 2.25, upto=2)
        assert minutes(hub, "pairs") == minutes_of(minutes(hub, "both")) == [(0.5, 1.5)]
        assert minutes(hub, "one") == [], "(0.5, 2.25) is emitted at 2.25"
        assert minutes(hub, "other") == [], "(2.25, 1.5) too"
        push(hub, "a", upto=9)
        push(hub, "b", upto=2.75)
        assert minutes(hub, "one") == [(0.5, 2)]
        assert minutes(hub, "other") == [(1.5, 2)]


def test_pairs_of_windows_that_slide_are_bounded_by_the_beginning_of_the_next_window(tmp_path: Path) -> None:
    """Rows of minutes 0.5 and 1.5 are in the windows that end at 2 and at 3; those of the next one begin at 1 and at 2."""
    pairs = PAIRS.replace(
        "a x, b y", "a x [RANGE 3 MINUTES SLIDE 1 MINUTE], b y [RANGE 2 MINUTES SLIDE 1 MINUTE]"
    )
    pairs = pairs[: pairs.index(" AND y.at")]
    groups = {name: by(name) for name in ("xt", "yt", "later", "earlier")}
    with opened(tmp_path, pairs, **groups) as hub:
        push(hub, "a", 0.5, upto=3)
        push(hub, "b", 1.5, upto=2.75)
        assert not any(minutes(hub, name) for name in groups)
        push(hub, "b", upto=3)
        emitted = {name: minutes_of(minutes(hub, name)) for name in groups}
        assert emitted == {"xt": [(0.5,)], "yt": [(1.5,)], "later": [(1.5,)], "earlier": [(0.5,)]}


@pytest.mark.parametrize(
    ("selected", "windows", "single"),
    [("", "", []), ("ISTREAM", " [RANGE 1 MINUTE]", [(1.0, 1)])],
    ids=["bare", "windows"],
)
def test_three_sides_have_joint_punctuation_and_windows_that_of_each(
    selected: str, windows: str, single: list[tuple[float, ...]], tmp_path: Path
) -> None:
    text = (
        f"SELECT {selected}(x.at AS xt, y.at AS yt, z.at AS zt) FROM a x{windows}, b y{windows}, a z{windows}"
        " WHERE x.k = y.k AND y.k = z.k AND x.at < y.at AND y.at < z.at"
    ).replace("SELECT (x.at AS xt, y.at AS yt, z.at AS zt)", "SELECT x.at AS xt, y.at AS yt, z.at AS zt")
    with opened(tmp_path, text, all=by("xt", "yt", "zt"), one=by("xt"), two=by("xt", "yt")) as hub:
        push(hub, "a", 1, 1.75, upto=4)
        push(hub, "b", 1.5, 2.25, upto=1.5)
        assert minutes(hub, "all") == []
        push(hub, "b", upto=2)
        assert minutes(hub, "all") == [(1.0, 1.5, 1.75, 1)]
        assert minutes(hub, "one") == []
        push(hub, "b", upto=2.25)
        assert minutes(hub, "one") == single, (
            "a row of S1 below minute 2 may not come, and those of minute 2 hold with it no longer"
        )
        assert minutes(hub, "two") == [(1.0, 1.5, 1)][: len(single)], "joint punctuation is of all times"


def minutes_of(groups: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
    return [group[:-1] for group in groups]


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_restart_at_another_number_of_tasks_and_a_late_registration_emit_each_group_once(
    tasks: int, tmp_path: Path
) -> None:
    with opened(tmp_path, one=by("xt")) as hub:
        push(hub, "a", 0.5, 1.5, 4, upto=4)
        push(hub, "b", 0.75, 2, upto=3)
        assert minutes(hub, "one") == [(0.5, 2)]
    with opened(tmp_path, tasks=tasks, one=by("xt"), late=by("xt"), both=by("xt", "yt")) as hub:
        hub.loop.drain()
        assert minutes(hub, "late") == [(0.5, 2)], "the punctuation was there before it"
        assert len(minutes(hub, "both")) == 4
        push(hub, "b", 3.5, upto=4)
        assert minutes(hub, "one") == minutes(hub, "late") == [(0.5, 2), (1.5, 3)]
        hub.finish(seal=True)
        assert minutes(hub, "one") == minutes(hub, "late") == [(0.5, 2), (1.5, 3), (4.0, 2)]


class _OneEntry(ReplaySchedule):
    """Each epoch of a backfill reads one entry of an archive."""

    def turn(self, *, live_waits: bool) -> Chunk | None:
        return Chunk(1)


def test_a_query_that_has_read_the_pairs_in_several_epochs_emits_what_was_promised_meanwhile(
    tmp_path: Path,
) -> None:
    with opened(tmp_path, one=by("xt")) as hub:
        for minute in range(6):
            push(hub, "a", minute, upto=minute)
            push(hub, "b", minute + 0.5, upto=minute)
        push(hub, "b", upto=9)
        push(hub, "a", upto=9)
        hub.loop.engine.replay_schedule = _OneEntry()
        hub.register(by("xt"), "late")
        while hub.loop.step(live_first=True) is not None:
            pass
        assert minutes(hub, "late") == minutes(hub, "one")
        assert [group for group, _ in minutes(hub, "late")] == [0, 1, 2, 3, 4, 5]


def test_a_paused_join_promises_nothing_that_it_has_not_read(tmp_path: Path) -> None:
    with opened(tmp_path, one=by("xt")) as hub:
        push(hub, "a", 0.5, upto=1)
        push(hub, "b", upto=0.5)
        hub.execute("PAUSE QUERY pairs")
        push(hub, "b", 1, upto=9)
        push(hub, "a", upto=9)
        assert minutes(hub, "one") == []
        hub.execute("RESUME QUERY pairs")
        hub.loop.drain()
        assert minutes(hub, "one") == [(0.5, 1)]


def test_parts_of_times_and_times_of_units(tmp_path: Path) -> None:
    """A minute of one side's time is over when the punctuation on that time has passed it whole."""
    pairs = PAIRS.replace(
        "SELECT", "SELECT date_trunc('MINUTE', x.at) AS m, date_trunc('MONTH', x.at) AS month,"
    )
    with opened(tmp_path, pairs, minute=by("m"), month=by("month"), mixed=by("m", "yt")) as hub:
        push(hub, "a", 0.5, 0.75, 1.5, upto=9)
        push(hub, "b", 0.5, 1.5, upto=2.75)
        assert minutes(hub, "minute") == [], "minute 0 may get a pair: 2.75 - 2"
        assert (0.0, 0.5, 2) in minutes(hub, "mixed")
        push(hub, "b", upto=3)
        assert minutes(hub, "minute") == [(0.0, 4)]
        assert minutes(hub, "month") == [], "of no constant length"


def test_explain_shows_by_which_punctuation_groups_are_emitted(tmp_path: Path) -> None:
    with opened(
        tmp_path, both=by("xt", "yt"), windows="SELECT COUNT(*) AS n FROM pairs [RANGE TUMBLING 1 HOUR]"
    ) as hub:
        shown = hub.explain("both").splitlines()
        first = next(number for number, line in enumerate(shown) if "before its window ends" in line)
        assert [line.strip() for line in shown[first + 1 : first + 4]] == [
            "xt is below the punctuation of a and the punctuation of b less 2 MINUTES",
            "yt is below the punctuation of a less 2 MINUTES and the punctuation of b",
            "xt is below the punctuation of a, and yt is below the punctuation of b",
        ]
        assert "before its window ends" not in hub.explain("windows")


def test_a_query_that_groups_by_no_time_follows_its_streams_and_is_shared(tmp_path: Path) -> None:
    """Only a query that heeds the punctuation of a time has progress of its own."""
    hours = "SELECT COUNT(*) AS n FROM pairs [RANGE TUMBLING 1 HOUR]"
    with opened(tmp_path, first=hours, second=hours, both=by("xt", "yt")) as hub:
        push(hub, "a", 0.5, upto=4)
        push(hub, "b", 0.75, upto=3)
        own = hub.home.latest().operators.moving
        ids = {name: hub.catalog.require_query(name).operator_id for name in ("first", "second", "both")}
        assert {name for name, id_ in ids.items() if id_ in own} == {"both"}
        family = {name: hub.plan.operators[id_].family_key for name, id_ in ids.items()}
        assert family["first"] == family["second"] != family["both"]
        assert family["both"] is None
