"""New queries read the archive during live epochs: in turns, without a gap or a row twice."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.archive import runs
from headrace.runtime.backfill.archive_entries import ArchiveEntry
from headrace.runtime.backfill.backfill_scheduler import (
    LARGEST,
    SLICE_ROWS,
    Chunk,
    ReplaySchedule,
    SliceTimes,
    chunk_of,
    longest_backfill,
)
from headrace.runtime.backfill.entry_slices import first_slices, in_few_splits
from headrace.runtime.backfill.replay import Archives
from headrace.runtime.backfill.union_replay import Bundle
from headrace.runtime.hub.hub import Hub
from headrace.runtime.ingest.admission import in_parts
from headrace.runtime.messages import epoch_work
from headrace.runtime.messages.task_messages import Split
from headrace.runtime.spark.standing.pace import are_few
from headrace.time import SECOND
from tests.examples import examples
from tests.runtime.rig import QUERIES, SEVERAL, Rig, answer, answers, cut, expected, made_rows

ONE_FILE = {"maxFilesPerTrigger": "1"}
SINCE_WHENEVER = [name for name in QUERIES if name != "named"]


def entry(rows: int, relation: str = "") -> ArchiveEntry:
    return ArchiveEntry(0, (), (), (), rows, 0, 0, 0, 0, {"r": relation})


@given(
    entries=st.lists(st.builds(entry, st.integers(0, 50), st.sampled_from("ab")), min_size=1),
    rows=st.integers(0, 120),
    least=st.integers(1, 4),
    until=st.none() | st.integers(1, 8),
    enough=st.none() | st.integers(0, 100),
)
def test_a_chunk_is_a_prefix_no_larger_than_asked(entries, rows, least, until, enough) -> None:
    chunk = chunk_of(iter(entries), Chunk(rows, least, enough), until)
    assert chunk == entries[: len(chunk)]
    assert chunk
    assert len({each.relations["r"] for each in chunk}) == 1
    assert until is None or len(chunk) <= until
    total = sum(each.rows for each in chunk)
    if len(chunk) > least or (enough is not None and len(chunk) > 1 and total - chunk[-1].rows >= enough):
        assert total <= rows
    whole = len(chunk) == len(entries) or len(chunk) == until
    if not whole and entries[len(chunk)].relations == chunk[0].relations:
        assert len(chunk) >= least or (enough is not None and total >= enough)


POSITION = st.tuples(st.integers(0, 5), st.integers(0, 2))


@given(
    st.dictionaries(st.text(min_size=1), st.tuples(st.sampled_from("st"), POSITION), min_size=1, max_size=8)
)
def test_who_is_furthest_behind_reads_to_where_the_next_one_stands(places) -> None:
    group = longest_backfill(places)
    assert group.start == min(start for _, start in places.values())
    assert {places[name] for name in group.operators} == {(group.stream, group.start)}
    ahead = [start for stream, start in places.values() if stream == group.stream and start > group.start]
    assert group.until == (min(ahead) if ahead else None)


class Clock:
    """What a schedule reads."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_chunk_takes_about_half_of_what_a_live_epoch_takes() -> None:
    advances = ReplaySchedule(Clock())
    assert advances.chunk() == Chunk()  # nothing is live
    for _ in range(50):
        advances.saw(replay=False, rows=1000, seconds=2.0)
        advances.saw(replay=True, rows=300_000, seconds=1.0)
    chunk = advances.chunk()
    assert chunk.rows == pytest.approx(300_000, rel=0.05)
    assert chunk.entries == 1
    advances.saw(replay=False, rows=0, seconds=9.0)  # a tick shows nothing of what rows cost
    assert advances.chunk() == chunk


def test_small_chunks_and_large_ones_have_rates_of_their_own() -> None:
    advances = ReplaySchedule(clock := Clock())
    for _ in range(50):
        advances.saw(replay=False, rows=1000, seconds=0.02)
        advances.saw(replay=True, rows=50_000, seconds=0.01)
        advances.saw(replay=True, rows=1_000_000, seconds=0.1)
    assert advances.chunk().rows == pytest.approx(50_000, rel=0.05)
    clock.now += 1
    assert advances.chunk().rows == pytest.approx(4_000_000, rel=0.05)


