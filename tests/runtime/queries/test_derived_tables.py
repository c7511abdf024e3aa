"""A SELECT in FROM is a query of its own: what it emits is the stream that the outer one reads."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import headrace as hr
from headrace.algebra.query import Query
from headrace.errors import UserError
from headrace.reference.derived import with_derived
from headrace.reference.evaluate import stream_answer, windows_answer
from headrace.reference.history import History, record
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND
from tests.runtime.rig import NAMES, Rig, Row, answers, canonical, cut, made_rows

QUERIES = {
    "most": "SELECT MAX(n) AS top, COUNT(*) AS groups, window_end FROM"
    " (SELECT k, COUNT(*) AS n FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY k) AS t"
    " [RANGE 10 SECONDS SLIDE 10 SECONDS]",
    "doubled": "SELECT k, SUM(twice) AS total FROM (SELECT k, x * 2 AS twice FROM s WHERE x > 0) t"
    " [RANGE 7 SECONDS SLIDE 3 SECONDS] GROUP BY k HAVING COUNT(*) > 1",
    "picked": "SELECT t.k, names.name FROM (SELECT k, g FROM s WHERE g IN (SELECT id FROM names)) AS t"
    " JOIN names ON t.g = names.id",
    "deep": "SELECT COUNT(*) AS n FROM (SELECT top FROM (SELECT MAX(x) AS top FROM s [RANGE TUMBLING 3 SECONDS])"
    " WHERE top > 2) [RANGE TUMBLING 6 SECONDS]",
}


def expected(query: Query, epochs: list[list[Row]]) -> list[object]:
    history = History({"s": record(epochs, "at", 4 * SECOND)}, {"names": NAMES})
    history = with_derived(query, history, final=True)
    answer = windows_answer if query.emission == "windows" else stream_answer
    return canonical(answer(query, history, history.punctuation(query), final=True))


@pytest.fixture
def files() -> list[list[Row]]:
    return cut(made_rows(8, 90, disorder=4 * SECOND), 30, 60)


def wanted(hub: Hub, files: list[list[Row]]) -> dict[str, list[object]]:
    return {name: expected(hub.operator_and_query(name)[1], files) for name in QUERIES}


def test_live_late_and_after_every_restart_the_answer_is_the_reference_s(
    tmp_path: Path, files: list[list[Row]]
) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"}, slack=4 * SECOND)
    for number, rows in enumerate(files):
        rig.drop(rows)
        with rig.hub(queries=QUERIES if number == 0 else None, tasks=1 + number) as hub:
            answered = answers(hub, hub.run_once())
            assert answered == wanted(hub, files[: number + 1])
    with rig.hub() as hub:
        for name, text in QUERIES.items():
            hub.register(text, f"{name}_late")
        again = answers(hub, hub.run_once())
        assert {name: again[f"{name}_late"] for name in QUERIES} == wanted(hub, files)


def test_a_query_and_its_derived_table_pause_explain_and_go_together(
    tmp_path: Path, files: list[list[Row]]
) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"}, slack=4 * SECOND)
    rig.drop(files[0])
    with rig.hub(queries=QUERIES) as hub:
        hub.run_once()
        hub.execute("PAUSE QUERY most")
        rig.drop(*files[1:])
        hub.run_once()
        hub.execute("RESUME QUERY most")
        assert answers(hub, hub.run_once()) == wanted(hub, files)
        (outcome,) = hub.execute("EXPLAIN QUERY most")
        assert outcome.table is not None
        lines = outcome.table.column(0).to_pylist()
        assert lines.count("query most") == 2
        with pytest.raises(UserError, match="most"):
            hub.execute("DROP STREAM s")
        hub.execute("DROP QUERY most")
        assert not [name for name in hub.loop.engine.plan.operators if name.startswith("q0")]
        hub.run_once()


def test_it_runs_without_a_home() -> None:
    """By hand: the sums of windows of two seconds are 1 and 5, of which the window of four holds both."""
    rows = [{"v": v, "at": datetime.fromtimestamp(v, UTC)} for v in (1, 2, 3)]
    text = "SELECT MAX(total) AS top FROM (SELECT SUM(v) AS total FROM s [RANGE TUMBLING 2 SECONDS]) t [RANGE TUMBLING 4 SECONDS]"
    assert hr.test(text, s=rows) == [{"top": 5}]
