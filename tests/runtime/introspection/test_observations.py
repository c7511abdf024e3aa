"""Each figure that an epoch reports is right on a known input, in `hub.status()` and in `epochs.jsonl`."""

from __future__ import annotations

import datetime as dt
import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.status_line import LiveLine
from headrace.observation import EpochObservation
from headrace.operators.families.family import state_name
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.introspection.epoch_log import last_lines
from headrace.runtime.tasks.timing import Ledger
from headrace.time import SECOND

START = 1_704_067_200 * SECOND
"""2024-01-01, the clock of these tests plus a day."""
ARRIVED = START + 90 * SECOND
DEAR = (
    "SELECT k, COUNT(*) AS n, SUM(v) AS total FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] WHERE v > 10 GROUP BY k"
)
ALL = "SELECT k, COUNT(*) AS n FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k"
ROWS = "SELECT k, v FROM s [ROWS 2]"


@contextmanager
def opened(path: Path, *, tasks: int = 1) -> Iterator[Hub]:
    """A stream with ten seconds of slack, and a clock that does not advance."""
    with Hub(path, LocalExecutor(), clock=lambda: ARRIVED, tasks=tasks) as hub:
        hub.execute(
            "CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at SLACK INTERVAL 10 SECONDS"
        )
        yield hub


