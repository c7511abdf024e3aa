"""The laws of whole epochs, on real homes and without a JVM: split, restart, late registration, sharing, closing."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.families.family import state_name
from headrace.runtime.home.run_cache import open_run
from headrace.runtime.messages.epoch_work import EpochWork
from headrace.time import SECOND
from tests.examples import examples
from tests.runtime.rig import (
    QUERIES,
    Rig,
    Row,
    answer,
    answers,
    assert_as_the_reference,
    cut,
    expected,
    faults,
    made_rows,
)

ONE_FILE = {"maxFilesPerTrigger": "1"}
FEW = {name: QUERIES[name] for name in ("tumble", "slide", "rows", "now", "some")}


def in_groups(files: list[list[Row]], size: int) -> list[list[Row]]:
    """What epochs of `size` files hold."""
    return [list(itertools.chain.from_iterable(files[at : at + size])) for at in range(0, len(files), size)]


@examples(8, shares_fixtures=True)
@given(data=st.data())
def test_any_cut_tasks_and_restarts_give_the_answer_of_the_reference(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = data.draw(st.integers(0, 10**6))
    rows = made_rows(seed, data.draw(st.integers(1, 30)), disorder=8 * SECOND)
    slack = data.draw(st.sampled_from((0, 2 * SECOND, 40 * SECOND)))
    files = cut(rows, *sorted(data.draw(st.sets(st.integers(1, len(rows)), max_size=4))))
    files = [file for file in files if file]
    together = data.draw(st.integers(1, 3))
    scan_tasks = data.draw(st.integers(1, 4))
    monkeypatch.setattr(EpochWork, "tasks", lambda work, *_: max(1, min(scan_tasks, len(work.splits))))
    rig = Rig(tmp_path_factory.mktemp("home"), {"maxFilesPerTrigger": str(together)}, slack)
    rig.drop(*files)
    for _ in range(len(files)):
        with rig.hub(data.draw(st.integers(1, 5)), FEW) as hub:
            for _ in range(data.draw(st.integers(0, 3))):
                hub.loop.step()
    with rig.hub(data.draw(st.integers(1, 5))) as hub:
        assert_as_the_reference(hub, in_groups(files, together), slack)


def test_many_small_epochs_are_merged_and_answers_stay(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    files = cut(made_rows(3, 150), *range(3, 150, 3))
    rig.drop(*files)
    with rig.hub(1, FEW) as hub:
        assert_as_the_reference(hub, files)
        runs = hub.home.latest().state
    assert len(runs) <= 20


def test_a_restart_with_another_number_of_tasks_at_every_epoch_changes_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    files = cut(made_rows(4, 60), *range(4, 60, 4))
    rig.drop(*files)
    for number in range(len(files)):
        with rig.hub(1 + number % 5, QUERIES) as hub:
            seen = hub.loop.step()
            assert seen is not None
            assert sum(stream.rows for stream in seen.streams.values()) == len(files[number])
    with rig.hub(3) as hub:
        assert_as_the_reference(hub, files)


@pytest.mark.parametrize("archive", ["copy", "in place"])
def test_a_query_that_comes_late_answers_as_if_it_had_been_first(archive: str, tmp_path: Path) -> None:
    rig = Rig(tmp_path, {**ONE_FILE, "archive": archive}, 2 * SECOND)
    files = cut(made_rows(5, 95, disorder=6 * SECOND), *range(5, 95, 5))
    with rig.hub(2, {}) as hub:
        for number, name in enumerate(QUERIES):
            rig.drop(files[number])
            hub.catch_up()
            hub.execute(f"CREATE QUERY {name} AS {QUERIES[name]}")
        rig.drop(*files[len(QUERIES) :])
    with rig.hub(3) as hub:
        assert_as_the_reference(hub, files, 2 * SECOND)


def test_reading_the_past_for_one_query_leaves_the_state_of_the_others_whole(tmp_path: Path) -> None:
    # Every registration below is an epoch of its own, so runs are merged while most queries rest.
    rig = Rig(tmp_path, ONE_FILE)
    files = cut(made_rows(6, 60), *range(6, 60, 6))
    rig.drop(*files[:5])
    with rig.hub(1, FEW) as hub:
        hub.catch_up()
        for number in range(14):
            hub.execute(f"CREATE QUERY another{number} AS {QUERIES['landmark']}")
            hub.catch_up()
        rig.drop(*files[5:])
        assert_as_the_reference(hub, files)


def test_a_paused_query_keeps_its_state_and_catches_up(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    files = cut(made_rows(7, 120), *range(5, 120, 5))
    rig.drop(*files[:6])
    with rig.hub(2, FEW) as hub:
        hub.catch_up()
        for name in ("slide", "now", "rows"):
            hub.execute(f"PAUSE QUERY {name}")
        before = {name: answer(hub, name) for name in ("slide", "now", "rows")}
        rig.drop(*files[6:18])
        hub.catch_up()
        assert {name: answer(hub, name) for name in before} == before
    with rig.hub(3) as hub:
        for name in before:
            hub.execute(f"RESUME QUERY {name}")
        rig.drop(*files[18:])
        assert_as_the_reference(hub, files)


def test_from_now_sees_only_what_comes_later(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    files = cut(made_rows(8, 60), 20, 30)
    rig.drop(files[0])
    with rig.hub(2, {}) as hub:
        hub.catch_up()
        hub.execute(f"CREATE QUERY late AS {QUERIES['tumble']} FROM NOW")
        rig.drop(*files[1:])
        closing = hub.run_once()
        query = hub.operator_and_query("late")[1]
        assert answer(hub, "late", closing) == expected(query, files[1:])


def test_without_an_archive_and_panes_that_fit_a_late_query_begins_with_what_comes(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {**ONE_FILE, "archive": "none"})
    files = cut(made_rows(9, 60), 20, 30)
    rig.drop(files[0])
    with rig.hub(2, {"first": QUERIES["tumble"]}) as hub:
        hub.catch_up()
        hub.execute(f"CREATE QUERY late AS {QUERIES['slide']}")
        rig.drop(*files[1:])
        closing = hub.run_once()
        assert answer(hub, "first", closing) == expected(hub.operator_and_query("first")[1], files)
        assert answer(hub, "late", closing) == expected(hub.operator_and_query("late")[1], files[1:])
        assert hub.home.store.list("archive/") == []


def test_alter_answers_the_new_text_over_the_whole_past(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    files = cut(made_rows(10, 60), 15, 30, 45)
    rig.drop(*files[:2])
    with rig.hub(2, FEW) as hub:
        hub.catch_up()
        hub.execute(f"ALTER QUERY tumble AS {QUERIES['best']}")
        rig.drop(*files[2:])
        assert_as_the_reference(hub, files)


def test_dropped_queries_give_their_state_back_within_a_few_epochs(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    files = cut(made_rows(11, 400), *range(20, 400, 20))
    rig.drop(*files[:15])
    with rig.hub(2, FEW) as hub:
        hub.catch_up()
        alone = hub.status()["state_bytes"]
        for number in range(12):
            hub.execute(
                f"CREATE QUERY more{number} AS {QUERIES['whole'].replace('4 SECONDS', '500 SECONDS')}"
            )
        hub.catch_up()
        crowded = hub.status()["state_bytes"]
        assert crowded > 2 * alone
        for number in range(12):
            hub.execute(f"DROP QUERY more{number}")
        rig.drop(*files[15:17])
        hub.catch_up()
        live = {state_name(operator) for operator in hub.loop.engine.plan.operators.values()}
        runs = [open_run(hub.home.store, run.name) for run in hub.home.latest().state]
        assert {name.partition("/")[0] for run in runs for name in run} <= live
        assert hub.status()["state_bytes"] < crowded
        rig.drop(*files[17:])
        assert_as_the_reference(hub, files)


def test_bytes_of_state_do_not_grow_with_the_length_of_a_steady_stream(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    files = cut(made_rows(12, 720), *range(12, 720, 12))
    sizes = []
    with rig.hub(1, {"tumble": QUERIES["tumble"], "slide": QUERIES["slide"]}) as hub:
        hub.loop.engine.housekeeping.grace = -1
        for part in range(0, len(files), 15):
            rig.drop(*files[part : part + 15])
            hub.catch_up()
            hub.loop.engine.collect()
            sizes.append(sum(file.bytes for file in hub.home.store.list("state/")))
        assert max(sizes[1:]) < 2 * sizes[0]
        assert faults(hub) == []


INEXACT = {
    "tumble": "SELECT k, SUM(y) AS total, AVG(y) AS mean, STDDEV(y) AS spread FROM s [RANGE TUMBLING 40 SECONDS] GROUP BY k",
    "slide": "SELECT SUM(y) AS total, AVG(y) AS mean FROM s [RANGE 50 SECONDS SLIDE 7 SECONDS]",
    "rows": "SELECT SUM(y) AS total FROM s [ROWS 40 SLIDE 9]",
    "ever": "SELECT SUM(y) AS total, VARIANCE(y) AS spread FROM s",
}


@pytest.mark.parametrize("files", [1, 3, 8])
def test_sums_of_inexact_doubles_are_within_a_billionth_of_the_reference_whatever_the_cut(
    files: int, tmp_path: Path
) -> None:
    rng = random.Random(23)
    rows = [{**row, "y": 0.1 * rng.randint(1, 10**6) + rng.random()} for row in made_rows(23, 120)]
    assert sum(row["y"] for row in rows) != sum(row["y"] for row in rows[::-1])  # their order shows
    rig = Rig(tmp_path, ONE_FILE)
    cuts = cut(rows, *range(120 // files, 120, 120 // files))
    rig.drop(*cuts)
    with rig.hub(files % 3 + 1, INEXACT) as hub:
        for name, answer in answers(hub, hub.run_once()).items():
            emitted, meant = answer, expected(hub.operator_and_query(name)[1], cuts)
            if name == "ever":  # a change at every row: what holds at the end
                emitted, meant = (
                    sorted(answer_rows, key=lambda item: item[:2])[-1:] for answer_rows in (emitted, meant)
                )
            assert len(emitted) == len(meant) > 0
            for one, other in zip(in_order(emitted), in_order(meant), strict=True):
                assert one[:-1] == other[:-1]
                for column, value in other[-1].items():
                    ours = one[-1][column]
                    assert ours == value or math.isclose(ours, value, rel_tol=1e-9), (name, column)


def in_order(emitted: list) -> list:
    """By instant and key: values differ in their last digits."""
    return sorted(emitted, key=lambda item: (item[0], repr(item[-1].get("k"))))


def test_late_rows_are_counted_archived_and_in_no_answer(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE, SECOND)
    early = [{"k": "a", "g": 1, "x": 1, "y": 1.0, "at": at * SECOND} for at in (100, 101)]
    late = [{"k": "late", "g": 1, "x": 1, "y": 1.0, "at": at * SECOND} for at in (50, 97, 100)]
    rig.drop(early, late)
    with rig.hub(2, FEW) as hub:
        assert_as_the_reference(hub, [early, late], SECOND)
        counted = hub.status()["streams"]["s"]
        assert counted["rows"] == 5
        assert counted["late"] == 2
        assert counted["slack_needed"] == 50 * SECOND
        entries = hub.home.entries(hub.home.latest(), "archive:s")
        assert [(entry["rows"], entry["late"]) for entry in entries] == [(2, 0), (3, 2)]


def test_the_closing_of_run_once_is_provisional_and_seal_is_final(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    files = cut(made_rows(14, 60), 20, 40)
    for number, file in enumerate(files):
        rig.drop(file)
        with rig.hub(1 + number, QUERIES) as hub:
            assert_as_the_reference(hub, files[: number + 1])
    with rig.hub(2) as hub:
        once = answers(hub, hub.run_once())
        assert hub.run_once(seal=True) == {}
        windows = [name for name in QUERIES if hub.operator_and_query(name)[1].emission == "windows"]
        for name in windows:
            assert answer(hub, name) == once[name], name
        sealed = answers(hub)
        rig.drop(made_rows(15, 5))
        hub.run_once()
        assert hub.status()["streams"]["s"]["late"] == 5
        assert answers(hub) == sealed
    with rig.hub(3) as hub:
        assert answers(hub, hub.run_once()) == sealed


def test_nothing_to_do_is_no_epoch(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.drop(made_rows(16, 10))
    with rig.hub(2, FEW) as hub:
        hub.run_once()
        epoch = hub.status()["epoch"]
        hub.run_once()
        assert hub.status()["epoch"] == epoch
