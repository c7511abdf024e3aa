"""INVOKE of what is kept: which modes test rows, what expires, and the mistakes that these tests would catch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import UserError
from headrace.operators.on_demand import selection, shared_selections
from headrace.operators.on_demand.selection import Selection
from headrace.operators.query_index import index_cache
from headrace.runtime.backfill.backfill_scheduler import Chunk, ReplaySchedule
from headrace.runtime.invoke import deferred_window
from headrace.runtime.invoke.deferred_window import Invocation
from headrace.runtime.invoke.home_reader import Reader
from headrace.runtime.plan import plan_files
from headrace.time import SECOND
from tests.laws.test_materialize import MODES, invoked, meant
from tests.runtime.rig import Rig, cut, made_rows

ONE_FILE = {"maxFilesPerTrigger": "1"}
FILES = cut(made_rows(7, 60, disorder=SECOND), *range(6, 60, 6))
SINCE_20 = "BEGIN NOW - INTERVAL 20 SECONDS END NOW"
TEXT = f"SELECT k, x FROM s WHERE x > 2 AND g < 3 {SINCE_20}"
SUMS = f"SELECT g, COUNT(*) AS n, AVG(x) AS mean FROM s WHERE x > 0 {SINCE_20} GROUP BY g"


def effort(hub: Any, name: str) -> deferred_window.Effort:
    operator, _ = hub.operator_and_query(name)
    assert isinstance(operator, Selection)
    call = Invocation(hub.home, hub.home.latest(), operator)
    call.answer()
    return call.effort


class OneByOne(ReplaySchedule):
    """The archive is read an epoch at a time, so that every stage of it is seen."""

    def chunk(self) -> Chunk:
        return Chunk(1, 1)


def lived(rig: Rig, *, churn: bool = True) -> None:
    """Registrations, backfills in turns with live epochs, drops and re-registrations; every answer compared at every step."""
    with rig.hub(2, {"rows": TEXT, "sums": SUMS}) as hub:
        hub.loop.engine.replay_schedule = OneByOne()
        for number, file in enumerate(FILES):
            rig.drop(file)
            texts = {"rows": TEXT, "sums": SUMS}
            if churn and number % 3 == 1:
                name = f"new{number}"
                hub.register(TEXT if number % 2 else SUMS, name)
                if number > 3:
                    hub.drop_query(f"new{number - 3}")
                    hub.register(SUMS if number % 2 else TEXT, f"new{number - 3}")
            seen: object = number
            while seen is not None:
                done = hub.status()["streams"]["s"].get("rows", 0)
                files = FILES[: number + 1] if done == sum(map(len, FILES[: number + 1])) else FILES[:number]
                for query in hub.catalog.queries.values():
                    name = query.definition.name
                    assert invoked(hub, name) == meant(hub, name, files, 0), (name, number)
                seen = hub.loop.step(live_first=True)
            assert set(texts) <= {each.definition.name for each in hub.catalog.queries.values()}


def test_every_answer_is_that_of_the_committed_prefix_while_queries_come_and_read_the_past(
    tmp_path: Path,
) -> None:
    lived(Rig(tmp_path, ONE_FILE))


def blind_to_the_past(call: Invocation) -> tuple[int, int, int]:
    """Published before both parts are there: what is not in bitmaps yet is not read."""
    start, stop, bitmapped = REACH(call)
    return start, stop, stop if call.operator.materialize == "partial" else bitmapped


def with_a_gap(call: Invocation) -> tuple[int, int, int]:
    """The first entry after the cut-over is read by neither."""
    start, stop, bitmapped = REACH(call)
    return start, stop, bitmapped + 1 if start <= bitmapped < stop else bitmapped


REACH = Invocation._archive_bounds


@pytest.mark.parametrize("mutant", [blind_to_the_past, with_a_gap])
def test_an_answer_published_before_both_parts_are_complete_would_be_noticed(
    mutant: Callable[[Invocation], tuple[int, int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Invocation, "_archive_bounds", mutant)
    with pytest.raises(AssertionError):
        lived(Rig(tmp_path, ONE_FILE))


def test_a_slot_given_again_while_old_bitmaps_hold_it_would_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers: dict[str, int] = {}

    def reused(operator_id: str) -> int:
        return numbers.setdefault(operator_id, len(numbers) % 3)

    for module in (selection, shared_selections, deferred_window):
        monkeypatch.setattr(module, "number_of", reused)
    shared_selections._plans._kept.clear()
    plan_files.clear_caches()
    with pytest.raises(AssertionError):
        lived(Rig(tmp_path, ONE_FILE))
    shared_selections._plans._kept.clear()
    plan_files.clear_caches()


def test_an_index_frozen_in_a_closure_would_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: dict[int, Any] = {}

    def once(plans: index_cache.Plans[Any], members: tuple[Any, ...]) -> Any:
        built = OF(plans, members)
        return frozen.setdefault(id(plans), built)

    monkeypatch.setattr(index_cache.Plans, "of", once)
    rig = Rig(tmp_path, ONE_FILE)
    with rig.hub(1, {"first": TEXT}) as hub:
        rig.drop(FILES[0])
        hub.catch_up()
        hub.register(SUMS, "second")
        hub.catch_up()
        assert "KeyError: 'g'" in hub.status()["failed"]["second"]  # a column that only the second one reads


OF = index_cache.Plans.of


def test_averages_come_of_sums_and_counts_whatever_the_cut(tmp_path: Path) -> None:
    """One row in an epoch, then three: the average of averages would be 5, and not 3."""
    rows = [{"k": "a", "g": 1, "x": x, "y": float(x), "at": n * SECOND} for n, x in enumerate([9, 1, 1, 1])]
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(rows[:1], rows[1:])
    with rig.hub(2, {}) as hub:
        for mode in MODES:
            hub.execute(
                f"CREATE QUERY {mode} OPTIONS (materialize '{mode}') AS SELECT AVG(x) AS mean, COUNT(*) AS n FROM s {SINCE_20}"
            )
        hub.catch_up()
        assert [invoked(hub, mode) for mode in MODES] == [[{"mean": 3.0, "n": 4}]] * 3


def test_an_invocation_tests_no_row_that_bitmaps_decide(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*FILES)
    with rig.hub(2, {}) as hub:
        for mode in MODES[:2]:
            hub.execute(f"CREATE QUERY {mode} OPTIONS (materialize '{mode}') AS {TEXT}")
        hub.catch_up()
        wanted = len(invoked(hub, "partial"))
        nothing, selection = effort(hub, "none"), effort(hub, "partial")
        assert (selection.factors, selection.rows) == (0, wanted)
        assert (
            0 < nothing.factors <= 2 * selection.bits
        )  # both factors, of every row of the window that was not late
        assert (nothing.bits, nothing.rows) == (0, wanted)


def test_containers_no_window_reaches_are_forgotten_and_a_dropped_query_leaves_none(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    with rig.hub(1, {"near": "SELECT x FROM s WHERE x > 0 BEGIN NOW - INTERVAL 3 SECONDS END NOW"}) as hub:
        hub.register("SELECT x FROM s WHERE x > 0 BEGIN NOW - INTERVAL 1 HOUR END NOW", "far")
        for file in FILES[:6]:
            rig.drop(file)
            hub.catch_up()
        hub.drop_query("far")
        for file in FILES[6:]:
            rig.drop(file)
            hub.catch_up()
        number = selection.number_of(hub.operator_and_query("near")[0].id)
        owners = {
            owner
            for index in Invocation(
                hub.home, hub.home.latest(), hub.operator_and_query("near")[0]
            )._containers()
            for owner in index.owners.tolist()
        }
        assert owners == {number}
        assert invoked(hub, "near") == meant(hub, "near", FILES, 0)


def test_another_process_invokes_what_is_committed_and_a_changed_mode_answers_the_same(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*FILES)
    with rig.hub(2, {"q": TEXT}) as hub:
        hub.catch_up()
        answer = invoked(hub, "q")
        assert answer == meant(hub, "q", FILES, 0)
        assert Reader.at(rig.home).invoke("q").to_pylist() == hub.query("q").invoke().to_pylist()
        for mode in ("complete", "none", "partial"):
            hub.execute(f"ALTER QUERY q SET (materialize '{mode}')")
            hub.catch_up()
            assert invoked(hub, "q") == answer
        for mode in MODES:
            hub.register(TEXT, f"also_{mode}", materialize=mode)
        assert [invoked(hub, f"also_{mode}") for mode in MODES] == [answer] * 3
        assert "materialize partial (as the query specifies)" in hub.execute("EXPLAIN QUERY q")[0].message


def test_a_paused_query_answers_as_of_when_it_was_paused_and_catches_up_when_resumed(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    ever = "SELECT x FROM s WHERE x > 0 BEGIN TIMESTAMP '1970-01-01' END NOW"
    with rig.hub(1, {}) as hub:
        for mode in MODES[:2]:
            hub.execute(f"CREATE QUERY {mode} OPTIONS (materialize '{mode}') AS {ever}")
        rig.drop(*FILES[:2])
        hub.catch_up()
        before = meant(hub, "partial", FILES[:2], 0)
        for mode in MODES[:2]:
            hub.execute(f"PAUSE QUERY {mode}")
        rig.drop(*FILES[2:4])
        hub.catch_up()
        assert [invoked(hub, mode) for mode in MODES[:2]] == [before] * 2
        for mode in MODES[:2]:
            hub.execute(f"RESUME QUERY {mode}")
        hub.catch_up()
        assert [invoked(hub, mode) for mode in MODES[:2]] == [meant(hub, "partial", FILES[:4], 0)] * 2


def test_from_now_sees_no_row_of_before_in_any_mode(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    with rig.hub(1, {}) as hub:
        rig.drop(*FILES[:2])
        hub.catch_up()
        for mode in MODES:
            hub.execute(
                f"CREATE QUERY {mode} FROM NOW OPTIONS (materialize '{mode}') AS SELECT COUNT(*) AS n FROM s {SINCE_20}"
            )
        assert [invoked(hub, mode) for mode in MODES[:2]] == [[], []]
        rig.drop(FILES[2])
        hub.catch_up()
        answers = [invoked(hub, mode) for mode in MODES]
        assert answers[0] == answers[1] == answers[2] == [{"n": len(FILES[2])}]


def test_an_answer_over_more_than_the_archive_keeps_says_from_when_it_is_whole(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {**ONE_FILE, "retain": "10 seconds"})
    with rig.hub(1, {}) as hub:
        assert (
            "materialize" not in hub.execute(f"EXPLAIN {TEXT}")[0].message
        )  # it would reach beyond: kept whole
        for mode in MODES[:2]:
            hub.execute(f"CREATE QUERY {mode} OPTIONS (materialize '{mode}') AS {TEXT}")
            hub.execute(
                f"CREATE QUERY short_{mode} OPTIONS (materialize '{mode}') AS SELECT x FROM s BEGIN NOW - INTERVAL 1 SECOND END NOW"
            )
        rig.drop(FILES[0])
        hub.catch_up()
        assert hub.query("none").invoke().schema.metadata is None
        rig.drop(*FILES[1:])
        hub.catch_up()
        tables = [hub.query(mode).invoke() for mode in MODES[:2]]
        assert tables[0].equals(tables[1])
        since = [table.schema.metadata[b"complete_since"] for table in tables]
        assert since[0] == since[1] > b"1970-01-01T00:00:4"
        assert all(hub.query(f"short_{mode}").invoke().schema.metadata is None for mode in MODES[:2])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT COUNT(*) FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS]", "when they close"),
        (f"SELECT s.x FROM s JOIN names ON s.g = names.id {SINCE_20}", "reads a relation"),
        ("SELECT x FROM s", "its rows are emitted as they arrive"),
        ("SELECT COUNT(*) FROM s [ROWS 5]", "not one of time"),
        (f"SELECT s.x FROM s, s other WHERE s.g = other.g {SINCE_20}", "joins streams"),
    ],
)
def test_what_cannot_wait_for_the_question_is_refused_with_the_reason(
    text: str, why: str, tmp_path: Path
) -> None:
    with Rig(tmp_path).hub(1, {}) as hub, pytest.raises(UserError, match=why):
        hub.execute(f"CREATE QUERY q OPTIONS (materialize 'partial') AS {text}")


def test_who_must_not_miss_a_change_gets_the_option_to_ask_for(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    with rig.hub(1, {"q": TEXT}) as hub:
        for ask in (lambda: hub.sink("q", print), lambda: hub.query("q").client("me")):
            with pytest.raises(UserError) as refused:
                ask()
            assert "materialize 'complete'" in refused.value.remedy
        hub.execute("ALTER QUERY q SET (materialize 'complete')")
        rig.drop(*FILES)
        hub.catch_up()
        delivery = hub.query("q").client("me").fetch()
        assert delivery is not None
        assert delivery.rows.num_rows


def test_changes_are_recomputed_for_a_reader_as_if_they_had_been_kept(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    with rig.hub(2, {}) as hub:
        for mode in MODES:
            hub.execute(f"CREATE QUERY {mode} OPTIONS (materialize '{mode}') AS {SUMS}")
        for file in FILES:
            rig.drop(file)
            hub.catch_up()
        histories = [hub.query(mode).history() for mode in MODES]
        assert histories[2].num_rows > 10
        assert histories[0].equals(histories[2])
        assert histories[1].equals(histories[2])
        followed = list(hub.query("partial").follow(since=-(10**9)))
        assert sum(part.num_rows for part in followed) == histories[2].num_rows


def test_changes_of_what_reads_the_times_and_places_of_rows_are_recomputed_too(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    text = f"SELECT FIRST(x) AS first, LAST(x) AS x, LAST(g) AS g FROM s {SINCE_20}"
    with rig.hub(2, {}) as hub:
        for mode in MODES:
            hub.execute(f"CREATE QUERY {mode} OPTIONS (materialize '{mode}') AS {text}")
        for file in FILES[:6]:
            rig.drop(file)
            hub.catch_up()
        histories = [hub.query(mode).history() for mode in MODES]
        assert histories[2].num_rows > 10
        assert histories[0] == histories[1] == histories[2]


def test_what_a_selection_would_emit_as_its_stream_ends_is_what_one_that_keeps_all_of_its_answer_would(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    whole = f"SELECT k, x FROM s {SINCE_20}"
    failing = f"SELECT k, 10 / SUM(x) AS part FROM s WHERE g > 0 {SINCE_20} GROUP BY k"
    with rig.hub(2, {}) as hub:
        for mode in MODES:
            for name, text in (("rows", whole), ("sums", SUMS), ("failing", failing)):
                hub.execute(f"CREATE QUERY {name}_{mode} OPTIONS (materialize '{mode}') AS {text}")
        seen = set()
        for file in FILES[:9]:
            rig.drop(file)
            closing = hub.run_once()
            for name in ("rows", "sums", "failing"):
                at_end = [closing.get(f"{name}_{mode}") for mode in MODES]
                assert at_end[0] == at_end[1] == at_end[2]
                seen.add(name) if at_end[2] is not None else None
                failed = [hub.closing_rejects.get(f"{name}_{mode}") for mode in MODES]
                assert failed[0] == failed[1] == failed[2]
        assert seen == {"rows", "sums", "failing"}
        hub.execute("PAUSE QUERY rows_partial")
        rig.drop(FILES[9])
        assert "rows_partial" not in hub.run_once()
        assert hub.run_once(seal=True) == {}
        assert hub.query("sums_none").history().equals(hub.query("sums_complete").history())
