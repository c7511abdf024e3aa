"""Queries over results that are scanned together do what they do one by one: answers, rejected rows, the progress of each stream, what is
measured of each query, and what each state holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.operators.base.operator import AT
from headrace.runtime.hub.hub import Hub
from headrace.runtime.introspection.epoch_log import last_lines
from headrace.runtime.introspection.explain import explained
from headrace.runtime.messages.task_messages import Participants, Split
from headrace.runtime.plan import bound_queries
from headrace.runtime.progress.plan_index import index_of
from headrace.runtime.tasks.scan.groups import reader_groups, results_scan
from headrace.runtime.tasks.scan.groups.reader_groups import groups_of
from headrace.time import SECOND
from tests.runtime.rig import Rig, answers, assert_as_the_reference, cut, made_rows

ONE_FILE = {"maxFilesPerTrigger": "1"}
OVER_GROUPS = "SELECT MAX(c.n) AS n FROM (SELECT k, COUNT(*) AS n FROM s [RANGE {n} SECONDS] WHERE x > {n} - 8 GROUP BY k) AS c"
OVER_ROWS = (
    "SELECT c.k, 6 / c.x AS n FROM (SELECT k, x FROM s [RANGE {n} SECONDS]) AS c WHERE 6 / (c.x - 1) < {n}"
)
MEMBERS = (
    "SELECT a.k, COUNT(*) AS n FROM s [RANGE {n} SECONDS] AS a WHERE a.x > {n} - 8 AND a.k IN"
    " (SELECT b.k FROM s [RANGE {n} SECONDS] AS b WHERE 6 / b.x > 0) GROUP BY a.k"
)
FAILING_SIDES = (
    "SELECT a.k, COUNT(*) AS n FROM s [RANGE {n} SECONDS] AS a WHERE 6 / a.x < {n} AND a.k IN"
    " (SELECT b.k FROM s [RANGE {n} SECONDS] AS b) GROUP BY a.k"
)
SHARED = "SELECT c.k, SUM(c.n) AS n FROM (SELECT k, n FROM base) AS c WHERE c.n > {n} GROUP BY c.k"
OVER_WINDOWS = "SELECT k, MAX(n) AS n FROM windows{n} [RANGE {n} SECONDS] GROUP BY k"
WINDOWS = "SELECT k, COUNT(*) AS n FROM s [RANGE {n} SECONDS SLIDE 1 SECONDS] GROUP BY k"
TEXTS = (OVER_GROUPS, OVER_ROWS, MEMBERS, FAILING_SIDES, SHARED, OVER_WINDOWS)
EXTENTS = (1, 2, 3, 5, 8, 9, 30)


def observed(hub: Hub) -> Iterator[Any]:
    """What each epoch measured of each operator, and how many rows it read of each stream."""
    for line in last_lines(Path(hub.home.store.root), 50):
        operators = line.get("operators", {})
        yield {name: seen[:3] if isinstance(seen, list) else seen for name, seen in operators.items()}
        yield {name: (seen["rows"], seen["late"]) for name, seen in line.get("streams", {}).items()}


def progress(hub: Hub) -> dict[str, Any]:
    """The record of each stream, but for when its rows arrived."""
    manifest = hub.home.latest()
    facts = ("rows", "late", "rejected", "next", "punctuation", "greatest", "taken")
    return {
        name: [getattr(manifest.stream(name), fact) for fact in facts] for name in sorted(manifest.streams)
    }


def done_by(text: str, tasks: int, path: Path) -> list[Any]:
    """All that a home does with such queries, of which one rests for a while and one comes later."""
    bound_queries._lowered.clear()
    files = cut(made_rows(6, 60, disorder=3 * SECOND), 15, 30, 45)
    rig = Rig(path, ONE_FILE)
    with rig.hub(tasks, {}) as hub:
        hub.execute("CREATE QUERY base AS SELECT k, COUNT(*) AS n FROM s [RANGE 9 SECONDS] GROUP BY k")
        if text == OVER_WINDOWS:
            hub.register_many({f"windows{extent}": WINDOWS.format(n=extent) for extent in (*EXTENTS, 4)})
        hub.register_many({f"m{extent}": text.format(n=extent) for extent in EXTENTS})
        for number, file in enumerate(files):
            if number == 2:
                hub.execute(f"PAUSE QUERY m3; CREATE QUERY later AS {text.format(n=4)}")
            if number == 3:
                hub.execute("RESUME QUERY m3")
            rig.drop(file)
            hub.run_once()
        answered = answers(hub, hub.run_once())
        return [answered, hub.status()["rejected"], progress(hub), list(observed(hub))]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("tasks", [1, 3])
def test_together_they_do_what_they_do_one_by_one(
    text: str, tasks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    offer = results_scan.ResultsScan._offer
    with monkeypatch.context() as counting:
        counting.setattr(
            results_scan.ResultsScan, "_offer", lambda scan, made: read.append(len(made)) or offer(scan, made)
        )
        together = done_by(text, tasks, tmp_path / "together")
    assert max(read) >= 6, "the results of most queries were read together"
    monkeypatch.setattr(reader_groups, "LEAST", 1 << 30)
    alone = done_by(text, tasks, tmp_path / "alone")
    for name, one, other in zip(
        ("answers", "rejected", "progress", "observed"), together, alone, strict=True
    ):
        assert one == other, name


CONDITION = "SELECT k FROM (SELECT k, {c} AS c FROM s) AS t WHERE c IS NOT NULL"
EXTREME = "SELECT k FROM s [RANGE 1 SECOND] WHERE x >= ALL (SELECT {c} FROM s [RANGE 2 SECONDS])"
BOTH = (
    "SELECT k FROM (SELECT k, {c} AS c FROM s [ROWS 2] UNION ALL SELECT k, {c} AS c FROM s [ROWS 3]) AS t"
    " WHERE c IS NOT NULL"
)


@pytest.mark.parametrize("text", [CONDITION, EXTREME, BOTH])
def test_readers_of_results_with_columns_of_other_types_are_no_group(text: str, tmp_path: Path) -> None:
    """What a condition alone reads is not in the name of a state; an epoch with two such queries failed for all."""
    files = cut(made_rows(6, 40), 10, 20, 30)
    rig = Rig(tmp_path, ONE_FILE)
    with rig.hub(2, {column: text.format(c=column) for column in ("g", "x", "y")}) as hub:
        rig.drop(*files)
        assert_as_the_reference(hub, files)


def test_results_with_late_rows_are_left_to_each_reader() -> None:
    def made(stream: str, *times: int) -> Split:
        return Split(stream, 7, {"shift": 1}, made=pa.table({AT: [at + 1 for at in times]}))

    splits = [made("in time", 5, 6), made("late", 4, 8), made("no bound", -3)]
    (first, last) = results_scan.in_time(splits, {"in time": 5, "late": 5})
    assert (first.split.stream, last.split.stream) == ("in time", "no bound")
    assert (first.at.tolist(), last.at.tolist()) == ([5, 6], [-3])
    assert (first.position.tolist(), last.position.tolist()) == ([7 << 32, (7 << 32) + 1], [7 << 32])


def test_the_work_of_a_group_is_shown_as_shared(tmp_path: Path) -> None:
    rig = Rig(tmp_path, ONE_FILE)
    with rig.hub(1, {f"m{extent}": MEMBERS.format(n=extent) for extent in EXTENTS}) as hub:
        rig.drop(made_rows(6, 60))
        hub.run_once()
        groups = groups_of(index_of(hub.loop.engine.plan))
        assert sorted(map(len, groups)) == [len(EXTENTS)] * 2, "the joins, and those who read their pairs"
        shown = explained(hub.home)
        for group in groups:
            (work,) = (work for work in shown.sharing.works if work.key == f"fold {group[0].id}")
            assert work.users == tuple(operator.id for operator in group)
            places = {shown.sharing.place_of(f"fold {operator.id}") for operator in group}
            assert len(places) == 1, "what is measured of the scan is divided between all"
        states = [work for work in shown.sharing.works if work.kind == "state"]
        assert [len(work.users) for work in states] == [len(EXTENTS)] * 3
        alone = groups[0][0].id
        left = reader_groups.reader_groups(
            index_of(hub.loop.engine.plan), Participants(followers=True), frozenset({alone})
        )
        read = {id_ for targets in left.of_inputs.values() for t in targets for id_ in ids_of(t)}
        read |= {id_ for targets in left.of_results.values() for t in targets for id_ in ids_of(t)}
        assert {operator.id for group in groups for operator in group} - read == {alone}


def ids_of(target: reader_groups.Target) -> list[str]:
    return [operator.id for operator in target.group.operators]
