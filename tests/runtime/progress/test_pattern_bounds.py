"""Punctuation by patterns in the pipeline: from statements, programs and rows, to answers, the late channel and the state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import UserError
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.home.run_cache import open_run
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND
from tests.runtime.progressing import T0, Watch, described, emitted, known

WHOLE = "SELECT srcIP, COUNT(*) AS n FROM s [RANGE TUMBLING ALL] GROUP BY srcIP"
TENS = "SELECT srcIP, len, COUNT(*) AS n FROM s [RANGE TUMBLING 10 SECONDS] GROUP BY srcIP, len"
DAY_LAST = (datetime(9999, 12, 31, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
LAST = DAY_LAST - T0 // SECOND
Packet = tuple[str | None, int | None, int, str | None]
"""srcIP, len, seconds after T0, and a pattern where it is a promise."""


@contextmanager
def stream(
    folder: Path, queries: Sequence[str] = (WHOLE,), clauses: str = "IN p ", tasks: int = 2
) -> Iterator[Hub]:
    with Hub(folder / "home", LocalExecutor(), clock=Watch(), tasks=tasks) as hub:
        hub.execute(
            "CREATE STREAM s (srcIP STRING, len INT, p STRING, at TIMESTAMP) USING push TIMESTAMP BY at"
            f" SLACK INTERVAL 1 HOUR PUNCTUATED BY PATTERNS {clauses}OF (srcIP, len);"
        )
        for number, text in enumerate(queries):
            if hub.catalog.query(f"q{number}") is None:
                hub.register(text, f"q{number}")
        yield hub


def push(hub: Hub, *rows: Packet) -> None:
    at = pa.array([T0 + row[2] * SECOND for row in rows], pa.int64()).cast(pa.timestamp("us", "UTC"))
    columns = {
        "srcIP": pa.array([row[0] for row in rows], pa.string()),
        "len": pa.array([row[1] for row in rows], pa.int32()),
        "p": pa.array([row[3] for row in rows], pa.string()),
    }
    hub.push("s", pa.table({**columns, "at": at}))
    hub.loop.drain()


def kept(hub: Hub) -> set[Any]:
    """The first key's values in the state."""
    keys: set[Any] = set()
    for run in hub.home.latest().state:
        for table in open_run(hub.home.store, run.name).values():
            keys |= set(table.column("k0").to_pylist()) if table.num_rows else set()
    return keys


HOST, OTHER = "202.3.12.4", "202.3.12.5"


def test_golden_14_a_group_of_which_no_row_follows_is_emitted_and_dropped(tmp_path: Path) -> None:
    with stream(tmp_path, tasks=1) as hub:
        push(hub, (HOST, 5, 1, None), (OTHER, 5, 2, None), (HOST, 7, 90, None))
        assert emitted(hub) == []
        hub.execute(f"PUNCTUATE s WHERE srcIP = '{HOST}';")
        hub.loop.drain()
        assert emitted(hub) == [(LAST, HOST, 2)]
        for second in range(14):  # enough epochs that runs are merged
            push(hub, (OTHER, 5, 100 + second, None))
        assert kept(hub) == {OTHER}
        push(hub, (HOST, 5, 200, None))
        assert known(hub).late == 1, "it breaks the promise"
        assert emitted(hub, closing=True) == [(LAST, HOST, 2), (LAST, OTHER, 15)]


def test_patterns_are_constants_lists_and_ranges_of_several_columns_and_of_the_past(tmp_path: Path) -> None:
    with stream(tmp_path, (TENS,)) as hub:
        push(hub, *((host, length, 3, None) for host in ("a", "b", None) for length in (1, 5, 9)))
        hub.punctuate("s", where="srcIP IN ('a', NULL) AND len BETWEEN 2 AND 6")
        hub.loop.drain()
        assert emitted(hub) == [(10, "a", 5, 1), (10, None, 5, 1)]
        hub.punctuate("s", T0 + 9 * SECOND, where="len > 6")
        hub.loop.drain()
        assert len(emitted(hub)) == 2, "the window may still have rows of the last second"
        hub.punctuate("s", T0 + 10 * SECOND, where="len > 6")
        hub.loop.drain()
        assert [row[1:3] for row in emitted(hub)[2:]] == [("b", 9), (None, 9)] or len(emitted(hub)) == 5
        push(
            hub,
            ("b", 9, 9, None),
            ("b", 9, 10, None),
            ("a", 5, 60, None),
            ("a", 6, 1, None),
            ("b", 5, 1, None),
        )
        assert known(hub).late == 3, "two of a between 2 and 6, one above 6 of the first ten seconds"