def test_what_a_slice_costs_without_rows_does_not_count_for_its_rows() -> None:
    times = SliceTimes()
    for number in range(50):
        rows = 50_000 * (1 + number % 4)
        times.saw(rows, 0.01 + rows / 10_000_000)
    assert times.rows_in(0.02) == pytest.approx(100_000, rel=0.05)
    assert times.rows_in(0.04) == pytest.approx(300_000, rel=0.1)
    assert times.rows_in(0.001) == 0


def test_a_slice_in_the_time_that_live_epochs_leave_is_a_small_epoch() -> None:
    """Standing tasks end for a large one, and live epochs are jobs then."""
    advances = ReplaySchedule(clock := Clock())
    for number in range(50):
        advances.saw(replay=False, rows=50_000, seconds=0.02)
        advances.saw(replay=True, rows=65_536 * (1 + number % 3), seconds=0.01)
    clock.now += 0.08
    chunk = advances.chunk()
    assert chunk.rows == SLICE_ROWS
    assert are_few(chunk.rows + 65_536)
    for _ in range(9):
        advances.saw(replay=False, rows=500_000, seconds=0.4)  # live epochs that became large
    assert advances.chunk().rows == SLICE_ROWS
    clock.now += 1
    waits, none_waits = (advances.turn(live_waits=waiting) for waiting in (True, False))
    assert waits is None or waits.rows == SLICE_ROWS
    assert none_waits is not None
    assert none_waits.rows > SLICE_ROWS


def test_the_longer_nothing_arrives_the_larger_is_a_chunk() -> None:
    advances = ReplaySchedule(clock := Clock())
    for _ in range(50):
        advances.saw(replay=False, rows=1000, seconds=0.02)
        advances.saw(replay=True, rows=40_000, seconds=0.04)
    sizes = []
    for _ in range(8):
        sizes.append(advances.chunk().rows)
        clock.now += 0.02
    assert sizes[:2] == [pytest.approx(10_000, rel=0.05)] * 2  # half of a live epoch, and of the silence
    assert sizes[7] == pytest.approx(70_000, rel=0.05)
    clock.now += 3600
    assert advances.chunk().rows == LARGEST


def test_live_input_that_waits_goes_first_but_not_for_ever() -> None:
    advances, turns = ReplaySchedule(Clock()), []
    for _ in range(20):
        chunk = advances.turn(live_waits=True)
        turns.append(chunk is not None)
        if chunk is None:
            advances.saw(replay=False, rows=1000, seconds=0.1)
        else:
            advances.saw(replay=True, rows=8000, seconds=0.1)
    assert turns == [False, False, False, False, True] * 4
    assert advances.turn(live_waits=False) is not None


def test_epochs_before_there_was_a_past_to_read_do_not_count() -> None:
    advances = ReplaySchedule(Clock())
    for _ in range(100):
        advances.saw(replay=False, rows=1000, seconds=0.1)
        if advances.turn(live_waits=True) is not None:
            advances.nothing_to_read()
    advances.nothing_to_read()
    assert advances.turn(live_waits=True) is None
    assert advances.chunk() == Chunk(50_000)


def test_backfills_that_fall_behind_read_more_than_is_added() -> None:
    advances = ReplaySchedule(Clock())
    for number in range(92):
        advances.saw(replay=False, rows=10_000, seconds=0.001)
        assert advances.chunk().enough == (None if number < 91 else 12_500)
        assert advances.chunk().entries == (1 if number < 91 else 2)
        assert (advances.turn(live_waits=True) is None) == (number < 91)
        advances.saw(replay=True, rows=9_000, seconds=1.0)
    rest = advances.turn(live_waits=True)
    assert rest is not None
    assert rest.enough == 3_500
    advances.saw(replay=True, rows=3_500, seconds=1.0)
    assert advances.turn(live_waits=True) is None
    for _ in range(200):
        advances.saw(replay=False, rows=10_000, seconds=0.001)
        advances.saw(replay=True, rows=13_000, seconds=1.0)
    assert advances.chunk().enough is None


