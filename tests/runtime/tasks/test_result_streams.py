"""Results that are made as they are written, some queries at a time, are those that are made at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.base.operator import AT, QUERY_NUMBER, Step
from headrace.operators.families.cohort import Cohort
from headrace.operators.families.finishing import ResultsByQuery
from headrace.operators.families.pane_queries import PaneStream
from headrace.operators.window_assembly import assemble
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.epoch.supervisor import Retries
from headrace.runtime.hub.hub import Hub
from headrace.runtime.introspection.status import failed
from headrace.runtime.messages.result_entry import answered
from headrace.runtime.tasks.state import state_task
from headrace.runtime.tasks.state.result_runs import sections_of
from headrace.runtime.tasks.state.result_streams import ResultStream
from headrace.runtime.tasks.timing import Ledger
from headrace.time import SECOND
from tests.runtime.rig import (
    QUERIES,
    Rig,
    answer,
    answers,
    assert_as_the_reference,
    cut,
    expected,
    faults_once_tidy,
    made_rows,
)

SLIDES = {
    f"slide{n + 3}": f"SELECT g, COUNT(*) AS n, SUM(x) AS total FROM s [RANGE 10 SECONDS SLIDE 2 SECONDS] WHERE x > {n} GROUP BY g"
    for n in range(-3, 5)
}
OTHERS = {
    "few": "SELECT g, COUNT(*) AS n, SUM(x) AS total FROM s [RANGE 10 SECONDS SLIDE 2 SECONDS] GROUP BY g"
    " HAVING COUNT(*) > 2 ORDER BY total DESC LIMIT 1",
    "none": "SELECT x, COUNT(*) AS n FROM s [RANGE 12 SECONDS SLIDE 4 SECONDS] GROUP BY x HAVING COUNT(*) > 1000",
    "nothing": "SELECT g, COUNT(*) AS n, SUM(x) AS total FROM s [RANGE 10 SECONDS SLIDE 2 SECONDS] GROUP BY g"
    " HAVING COUNT(*) > 1000",
    "over": "SELECT g, 8 / (SUM(x) - 3) AS share FROM s [RANGE 10 SECONDS SLIDE 2 SECONDS] GROUP BY g",
    "again": "SELECT g, COUNT(*) AS n, SUM(x) AS total FROM s [RANGE 10 SECONDS SLIDE 2 SECONDS] GROUP BY g WITH REVISIONS",
    "empty": "SELECT COUNT(*) AS n FROM s [RANGE 6 SECONDS SLIDE 2 SECONDS] EMIT EMPTY",
    "empty2": "SELECT COUNT(*) AS n FROM s [RANGE 6 SECONDS SLIDE 2 SECONDS] WHERE x > 3 EMIT EMPTY",
}
"""Of the same panes with other steps above them, without results, with rows that fail, and with windows that are emitted again."""
ROWS = made_rows(11, 160, disorder=3 * SECOND)
FILES = cut(ROWS, 40, 41, 90)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The queries of each portion; state tasks stream whatever they can."""
    portions, original = list[set[str]](), PaneStream.portions

    def noted(stream: PaneStream) -> Iterator[ResultsByQuery]:
        of_stream = Counter[str]()
        for portion in original(stream):
            portions.append(set(portion.queries))
            of_stream.update(portion.queries)
            yield portion
        assert set(of_stream.values()) <= {1}, "a query has all of its results in one portion"

    monkeypatch.setattr(PaneStream, "portions", noted)
    monkeypatch.setattr(state_task, "_STREAMED_FROM", 0)
    return portions