def row(second: int, k: str, v: int) -> dict[str, Any]:
    return {"k": k, "v": v, "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=second)}


def push(hub: Hub, *rows: dict[str, Any]) -> dict[str, Any]:
    """An epoch of these rows; its report, which is also its line in the log."""
    hub.push("s", list(rows))
    hub.loop.drain()
    (line,) = last_lines(hub.path, 1)
    status = hub.status()["last_epoch"]
    assert json.loads(json.dumps(status)) == line
    return line


def operator(hub: Hub, line: dict[str, Any], name: str) -> dict[str, Any]:
    return line["operators"][hub.catalog.require_query(name).operator_id]


def test_rows_bytes_late_rows_and_lag_of_a_stream(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        hub.register(ALL, "all")
        first = push(hub, row(0, "a", 1), row(20, "b", 2), row(80, "cc", 3))
        stream = first["streams"]["s"]
        assert (first["rows"], stream["rows"], stream["late"], stream["rejected"]) == (3, 3, 0, 0)
        # k: its letters, and 4 bytes a row for where they begin; v and at: 8 bytes a row
        assert first["bytes"] == stream["bytes"] == 4 + 3 * 4 + 2 * 3 * 8
        assert stream["punctuation"] == START + 70 * SECOND
        assert stream["lag"] == ARRIVED - stream["punctuation"] == 20 * SECOND
        second = push(hub, row(69, "a", 1), row(75, "a", 1), row(200_000, "a", 1))
        stream = second["streams"]["s"]
        assert (stream["rows"], stream["late"], stream["rejected"]) == (2, 1, 1)  # the last is from next week
        assert (second["rows"], second["late"], second["rejected"]) == (2, 1, 1)
        assert stream["lag"] == 20 * SECOND


def test_selectivity_deltas_results_and_open_windows_of_an_operator(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        hub.register(DEAR, "dear")
        hub.register(ALL, "all")
        first = push(hub, row(0, "a", 11), row(1, "a", 12), row(2, "b", 1), row(30, "c", 13), row(40, "c", 1))
        dear, every = operator(hub, first, "dear"), operator(hub, first, "all")
        assert (dear["rows_in"], dear["rows_kept"], dear["selectivity"]) == (5, 3, 0.6)
        assert (every["rows_in"], every["rows_kept"], every["selectivity"]) == (5, 5, 1.0)
        assert (dear["delta_rows"], every["delta_rows"]) == (2, 3)  # a pane of each group: a, c; a, b, c
        assert (dear["state_rows"], every["state_rows"]) == (2, 3)
        assert (dear["results"], every["results"]) == (0, 0)
        assert (dear["open_windows"], every["open_windows"]) == (1, 1)
        second = push(hub, row(75, "b", 20))
        dear, every = operator(hub, second, "dear"), operator(hub, second, "all")
        assert (dear["results"], every["results"]) == (2, 3)
        assert (dear["open_windows"], every["open_windows"]) == (1, 1)


def test_nothing_offered_has_no_selectivity(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        hub.register(ALL, "all")
        hub.loop.drain()
        (line,) = last_lines(hub.path, 1)
        assert line["kind"] == "tick"
        assert "selectivity" not in line["operators"].get(hub.catalog.require_query("all").operator_id, {})


@pytest.mark.parametrize("tasks", [1, 3])
def test_state_is_what_the_runs_take_and_each_states_part_of_it(tmp_path: Path, tasks: int) -> None:
    with opened(tmp_path / "home", tasks=tasks) as hub:
        hub.register(ROWS, "rows")
        hub.register(DEAR, "dear")
        for second in range(30):
            line = push(hub, *(row(second, k, 20) for k in "abc"))
            runs = hub.home.latest().state
            assert line["state_runs"] == len(runs)
            assert line["state_bytes"] == sum((hub.path / run.name).stat().st_size for run in runs)
            states = {
                name: work["state_bytes"] for name, work in line["work"].items() if name.startswith("state ")
            }
            assert len(states) == 2
            assert 0 < sum(states.values()) <= line["state_bytes"]
        least = 3 * 30 * 8  # rows whose places punctuation has not settled yet, and what they will follow
        assert states[f"state {state_name(hub.operator_and_query('rows')[0])}"] > least / 3


def test_work_that_is_shared_is_offered_its_rows_once(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as hub:
        hub.register_many({f"q{n}": DEAR.replace("10", str(n)) for n in range(20)})
        hub.register(ROWS, "rows")
        line = push(hub, *(row(0, "a", n) for n in range(20)))
        work = line["work"]
        assert (work["read s"]["rows_in"], work["read s"]["rows_out"]) == (20, 20)
        folds = {name: counters for name, counters in work.items() if name.startswith("fold ")}
        assert sorted((counters["rows_in"], counters["rows_out"]) for counters in folds.values()) == [
            (20, 19),
            (20, 20),
        ]
        late = push(hub, row(-30, "a", 50), row(120, "a", 50))["work"]
        assert (late["read s"]["rows_in"], late["read s"]["rows_out"]) == (2, 1)
        closing = [counters for name, counters in late.items() if name.startswith("state f")]
        assert sorted(counters["rows_out"] for counters in closing) == [
            2,
            19,
        ]  # those of the other query, and of the 20


def test_states_that_had_nothing_and_keep_nothing_are_not_reported() -> None:
    """Of thousands of selections most: a line would name each of them in every epoch."""
    ledger = Ledger()
    for name in ("idle", "offered", "answers", "keeps"):
        with ledger.timed(name):
            pass
    ledger["offered"].rows_in, ledger["answers"].rows_out = 3, 2
    assert set(ledger.seen("state", {"keeps": 8})) == {"state offered", "state answers", "state keeps"}


def test_time_lies_where_it_was_spent(tmp_path: Path) -> None:
    """A condition that takes its time: its fold shows so, and no other figure."""
    pause = 0.05

    def slow(value: int) -> int:
        time.sleep(pause)
        return value

    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute("CREATE STREAM s (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        hub.register_function("slow", slow, ["BIGINT"], "BIGINT")
        hub.register(ALL, "quick")
        hub.register(ROWS.replace("[ROWS 2]", "[ROWS 2] WHERE slow(v) > 0"), "slow_one")
        line = push(hub, row(0, "a", 1), row(1, "a", 2))
        seconds, work = line["seconds"], line["work"]
        spent = {name: counters["nanoseconds"] / 1e9 for name, counters in work.items()}
        slow_one = spent[f"fold {hub.catalog.require_query('slow_one').operator_id}"]
        assert slow_one >= 2 * pause
        others = [seconds_spent for name, seconds_spent in spent.items() if seconds_spent != slow_one]
        assert all(seconds_spent > 0 for seconds_spent in others)
        assert set(seconds) == {"scan", "fold", "state", "write", "execute", "publish"}
        # Of one task each: the parts are within the whole.
        assert sum(seconds[stage] for stage in ("scan", "fold", "state", "write")) <= seconds["execute"]
        assert seconds["scan"] + seconds["fold"] >= slow_one + spent["read s"]
        states = sum(seconds_spent for name, seconds_spent in spent.items() if name.startswith("state "))
        assert states <= seconds["state"] + seconds["write"]


def test_the_log_is_read_from_its_end_whatever_its_last_line_is(tmp_path: Path) -> None:
    assert last_lines(tmp_path, 3) == []
    log = tmp_path / "epochs.jsonl"
    lines = [{"kind": "failure" if n == 7 else "epoch", "epoch": n, "fill": "x" * 100_000} for n in range(40)]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"kind": "ep')
    assert last_lines(tmp_path, 3) == lines[-3:]
    assert last_lines(tmp_path, 35) == [*lines[5:7], *lines[8:]]
    assert last_lines(tmp_path, 100) == [*lines[:7], *lines[8:]]
    log.rename(tmp_path / "epochs.1.jsonl")  # the log was full: it continues in a new one
    log.write_text(json.dumps(lines[0]) + "\n")
    assert last_lines(tmp_path, 3) == [*lines[-2:], lines[0]]


def test_results_that_other_queries_read_are_no_input(tmp_path: Path) -> None:
    """The progress line counted a row again for every query over a query, and over a union."""
    rows: list[int] = []
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        hub.execute(
            "CREATE STREAM s (a INT) USING push; CREATE STREAM t (a INT) USING push;"
            "CREATE QUERY one AS SELECT a FROM s; CREATE QUERY two AS SELECT a FROM one;"
            "CREATE QUERY both AS SELECT COUNT(*) AS n FROM s UNION ALL t [RANGE 1 MINUTE SLIDE 1 MINUTE]"
        )
        hub.on_epoch(lambda seen: rows.append(seen.rows))
        hub.push("s", [{"a": 1}, {"a": 2}, {"a": 3}])
        hub.catch_up()
        assert hub.query("two").history().num_rows == 3
    assert sum(rows) == 3


def test_issue_18_late_rows_of_results_are_no_late_rows_of_the_input(tmp_path: Path) -> None:
    """A late row that a query WITH REVISIONS emits is late for the query over it, too: it came once."""
    with opened(tmp_path) as hub:
        hub.execute(
            "CREATE QUERY every AS SELECT v FROM s WITH REVISIONS; CREATE QUERY n AS SELECT COUNT(*) AS n FROM every"
        )
        line = LiveLine(io.StringIO(), quiet=True)
        seen: list[EpochObservation] = []
        hub.on_epoch(seen.append)
        hub.on_epoch(line.update)
        hub.push("s", [row(50, "a", 1)])
        hub.catch_up()
        hub.push("s", [row(10, "a", 1), row(90, "a", 1)])
        hub.catch_up()
        assert sum(stream.late for epoch in seen for stream in epoch.streams.values()) == 2
        assert (line.rows, line.late, line.rejected) == (3, 1, 0)