def test_backfills_that_fall_far_behind_read_several_slices_in_a_row() -> None:
    advances = ReplaySchedule(Clock())
    for _ in range(100):
        advances.saw(replay=False, rows=800_000, seconds=0.001)
    turns = []
    for _ in range(5):
        chunk = advances.turn(live_waits=True)
        turns.append(chunk is not None)
        if chunk is None:
            advances.saw(replay=False, rows=240_000, seconds=0.001)
        else:
            assert chunk.enough == SLICE_ROWS
            advances.saw(replay=True, rows=SLICE_ROWS, seconds=0.1)
    assert turns == [True] * 5


def test_where_live_input_leaves_no_time_a_chunk_takes_half_of_what_it_took() -> None:
    advances = ReplaySchedule(Clock())
    for _ in range(50):
        advances.saw(replay=True, rows=50_000, seconds=0.5)
    for waited in range(1, 5):
        advances.saw(replay=False, rows=1000, seconds=0.1)
        assert advances.chunk().rows == pytest.approx(50_000 * waited * 0.1, rel=0.01)


@given(
    rows=st.lists(st.integers(1, 50), min_size=1, max_size=9),
    size=st.integers(0, 200),
    first=st.integers(0, 8),
)
def test_slices_are_the_row_groups_in_order(rows: list[int], size: int, first: int) -> None:
    slices = [(Split("s", 0, archived=f"f{n // 3}", row_groups=(n % 3,)), rows[n]) for n in range(len(rows))]
    left = slices[min(first, len(slices) - 1) :]
    chosen = first_slices(left, size)
    assert chosen == left[: len(chosen)]
    assert chosen
    total = sum(weight for _, weight in chosen)
    rest = sum(weight for _, weight in left) - total
    assert len(chosen) == 1 or total <= size or rest == 0
    assert len(chosen) == len(left) or total + left[len(chosen)][1] > size
    merged = in_few_splits(chosen)
    assert sum(weight for _, weight in merged) == total
    assert [(s.archived, n) for s, _ in merged for n in s.row_groups or ()] == [
        (s.archived, n) for s, _ in chosen for n in s.row_groups or ()
    ]
    assert len(merged) == len({s.archived for s, _ in chosen})


def test_a_slice_that_is_enough_rows_for_several_tasks_has_a_split_a_file_that_tasks_read_in_parts() -> None:
    slices = [(Split("s", 0, archived=f"f{n // 5}", row_groups=(n % 5,)), 65_536) for n in range(6)]
    merged = in_few_splits(slices)
    assert [(split.archived, split.row_groups) for split, _ in merged] == [
        ("f0", (0, 1, 2, 3, 4)),
        ("f1", (0,)),
    ]
    parts = in_parts(merged, 100_000, 2)
    assert [(split.archived, split.part) for split, _ in parts] == [
        ("f0", (0, 2)),
        ("f0", (1, 2)),
        ("f1", (0, 1)),
    ]


def test_a_small_rest_of_an_entry_is_no_slice_of_its_own() -> None:
    slices = [(Split("s", 0, archived="f", row_groups=(n,)), rows) for n, rows in enumerate((800, 800, 100))]
    assert len(first_slices(slices, 1)) == 1
    assert len(first_slices(slices[1:], 1)) == 2
    assert len(first_slices([*slices[1:], slices[2]], 1)) == 1


LIFE = st.tuples(st.sampled_from((2, 0, 1, 3)), st.sampled_from((3, 0, 1, 5)), st.integers(1, 4))
"""So many files arrive, so many queries are registered, and so many steps are made."""


def kinds(hub: Hub, steps: int) -> list[str]:
    found = []
    for _ in range(steps):
        seen = hub.loop.step(live_first=True)
        found.append("nothing" if seen is None else seen.kind)
    return found


