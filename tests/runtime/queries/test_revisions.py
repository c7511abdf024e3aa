"""WITH REVISIONS end to end: late files change windows that had been emitted, live, over the archive and after a kill."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from headrace.algebra.query import Query
from headrace.reference.evaluate import revisions
from headrace.reference.history import History, record
from headrace.runtime.hub.hub import Hub
from headrace.time import SECOND
from tests.runtime.rig import NAMES, Rig, Row, answers, cut, expected, made_rows

QUERIES = {
    "sums": "SELECT k, COUNT(*) AS n, SUM(x) AS total FROM s [RANGE 10 SECONDS SLIDE 3 SECONDS] GROUP BY k"
    " WITH REVISIONS",
    "near": "SELECT COUNT(*) AS n FROM s [RANGE 8 SECONDS SLIDE 1 SECOND] WITH REVISIONS FOR INTERVAL 4 SECONDS",
    "best": "SELECT k, SUM(x) AS total FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k"
    " ORDER BY total DESC, k LIMIT 2 WITH REVISIONS",
    "whole": "SELECT * FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] WHERE g = 1 WITH REVISIONS",
    "marks": "SELECT k, MAX(x) AS top, COUNT(*) AS n FROM s [LANDMARK SLIDE 7 SECONDS] GROUP BY k WITH REVISIONS",
    "every": "SELECT COUNT(*) AS n FROM s [RANGE TUMBLING 2 SECONDS] WHERE x > 100 EMIT EMPTY WITH REVISIONS",
    "some": "SELECT k, x, y FROM s WHERE x > 3 WITH REVISIONS",
    "named": "SELECT names.name, COUNT(*) AS n FROM s [RANGE TUMBLING 5 SECONDS] JOIN names ON s.g = names.id"
    " GROUP BY names.name WITH REVISIONS",
}
QUERIES["visits"] = (
    "SELECT k, window_start, window_end, COUNT(*) AS n, SUM(x) AS total FROM s GROUP BY session_window(at, '2 seconds'), k"
    " WITH REVISIONS FOR INTERVAL 9 SECONDS"
)
LATE = {"maxFilesPerTrigger": "1"}


@pytest.fixture
def files() -> list[list[Row]]:
    """Six files, each an epoch, with rows up to 12 seconds out of order and no slack: many are late."""
    return cut(made_rows(3, 120, disorder=12 * SECOND), 20, 40, 60, 80, 100)


@pytest.fixture
def rig(tmp_path: Path, files: list[list[Row]]) -> Rig:
    rig = Rig(tmp_path, LATE)
    rig.drop(*files)
    return rig


def meaning(hub: Hub, name: str) -> Query:
    return hub.operator_and_query(name)[1]


def test_what_stands_at_the_end_is_the_reference_s_answer_over_all_rows(
    rig: Rig, files: list[list[Row]]
) -> None:
    with rig.hub(queries=QUERIES) as hub:
        answered = answers(hub, hub.run_once())
        for name in QUERIES:
            assert answered[name] == expected(meaning(hub, name), files), name
        assert hub.status()["streams"]["s"]["late"] > 0


def test_a_follower_gets_each_change_once_in_the_epoch_of_its_late_row(
    rig: Rig, files: list[list[Row]]
) -> None:
    with rig.hub(queries=QUERIES) as hub:
        hub.run_once()
        for name in ("sums", "near", "marks"):
            changelog = hub.query(name).history().to_pylist()
            query = meaning(hub, name)
            history = History({"s": record(files, "at")}, {"names": NAMES})
            assert Counter(_key(row["__change"], row, query) for row in changelog) == Counter(
                _key(sign, row, query) for _, _, sign, row in revisions(query, history)
            ), name
            assert any(row["__change"] < 0 for row in changelog), name


def _key(sign: int, row: Row, query: Query) -> tuple[object, ...]:
    return (sign, *(row[name] for name in query.schema.names))


def test_registered_late_the_same_stands_as_registered_first(rig: Rig) -> None:
    with rig.hub(queries=QUERIES) as hub:
        first = answers(hub, hub.run_once())
        for name, text in QUERIES.items():
            hub.register(text, f"{name}_late")
        again = answers(hub, hub.run_once())
        for name in QUERIES:
            assert again[f"{name}_late"] == first[name] == again[name], name


def test_a_home_opened_again_after_every_file_revises_what_it_emitted_before(
    tmp_path: Path, files: list[list[Row]]
) -> None:
    rig = Rig(tmp_path, LATE)
    for number, rows in enumerate(files):
        rig.drop(rows)
        with rig.hub(queries=QUERIES if number == 0 else None, tasks=1 + number % 3) as hub:
            closing = hub.run_once()
            answered = answers(hub, closing)
            assert {name: answered[name] for name in QUERIES} == {
                name: expected(meaning(hub, name), files[: number + 1]) for name in QUERIES
            }


def test_invoke_and_output_show_what_stands(tmp_path: Path) -> None:
    def row(at: int, x: int) -> Row:
        return {"k": "a", "g": 1, "x": x, "y": 0.0, "at": at * SECOND}

    rig = Rig(tmp_path, LATE)
    text = "SELECT SUM(x) AS total FROM s [RANGE TUMBLING 10 SECONDS] WITH REVISIONS"
    rig.drop([row(3, 1), row(12, 2)], [row(4, 5)])
    with rig.hub(queries={"q": text}) as hub:
        hub.run_once()
        assert hub.query("q").invoke().to_pylist() == [{"total": 6}]
        changelog = hub.query("q").history().to_pylist()
        assert [(row["__change"], row["total"]) for row in changelog] == [(-1, 1), (1, 1), (1, 6)]


def test_a_late_row_joins_two_sessions_that_had_been_emitted(tmp_path: Path) -> None:
    def row(at: int) -> Row:
        return {"k": "a", "g": 1, "x": at, "y": 0.0, "at": at * SECOND}

    rig = Rig(tmp_path, LATE)
    text = "SELECT COUNT(*) AS n, SUM(x) AS total FROM s [SESSION 3 SECONDS] WITH REVISIONS"
    rig.drop([row(1), row(6), row(20)], [row(4)], [row(23), row(40)])
    with rig.hub(queries={"q": text}) as hub:
        hub.run_once()
        changelog = Counter(
            (change["__change"], change["n"], change["total"])
            for change in hub.query("q").history().to_pylist()
        )
        assert changelog == Counter([(1, 1, 1), (1, 1, 6), (-1, 1, 1), (-1, 1, 6), (1, 3, 11), (1, 2, 43)])
        assert hub.query("q").invoke().to_pylist() == [{"n": 2, "total": 43}]