def test_a_promise_about_columns_that_a_query_does_not_group_by_is_no_promise_for_its_groups(
    tmp_path: Path,
) -> None:
    with stream(tmp_path, (WHOLE, TENS)) as hub:
        push(hub, ("a", 1, 3, None), ("a", 2, 4, None))
        hub.punctuate("s", where="srcIP = 'a' AND len = 1")
        hub.loop.drain()
        assert emitted(hub) == [], "a may still come with another length"
        assert emitted(hub, "q1") == [(10, "a", 1, 1)]


def test_rows_that_carry_patterns_are_promises_and_no_data(tmp_path: Path) -> None:
    with stream(tmp_path, (WHOLE, "SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 10 SECONDS]")) as hub:
        push(hub, ("a", 1, 3, None), ("b", 2, 4, None), (None, None, 8, "srcIP = 'a'"))
        assert emitted(hub) == [(LAST, "a", 1)]
        push(hub, (None, None, 500, "at < TIMESTAMP '2023-11-14 22:13:30'"))
        assert known(hub).punctuation == T0 + 10 * SECOND, "without other tests it is one for the stream"
        assert emitted(hub, "q1") == [(10, 2)]
        push(hub, (None, None, 20, "srcIP <> 'a'"), ("a", 1, 20, None), ("b", 1, 20, None))
        assert known(hub).rejected == 1
        assert known(hub).late == 1
        assert known(hub).rows == 4, "promises are in no channel"


def test_a_restart_and_a_late_registration_emit_each_group_once(tmp_path: Path) -> None:
    with stream(tmp_path) as hub:
        push(hub, ("a", 1, 3, None), ("b", 1, 3, None), (None, None, 9, "srcIP = 'a'"))
    with stream(tmp_path, (WHOLE, WHOLE)) as hub:
        hub.loop.drain()
        push(hub, ("a", 1, 5, None), ("c", 1, 5, None), (None, None, 9, "srcIP BETWEEN 'a' AND 'b'"))
        first = [(LAST, "a", 1), (LAST, "b", 1)]
        assert emitted(hub) == first
        assert emitted(hub, "q1") == first
        assert emitted(hub, closing=True) == [*first, (LAST, "c", 1)]
        assert emitted(hub, "q1", closing=True) == [*first, (LAST, "c", 1)]


def test_promises_are_rolled_up_and_shown_and_forgotten_when_the_stream_has_passed_them(
    tmp_path: Path,
) -> None:
    with stream(tmp_path) as hub:
        push(
            hub,
            *(
                (None, None, 1, f"len = {number} AND at < TIMESTAMP '2023-11-14 22:13:30'")
                for number in range(50)
            ),
        )
        assert described(hub)["promises in force"] == "1", "a list of fifty values"
        assert described(hub)["group-wise"] == "PUNCTUATED BY PATTERNS IN p OF (srcIP, len)"
        push(hub, ("a", 3, 9, None), ("a", 77, 9, None))
        assert known(hub).late == 1
        push(hub, ("a", 77, 3700, None))
        assert described(hub)["promises in force"] == "0"


def test_a_program_gets_the_reason_why_it_is_no_promise(tmp_path: Path) -> None:
    with stream(tmp_path, clauses="") as hub:
        with pytest.raises(UserError, match="does not apply to 'p'"):
            hub.punctuate("s", where="p = 'x'")
        with pytest.raises(UserError, match="further ahead of the clock"):
            hub.punctuate("s")
        hub.execute("CREATE STREAM t (a INT, at TIMESTAMP) USING push TIMESTAMP BY at;")
        with pytest.raises(UserError, match="the stream 't' takes no patterns"):
            hub.execute("PUNCTUATE t WHERE a = 1;")