@pytest.fixture(params=["one portion", "small portions", "several chunks"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows are rolled all together, a few queries at a time, or a few windows at a time, which no portion has all of."""
    if request.param == "several chunks":
        for name, most in (("_SHORTEST_CHUNK", 2), ("_ROLLED_WINDOWS", 2), ("_ROLLED_ROWS", 1)):
            monkeypatch.setattr(assemble, name, most)
    if request.param == "small portions":
        monkeypatch.setattr(assemble, "_CELLS_OF_QUERIES", 1)
        monkeypatch.setattr(assemble, "_is_dense", lambda *_: True)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("tasks", [1, 2])
def test_every_query_answers_as_the_reference(tmp_path: Path, taken: list[set[str]], tasks: int) -> None:
    queries = {**QUERIES, **SLIDES, **OTHERS}
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"}, SECOND)
    with Hub(rig.home, LocalExecutor(), tasks=tasks) as hub:
        hub.execute(rig.script(queries))
        for file in FILES:
            rig.drop(file)
            hub.catch_up()
        assert_as_the_reference(hub, FILES, SECOND)
        assert faults_once_tidy(hub) == []
    assert taken


@pytest.mark.usefixtures("small")
def test_facts_and_measurements_are_those_of_results_made_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: list[set[str]]
) -> None:
    seen = []
    for name, least in (("streamed", 0), ("at once", 1 << 60)):
        monkeypatch.setattr(state_task, "_STREAMED_FROM", least)
        rig = Rig(tmp_path / name, {"maxFilesPerTrigger": "1"}, SECOND)
        with Hub(rig.home, LocalExecutor(), tasks=2) as hub:
            hub.execute(rig.script({**SLIDES, **OTHERS}))
            operators, rejected = list[Any](), list[Any]()
            for file in FILES:
                rig.drop(file)
                hub.catch_up()
                assert hub.last is not None
                operators.append(dict(hub.last.operators))
                rejected.append(hub.last.rejected)
            store, manifest = hub.home.store, hub.loop.engine.manifest
            facts = Counter(
                (entry["epoch"], *sorted((query, *of) for query, of in answered(entry, store).items()))
                for _, entry in manifest.lists["results"].iterate(store.read)
            )
            seen.append((operators, rejected, facts, answers(hub, hub.run_once())))
        if name == "streamed":
            streamed = len(taken)
            assert streamed
    assert len(taken) == streamed, "nothing is taken where rows are few"
    assert seen[0] == seen[1]


def test_a_query_that_fails_while_results_are_written_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: list[set[str]]
) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"}, SECOND)
    with Hub(rig.home, LocalExecutor(), tasks=2, retries=Retries(())) as hub:
        hub.execute(rig.script(SLIDES))
        rig.drop(FILES[0])
        hub.catch_up()
        bad, original = hub.operator_and_query("slide5")[0].id, PaneStream.steps

        def refused(stream: PaneStream) -> dict[str, Step]:
            if any(query.id == bad for query in stream._queries):
                raise ValueError("not this one")
            return original(stream)

        monkeypatch.setattr(PaneStream, "steps", refused)
        for file in FILES[1:]:
            rig.drop(file)
            hub.catch_up()
        assert "not this one" in str(failed(hub)["slide5"])
        assert len(failed(hub)) == 1
        hub.run_once()
        for name in SLIDES.keys() - {"slide5"}:
            assert answer(hub, name, {}) == expected(hub.operator_and_query(name)[1], FILES, SECOND), name
        assert faults_once_tidy(hub) == []


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2)), min_size=1, max_size=12))
def test_results_are_query_by_query_in_the_order_of_instants(rows: list[tuple[int, int]]) -> None:
    numbers = np.array([3, 5, 1 << 32 | 5, 1 << 32 | 9])
    query, at = (pa.array(column, pa.int64()) for column in zip(*rows, strict=True))
    table = pa.table({"n": pa.array(range(len(rows))), AT: at, QUERY_NUMBER: query})
    made = ResultsByQuery.of(table, numbers)
    wanted = {
        index: sorted([(at, n) for n, (of, at) in enumerate(rows) if of == index])
        for index in sorted({of for of, _ in rows})
    }
    assert made.queries == [["q3", "q5", "q5.inner", "q9.inner"][index] for index in wanted]
    assert made.numbers.tolist() == numbers[list(wanted)].tolist()
    tables = sections_of(made).tables().values()
    of_query = [(part[AT].to_pylist(), part["n"].to_pylist()) for part in tables]
    assert of_query == [([at for at, _ in own], [n for _, n in own]) for own in wanted.values()]
    assert made.rows.tolist() == [len(own) for own in wanted.values()]
    assert made.first.tolist() == [own[0][0] for own in wanted.values()]
    assert made.last.tolist() == [own[-1][0] for own in wanted.values()]


def test_rows_that_were_taken_are_counted_by_query() -> None:
    def portion(*numbers: int) -> ResultsByQuery:
        table = pa.table({AT: pa.array([0] * len(numbers)), QUERY_NUMBER: pa.array(numbers)})
        return ResultsByQuery.of(table, np.arange(10))

    made = [portion(2, 2, 7), portion(4, 4, 4)]
    stream = SimpleNamespace(portions=lambda: iter(made), steps=dict)
    cohort = Cohort((), np.array([2, 4, 5, 7]))
    results = ResultStream.of("state", cohort, stream, (9, 8, 7, 6))  # type: ignore[arg-type]
    assert list(results.portions(Ledger())) == made
    assert results.left() == ({}, (9, 8, 7, 6), [2, 3, 0, 1])