def test_live_input_waits_for_one_chunk_at_most_and_the_past_is_read_all_the_same(tmp_path: Path) -> None:
    files = cut(made_rows(41, 80), *range(2, 80, 2))
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*files[:12])
    with rig.hub(2, {"first": QUERIES["tumble"]}) as hub:
        hub.catch_up()
        hub.execute(f"CREATE QUERY late AS {QUERIES['tumble']}")
        hub.loop.engine.replay_schedule.nothing_to_read()
        rig.drop(*files[12:])  # and there is live input at every step
        found = []
        while hub.loop.engine.is_catching_up():
            found += kinds(hub, 1)
            assert len(found) < 28
        assert found[0] == "epoch"
        assert "replay" in found
        assert not any(pair == ("replay", "replay") for pair in itertools.pairwise(found))
        assert found.count("epoch") >= 3 * found.count("replay")
        closing = hub.run_once()
        assert answer(hub, "late", closing) == answer(hub, "first", closing)


def test_when_nothing_arrives_the_past_is_read_without_waiting(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*cut(made_rows(42, 60), *range(3, 60, 3)))
    with rig.hub(2, {"first": QUERIES["tumble"]}) as hub:
        hub.catch_up()
        hub.execute(f"CREATE QUERY late AS {QUERIES['tumble']}")
        found = kinds(hub, 30)
        done = found.index("nothing")
        assert set(found[:done]) == {"replay"}
        assert not hub.loop.engine.is_catching_up()


class Small(ReplaySchedule):
    """The archive is read one, two or three entries at a time, in turns with what is live."""

    read = 0

    def chunk(self) -> Chunk:
        self.read += 1
        return Chunk(1, 1 + self.read % 3)


