"""Progressing streams: every generator of punctuation, what it promises, and what becomes of rows that break it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import UserError
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND
from tests.examples import examples
from tests.runtime.progressing import (
    COUNT,
    SLIDING,
    T0,
    PushedRow,
    Watch,
    described,
    emitted,
    in_order,
    known,
    push,
    reached,
    stream,
)

UNHURRIED = examples(12, shares_fixtures=True)


# -- one source ------------------------------------------------------------------------------------------------------


def test_slack_of_rows_promises_what_all_but_the_last_rows_have_reached(tmp_path: Path) -> None:
    with stream(tmp_path, "SLACK 2 ROWS") as hub:
        push(hub, ("a", 1, 10, False), ("a", 1, 30, False), ("a", 1, 12, False))
        assert reached(hub) == 10
        push(hub, ("a", 1, 11, False))
        assert reached(hub) == 30
        assert known(hub).late == 0
        push(hub, ("a", 1, 29, False))  # the third after 30: it breaks the promise
        assert known(hub).late == 1


@UNHURRIED
@given(st.lists(st.integers(0, 60), min_size=1, max_size=40), st.integers(0, 5), st.data())
def test_the_bound_by_rows_does_not_depend_on_the_cut(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], behind: int, data: st.DataObject
) -> None:
    at = sorted(data.draw(st.sets(st.integers(1, len(times)), max_size=4)) | {len(times)})
    with stream(tmp_path_factory.mktemp("cut"), f"SLACK {behind} ROWS", ()) as hub:
        start = 0
        for stop in at:
            push(hub, *(("a", 1, second, False) for second in times[start:stop]))
            start = stop
            rest = times[: max(0, stop - behind)]
            assert not rest or reached(hub) == max(rest)


def test_a_step_rounds_bounds_of_rows_down_but_leaves_promises_as_they_are(tmp_path: Path) -> None:
    with stream(tmp_path, "PROGRESS STEP INTERVAL 20 SECONDS") as hub:
        push(hub, ("a", 1, 39, False))
        assert reached(hub) == 20
        hub.punctuate("s", T0 + 33 * SECOND)
        hub.loop.drain()
        assert reached(hub) == 33


def test_a_program_punctuates_after_the_rows_it_handed_in(tmp_path: Path) -> None:
    with stream(tmp_path, "PUNCTUATED EXTERNALLY") as hub:
        push(hub, ("a", 1, 5, False), ("a", 2, 95, False))
        assert emitted(hub) == []
        hub.push("s", [{"k": "a", "x": 4, "done": False, "at": datetime.fromtimestamp(1_700_000_006, UTC)}])
        hub.execute("PUNCTUATE s AT TIMESTAMP '2023-11-14 22:13:40';")
        hub.loop.drain()
        assert reached(hub) == 20
        assert emitted(hub) == [(10, "a", 2, 5)]
        push(hub, ("a", 9, 19, False))
        assert known(hub).late == 1


def test_a_promise_of_a_program_outlives_a_kill_before_its_epoch(tmp_path: Path) -> None:
    with stream(tmp_path, "PUNCTUATED EXTERNALLY") as hub:
        push(hub, ("a", 1, 5, False))
        hub.punctuate("s", datetime.fromtimestamp(1_700_000_010, UTC))
    with stream(tmp_path, "PUNCTUATED EXTERNALLY") as hub:
        hub.loop.drain()
        assert emitted(hub) == [(10, "a", 1, 1)]


def test_a_program_cannot_promise_the_far_future_nor_without_a_zone(tmp_path: Path) -> None:
    with stream(tmp_path, "") as hub:
        with pytest.raises(UserError, match="further ahead"):
            hub.punctuate("s", T0 + 48 * 3600 * SECOND)
        with pytest.raises(UserError, match="no zone"):
            hub.punctuate("s", datetime(2023, 11, 14))  # noqa: DTZ001
        with pytest.raises(UserError, match="there is no stream 'r'"):
            hub.punctuate("r", T0)


def test_a_heartbeat_moves_a_stream_that_is_silent_and_one_that_is_not(tmp_path: Path) -> None:
    clock = Watch()
    with stream(
        tmp_path, "PUNCTUATED EXTERNALLY HEARTBEAT EVERY 5 SECONDS DELAY 10 SECONDS", clock=clock
    ) as hub:
        push(hub, ("a", 1, 0, False))
        assert reached(hub) == -10
        clock.now += 23 * SECOND
        hub.loop.drain()
        assert reached(hub) == 10
        assert emitted(hub) == [(10, "a", 1, 1)]
        clock.now += SECOND
        assert hub.loop.step() is None, "it beats every five seconds only"
        clock.now += SECOND
        push(hub, ("a", 1, 24, False))
        assert reached(hub) == 15


def test_a_lull_drifts_with_the_clock(tmp_path: Path) -> None:
    clock = Watch()
    with stream(tmp_path, "SLACK INTERVAL 2 SECONDS IDLE TIMEOUT INTERVAL 30 SECONDS", clock=clock) as hub:
        push(hub, ("a", 1, 7, False))
        clock.now += 29 * SECOND
        assert hub.loop.step() is None
        clock.now += SECOND
        hub.loop.drain()
        assert reached(hub) == 7 - 2 + 30
        assert emitted(hub) == [(10, "a", 1, 1)]


def test_windows_of_an_epoch_without_rows_hold_those_of_epochs_before(tmp_path: Path) -> None:
    """Of panes that had all closed before, and that no window to come holds: their blocks are made for these windows."""
    long = SLIDING.replace("20 SECONDS", "100 SECONDS")
    with stream(tmp_path, "PUNCTUATED EXTERNALLY", (long,)) as hub:
        push(hub, ("a", 1, 3, False))
        for second in (5, 300):
            hub.punctuate("s", T0 + second * SECOND)
            hub.loop.drain()
        assert emitted(hub) == [(end, "a", 1, 1) for end in range(5, 105, 5)]


# -- several sources -------------------------------------------------------------------------------------------------


def test_a_stream_is_as_far_as_its_slowest_source_once_all_were_seen(tmp_path: Path) -> None:
    with stream(tmp_path, "PROGRESS PER (k) EXPECT 2") as hub:
        push(hub, ("a", 1, 50, False))
        assert known(hub).punctuation < T0
        push(hub, ("b", 1, 5, False))
        assert reached(hub) == 5
        push(hub, ("a", 1, 90, False), ("b", 1, 45, False))
        assert reached(hub) == 45
        assert known(hub).late == 0
    with stream(tmp_path, "PROGRESS PER (k) EXPECT 2") as hub:
        push(hub, ("b", 1, 70, False))
        assert reached(hub) == 70, "what a had reached before the restart still holds"
        push(hub, ("b", 1, 100, False))
        assert reached(hub) == 90


def test_no_source_holds_a_stream_back_by_more_than_the_skew(tmp_path: Path) -> None:
    with stream(tmp_path, "PROGRESS PER (k) EXPECT 2 SKEW 30 SECONDS") as hub:
        push(hub, ("a", 1, 50, False))
        assert reached(hub) == 20, "b was not seen, and has no later row below 20"
        push(hub, ("b", 1, 45, False))
        assert reached(hub) == 45, "the slowest source is nearer"
        push(hub, ("a", 1, 90, False))
        assert reached(hub) == 60
    with stream(tmp_path, "PROGRESS PER (k) EXPECT 2 SKEW 30 SECONDS") as hub:
        push(hub, ("b", 1, 60, False), ("b", 2, 59, False))
        assert known(hub).late == 1
        assert any("SKEW 30 SECONDS" in text for text in described(hub).values())


def test_beside_a_silent_source_the_slowest_of_the_others_counts(tmp_path: Path) -> None:
    clock = Watch()
    with stream(tmp_path, "PROGRESS PER (k) EXPECT 3 IDLE TIMEOUT 30 SECONDS", clock=clock) as hub:
        push(hub, ("a", 1, 1, False), ("b", 1, 2, False), ("c", 1, 2, False))
        clock.now += 31 * SECOND
        push(hub, ("b", 1, 30, False), ("c", 1, 20, False))
        clock.now += SECOND
        hub.loop.drain()
        assert reached(hub) == 20


def test_a_silent_source_is_left_out_and_comes_back(tmp_path: Path) -> None:
    clock = Watch()
    with stream(tmp_path, "PROGRESS PER (k) EXPECT 2 IDLE TIMEOUT 30 SECONDS", clock=clock) as hub:
        push(hub, ("a", 1, 1, False), ("b", 1, 2, False))
        clock.now += 31 * SECOND
        push(hub, ("b", 1, 30, False))
        clock.now += SECOND
        hub.loop.drain()
        assert reached(hub) == 30
        push(hub, ("a", 1, 29, False), ("a", 1, 31, False))
        push(hub, ("b", 1, 60, False))
        assert reached(hub) == 31
        assert known(hub).late == 1
        assert "source 1:a" in described(hub)


def test_the_folder_of_a_file_can_be_its_source(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / "in" / name).mkdir(parents=True)
    statement = (
        f"CREATE STREAM f (v BIGINT, at TIMESTAMP) USING csv OPTIONS (path '{tmp_path}/in/*')"
        " TIMESTAMP BY at PROGRESS PER FOLDER EXPECT 2;"
    )
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        hub.execute(statement)
        (tmp_path / "in/x/1.csv").write_text("1,2023-11-14 22:13:50\n")
        hub.loop.drain()
        assert hub.home.latest().streams["f"].punctuation < T0
        (tmp_path / "in/y/1.csv").write_text("1,2023-11-14 22:13:30\n")
        hub.loop.drain()
        assert (hub.home.latest().streams["f"].punctuation - T0) // SECOND == 10


# -- deduplication ---------------------------------------------------------------------------------------------------


def test_a_repeated_row_counts_once_also_after_a_restart_and_keys_are_forgotten(tmp_path: Path) -> None:
    clauses = "SLACK 30 SECONDS DEDUPLICATE BY (k, x)"
    with stream(tmp_path, clauses) as hub:
        push(hub, ("a", 1, 5, False), ("a", 1, 5, False), (None, 1, 5, False))
    with stream(tmp_path, clauses) as hub:
        push(hub, ("a", 1, 5, False), (None, 1, 5, False), ("a", 1, 6, False))
        push(hub, ("z", 1, 99, False))
        assert emitted(hub) == [(10, "a", 2, 2), (10, None, 1, 1)]
        assert (known(hub).repeated, known(hub).rows) == (3, 4)
        assert described(hub)["keys kept"] == "1"
        assert hub.check().faults == 0
        push(hub, ("a", 1, 5, False))
        assert (known(hub).repeated, known(hub).late) == (3, 1), "what is late is late before all else"


def test_keys_of_many_epochs_are_kept_in_few_files(tmp_path: Path) -> None:
    with stream(tmp_path, "SLACK 60 SECONDS DEDUPLICATE BY (k, x)", ()) as hub:
        for number in range(30):
            push(hub, ("a", number, number, False), ("a", number // 2, number // 2, False))
        assert known(hub).repeated == 30
        assert len(known(hub).keys) <= 9
        assert hub.check().faults == 0


def test_a_stream_that_differs_in_progress_says_in_which_words(tmp_path: Path) -> None:
    with stream(tmp_path, "PROGRESS PER (k) EXPECT 2 DEDUPLICATE BY (k)", ()) as hub:
        with pytest.raises(UserError) as raised:
            hub.execute(
                "CREATE STREAM s (k STRING, x BIGINT, done BOOLEAN, at TIMESTAMP) USING push TIMESTAMP BY at;"
            )
        assert "progress (PROGRESS PER (k) EXPECT 2 there, none here)" in str(raised.value)
        assert "DEDUPLICATE BY ((k) there, none here)" in str(raised.value)


def counted(rows: Sequence[tuple[str, int]], within: int) -> list[bool]:
    """Row by row, as docs/semantics.md puts it."""
    kept: list[tuple[str, int]] = []
    counts = []
    for key, at in rows:
        new = all(key != other or abs(at - then) > within for other, then in kept)
        kept += [(key, at)] if new else []
        counts.append(new)
    return counts


@UNHURRIED
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30)), min_size=1, max_size=40),
    st.sampled_from((0, 1, 3, 8)),
    st.data(),
)
def test_deduplication_is_row_by_row_whatever_the_cut(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, int]],
    within: int,
    data: st.DataObject,
) -> None:
    at = sorted(data.draw(st.sets(st.integers(1, len(rows)), max_size=12)) | {len(rows)})
    clauses = "SLACK 60 SECONDS DEDUPLICATE BY (k)" + (f" WITHIN {within} SECONDS" if within else "")
    with stream(tmp_path_factory.mktemp("once"), clauses) as hub:
        start = 0
        for stop in at:
            push(hub, *((key, 1, second, False) for key, second in rows[start:stop]))
            start = stop
        keep = counted(rows, within)
        assert known(hub).repeated == keep.count(False)
        total = sum(row[2] for row in emitted(hub, closing=True))
        assert total == keep.count(True)


def test_a_query_that_comes_late_reads_rows_once(tmp_path: Path) -> None:
    with stream(tmp_path, "SLACK 30 SECONDS DEDUPLICATE BY (k)", ()) as hub:
        push(hub, ("a", 1, 5, False), ("a", 1, 5, False))
        push(hub, ("a", 1, 5, False), ("b", 1, 60, False))
        hub.register(COUNT, "q0")
        hub.loop.drain()
        assert emitted(hub) == [(10, "a", 1, 1)]


# -- what DESCRIBE shows ---------------------------------------------------------------------------------------------


def test_describe_extended_shows_generator_progress_and_the_slack_that_was_needed(tmp_path: Path) -> None:
    with stream(tmp_path, "SLACK INTERVAL 5 SECONDS") as hub:
        push(hub, ("a", 1, 60, False))
        push(hub, ("a", 1, 40, False))
        description = described(hub)
        assert description["progress"] == "SLACK 5 SECONDS"
        assert description["punctuation"] == "2023-11-14T22:14:15Z"
        assert (description["late rows"], description["furthest behind"], description["slack needed"]) == (
            "1",
            "15 SECONDS",
            "20 SECONDS",
        )


# -- group-wise punctuation ------------------------------------------------------------------------------------------

GROUPWISE = "SLACK INTERVAL 1 HOUR PUNCTUATED BY done FOR (k)"


def test_a_promise_for_a_group_closes_its_windows_alone_and_the_stream_those_of_the_others(
    tmp_path: Path,
) -> None:
    with stream(tmp_path, GROUPWISE, (COUNT, SLIDING)) as hub:
        push(hub, ("a", 1, 3, False), ("b", 2, 4, False), (None, 5, 5, False))
        push(hub, ("a", 1, 12, True))
        assert emitted(hub) == [(10, "a", 1, 1)]
        assert emitted(hub, "q1") == [(5, "a", 1, 1), (10, "a", 1, 1)]
        push(hub, ("a", 7, 11, False), ("b", 1, 8, False))
        assert known(hub).late == 1, "a row of a below its promise is late, one of b is not"
        assert described(hub)["groups ahead of the stream"] == "1"
        push(hub, (None, 0, 21, True))
        assert emitted(hub) == [(10, "a", 1, 1), (10, None, 1, 5)]
        push(hub, ("z", 0, 3700, False))
        assert emitted(hub) == [
            (10, "a", 1, 1),
            (10, "b", 2, 3),
            (10, None, 1, 5),
            (20, "a", 1, 1),
            (30, None, 1, 0),
        ]
        assert described(hub)["groups ahead of the stream"] == "0", "what the stream has passed is forgotten"


def test_a_late_registration_and_a_restart_emit_each_window_of_a_group_once(tmp_path: Path) -> None:
    with stream(tmp_path, GROUPWISE) as hub:
        push(hub, ("a", 1, 3, False), ("b", 1, 3, False))
        push(hub, ("a", 1, 12, True))
    with stream(tmp_path, GROUPWISE, (COUNT, COUNT)) as hub:
        hub.loop.drain()
        push(hub, ("b", 1, 4, False))
        push(hub, ("a", 1, 24, True))
        first = [(10, "a", 1, 1), (20, "a", 1, 1)]
        assert emitted(hub) == first
        assert emitted(hub, "q1") == first
        whole = sorted([*first, (10, "b", 2, 2), (30, "a", 1, 1)], key=in_order)
        assert emitted(hub, closing=True) == whole
        assert emitted(hub, "q1", closing=True) == whole


@UNHURRIED
@given(data=st.data())
def test_group_wise_punctuation_changes_when_windows_are_emitted_but_not_what(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    made = data.draw(
        st.lists(
            st.tuples(st.sampled_from(("a", "b", None)), st.integers(0, 9), st.integers(0, 60)),
            min_size=1,
            max_size=25,
        )
    )
    rows: list[PushedRow] = []
    for index, (key, value, at) in enumerate(made):  # a promise wherever the rest of its group allows it
        rest = [then for other, _, then in made[index + 1 :] if other == key]
        rows.append((key, value, at, not rest or min(rest) >= at))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(rows)), max_size=6)) | {len(rows)})
    kill = data.draw(st.integers(0, len(cuts) - 1))
    answers = []
    for clauses in (GROUPWISE, "SLACK INTERVAL 1 HOUR"):
        folder, start = tmp_path_factory.mktemp("groups"), 0
        for part in (cuts[:kill], cuts[kill:]):
            with stream(folder, clauses, (COUNT, SLIDING), tasks=1 + len(part) % 3) as hub:
                for stop in part:
                    push(hub, *rows[start:stop])
                    start = stop
                if start == len(rows):
                    assert known(hub).late == 0
                    answers.append([emitted(hub, name, closing=True) for name in ("q0", "q1")])
    assert answers[0] == answers[1]