@examples(6, shares_fixtures=True)
@given(data=st.data())
def test_queries_that_come_at_any_time_answer_as_if_they_had_always_been_there(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = made_rows(
        data.draw(st.integers(0, 10**6), "seed of the rows"),
        data.draw(st.integers(30, 70), "rows"),
        disorder=data.draw(st.integers(0, 6), "disorder") * SECOND,
    )
    slack = data.draw(st.sampled_from((0, 2 * SECOND, 6 * SECOND)), "slack")
    monkeypatch.setattr(runs, "_ROW_GROUP", data.draw(st.sampled_from((2, 1 << 16)), "rows of a slice"))
    left = files = cut(rows, *range(6, len(rows), 6))
    rig = Rig(tmp_path_factory.mktemp("home"), ONE_FILE, slack=slack)
    waiting = data.draw(st.permutations(SINCE_WHENEVER), "order in which queries come")
    opened = 0
    while left or waiting:
        with rig.hub(data.draw(st.integers(1, 4), "tasks"), None if opened else {}) as hub:
            opened += 1
            hub.loop.engine.replay_schedule = (
                Small() if data.draw(st.booleans(), "few entries at a time") else ReplaySchedule()
            )
            for arrive, come, steps in data.draw(st.lists(LIFE, min_size=3, max_size=6), "what happens"):
                rig.drop(*left[:arrive])
                for name in waiting[:come]:
                    hub.execute(f"CREATE QUERY {name} AS {QUERIES[name]}")
                left, waiting = left[arrive:], waiting[come:]
                kinds(hub, steps)
    with rig.hub(2) as hub:
        found = answers(hub, hub.run_once())
        assert set(found) == set(SINCE_WHENEVER)
        for name, answer in found.items():
            assert answer == expected(hub.operator_and_query(name)[1], files, slack), name
        assert hub.check().faults == 0


class OneSlice(ReplaySchedule):
    """The archive is read in the smallest pieces."""

    def turn(self, *, live_waits: bool) -> Chunk | None:
        return Chunk(1)


@pytest.mark.parametrize("name", [*SINCE_WHENEVER, *SEVERAL])
def test_an_epoch_read_in_slices_means_what_it_does_whole(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each slice is an epoch: the home is opened again between any two, and two queries may meet within an entry."""
    monkeypatch.setattr(runs, "_ROW_GROUP", 3)
    text = {**QUERIES, **SEVERAL}[name]
    files = cut(made_rows(7, 48, disorder=3 * SECOND), *range(8, 48, 8))
    rig = Rig(tmp_path, ONE_FILE)
    rig.drop(*files[:5])
    with rig.hub(2, {}) as hub:
        hub.catch_up()
        hub.register(text, name)
    seen, opened = set(), 0
    while True:
        with rig.hub(1 + opened % 3, None) as hub:
            opened += 1
            hub.loop.engine.replay_schedule = OneSlice()
            if opened == 5:
                hub.register(text, "second")
                hub.loop.step(live_first=True)
            progress = hub.loop.engine.manifest.operators
            seen |= {position.slices for position in progress.values()}
            if hub.loop.step(live_first=True) is None:
                break
    assert seen >= ({0} if name == "arrived" else {0, 1, 2})
    with rig.hub(2, None) as hub:
        rig.drop(*files[5:])
        found = answers(hub, hub.run_once())
        wanted = expected(hub.operator_and_query(name)[1], files)
        assert found[name] == wanted
        assert found["second"] == wanted


@pytest.mark.parametrize("name", ["tumble", "slide", "rows", "ever", "some"])
@pytest.mark.parametrize(("enough", "tasks"), [(4, 3), (2, 4)])
def test_slices_that_several_tasks_read_mean_what_one_task_reads(
    name: str, enough: int, tasks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve rows of one run, in up to as many parts as there are cores."""
    monkeypatch.setattr(runs, "_ROW_GROUP", 3)
    monkeypatch.setattr(epoch_work, "OF_A_TASK", enough)
    files = cut(made_rows(7, 90, disorder=3 * SECOND), 40)
    rig, scans = Rig(tmp_path, ONE_FILE), []
    rig.drop(*files)
    with rig.hub(2, {}) as hub:
        hub.catch_up()
        hub.register(QUERIES[name], name)
        hub.loop.engine.replay_schedule = TwoTasks()
        executor = hub.loop.engine.executor
        run = executor.run
        monkeypatch.setattr(executor, "cores", 4, raising=False)
        monkeypatch.setattr(
            executor, "run", lambda scanned, states: scans.append(len(scanned)) or run(scanned, states)
        )
        while hub.loop.step(live_first=True) is not None:
            pass
        assert max(scans) == tasks
        assert answers(hub, hub.run_once())[name] == expected(hub.operator_and_query(name)[1], files)


class TwoTasks(ReplaySchedule):
    """The archive is read in slices that are enough rows for two tasks."""

    def turn(self, *, live_waits: bool) -> Chunk | None:
        return Chunk(12)


BUNDLES = Archives._bundles


def with_a_gap(*asked: Any) -> list[Bundle]:
    """One entry of the archive is read by no task."""
    found = BUNDLES(*asked)
    return [*found[:1], replace(found[1], entries=()), *found[2:]] if len(found) > 2 else found


def counted_twice(*asked: Any) -> list[Bundle]:
    """At the cut-over the last entry of the archive is believed to be ahead still."""
    found = BUNDLES(*asked)
    return [*found[:-1], replace(found[-1], position=found[-1].position - 1)] if len(found) > 2 else found


def lived(rig: Rig, name: str) -> None:
    """A query comes when six entries are archived, and then two more."""
    files = cut(made_rows(11, 48), *range(6, 48, 6))
    rig.drop(*files[:6])
    with rig.hub(2, {}) as hub:
        hub.catch_up()
        hub.register(QUERIES[name], name)
        hub.catch_up()
        rig.drop(*files[6:])
        found = answers(hub, hub.run_once())[name]
        assert found == expected(hub.operator_and_query(name)[1], files), "wrong"


@pytest.mark.parametrize("name", ["tumble", "slide", "rows", "ever", "some"])
def test_a_gap_or_a_double_count_at_the_cut_over_would_be_noticed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived(Rig(tmp_path / "as it is", ONE_FILE), name)
    for mutant in (with_a_gap, counted_twice):
        monkeypatch.setattr(Archives, "_bundles", mutant)
        with pytest.raises(AssertionError, match="wrong"):
            lived(Rig(tmp_path / mutant.__name__, ONE_FILE), name)
