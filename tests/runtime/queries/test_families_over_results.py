"""Queries over SELECTs and memberships that differ in constants and ranges are visited together: what an epoch does for
their states hardly grows with their number.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.operators.families.numbering import id_of, is_numbered, mixed_bits, number_of
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan.epoch_planner import operator_of
from headrace.runtime.progress.plan_index import index_of
from headrace.runtime.tasks.state.run_merging import RunMerging
from headrace.runtime.tasks.state.state_task import StateTask
from headrace.time import SECOND

STREAMS = ("s", "u", "quiet")
KINDS = {
    "nested": (
        "SELECT MAX(c.n) AS n FROM (SELECT k, COUNT(*) AS n FROM s [RANGE {r} SECONDS] WHERE x > {i}"
        " GROUP BY k) AS c"
    ),
    "members": (
        "SELECT k, COUNT(*) AS n FROM s [RANGE {r} SECONDS] WHERE x > {i} AND k IN"
        " (SELECT k FROM u [RANGE {r} SECONDS]) GROUP BY k"
    ),
    "windows": (
        "SELECT c.k, SUM(c.n) AS n FROM (SELECT k, COUNT(*) AS n FROM s [RANGE {r} SECONDS SLIDE 1 SECOND]"
        " WHERE x > {i} GROUP BY k) [RANGE {r} SECONDS SLIDE 1 SECOND] AS c GROUP BY c.k"
    ),
    "pairs": "SELECT a.k, b.x FROM s [RANGE {r} SECONDS] AS a, u [ROWS {r}] AS b WHERE a.k = b.k AND a.x > {i}",
}


def rows(second: int, count: int) -> pa.Table:
    at = [second * SECOND + number * SECOND // count for number in range(count)]
    columns = {
        "k": pa.array([number % 5 for number in range(count)], pa.int64()),
        "x": pa.array(range(count), pa.int64()),
    }
    return pa.table({**columns, "at": pa.array(at, pa.timestamp("us", tz="UTC"))})


def hub_of(folder: Path, kind: str, count: int) -> Hub:
    hub = Hub(folder / f"{kind} {count}", LocalExecutor(), tasks=1)
    streams = [
        f"CREATE STREAM {name} (k BIGINT, x BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at"
        for name in STREAMS
    ]
    texts = (KINDS[kind].format(i=-1 - number, r=10 + number % 50) for number in range(count))
    queries = [f"CREATE QUERY q{number} AS {text}" for number, text in enumerate(texts)]
    hub.execute(";\n".join([*streams, *queries]) + ";")
    return hub


def push(hub: Hub, second: int, *streams: str, count: int = 10) -> None:
    for stream in streams:
        hub.push(stream, rows(second, count))
    hub.loop.drain()


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch, step: str) -> Iterator[list[int]]:
    """The calls of functions of C (numpy, Arrow) within a step of state tasks."""
    total, inner = [0], getattr(StateTask, step)

    def note(_frame: Any, event: str, _argument: Any) -> None:
        total[0] += event == "c_call"

    def profiled(*arguments: Any) -> Any:
        sys.setprofile(note)
        try:
            return inner(*arguments)
        finally:
            sys.setprofile(None)

    with monkeypatch.context() as patch:
        patch.setattr(StateTask, step, profiled)
        yield total


@contextmanager
def visits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The states that are advanced."""
    seen: list[str] = []

    def noting(inner: Callable[..., None]) -> Callable[..., None]:
        def advance(task: StateTask, first: Any, *others: Any) -> None:
            seen.append(first if isinstance(first, str) else first.id)
            inner(task, first, *others)

        return advance

    with monkeypatch.context() as patch:
        for name in ("advance", "_advance_family"):
            patch.setattr(StateTask, name, noting(getattr(StateTask, name)))
        yield seen


@pytest.mark.parametrize("kind", KINDS)
def test_ten_times_the_queries_are_as_many_visits_and_hardly_more_calls(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, calls = [], []
    for count in (10, 100):
        with hub_of(tmp_path, kind, count) as hub:
            for second in (1, 2, 3):
                push(hub, second, "s", "u")
            with visits(monkeypatch) as visited:
                push(hub, 4, "s", "u")
            seen.append(len(visited))
            with counted(monkeypatch, "advance_all") as made:
                push(hub, 5, "s", "u")
            calls.append(made[0])
    assert seen[0] == seen[1]
    assert calls[1] < 4 * calls[0]


def test_a_run_that_was_reviewed_is_not_read_again_while_its_streams_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hub_of(tmp_path, "members", 20) as hub:
        for second in range(1, 13):
            push(hub, second, "s", "u")
        for second in range(13, 26):
            push(hub, second, "quiet", count=1)
        read = []
        monkeypatch.setattr(RunMerging, "_owning", lambda _, operators: read.append(operators))
        for second in range(26, 60):
            push(hub, second, "quiet", count=1)
        assert not read
        monkeypatch.undo()
        push(hub, 60, "s", "u")


@pytest.mark.parametrize("name", ["q0", "q7", "q7.inner", "q7.inner1", "q123456789.inner2.inner.inner62"])
def test_a_number_has_one_operator(name: str) -> None:
    assert id_of(number_of(name)) == name


@pytest.mark.parametrize(
    "name", ["j7", "q7.other", "q7.inner0", "q7.inner63", "q07", "q7" + ".inner" * 6, "q1234567890"]
)
def test_an_operator_without_a_number_has_no_family(name: str) -> None:
    assert not is_numbered(name)


def test_bits_are_mixed_by_a_permutation() -> None:
    mixed = {mixed_bits(number) for number in range(10_000)}
    assert len(mixed) == 10_000
    assert all(-(1 << 63) <= bits < 1 << 63 for bits in mixed)
    assert len({bits >> 48 for bits in mixed}) > 9000


def test_readers_of_a_paused_query_wait_and_others_of_their_family_do_not(tmp_path: Path) -> None:
    answered, while_paused = [], list[list[int]]()
    for pauses in (False, True):
        with Hub(tmp_path / f"pauses {pauses}", LocalExecutor(), tasks=1) as hub:
            streams = "CREATE STREAM s (k BIGINT, x BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at"
            hub.execute(streams)
            for number in range(4):
                below = (
                    "SELECT k, COUNT(*) AS n FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS]"
                    f" WHERE x > {number} GROUP BY k"
                )
                hub.execute(f"CREATE QUERY below{number} AS {below}")
                window = "[RANGE 8 SECONDS SLIDE 4 SECONDS]"
                above = f"SELECT b.k, SUM(b.n) AS n FROM below{number} {window} AS b GROUP BY b.k"
                hub.execute(f"CREATE QUERY above{number} AS {above}")
            keys = {hub.operator_and_query(f"above{number}")[0].family_key for number in range(4)}
            assert len(keys) == 1
            for second in range(1, 40):
                if pauses and second in (9, 23):
                    hub.execute("PAUSE QUERY below0" if second == 9 else "RESUME QUERY below0")
                push(
                    hub, second, "s", count=10 if second % 12 < 5 else 1
                )  # no query takes the first row of a second
                if second == 22:
                    seen = [hub.query(f"above{number}").history().num_rows for number in range(4)]
                    while_paused.append(seen[1:])
                    assert (0 < seen[0] < seen[1]) == pauses
            hub.catch_up()
            answered.append(
                [sorted(hub.query(f"above{n}").history().to_pylist(), key=repr) for n in range(4)]
            )
    assert answered[0] == answered[1]
    assert while_paused[0] == while_paused[1]


def test_a_select_in_from_is_not_of_the_family_of_its_text_as_a_query(tmp_path: Path) -> None:
    """Their readers have another NOW: see `logged`."""
    text = "SELECT k, COUNT(*) AS n FROM s [RANGE 5 SECONDS] GROUP BY k"
    with hub_of(tmp_path, "nested", 2) as hub:
        hub.execute(f"CREATE QUERY plain AS {text}")
        operators = hub.loop.engine.plan.operators
        plain = hub.operator_and_query("plain")[0].family_key
        inner = {operator.family_key for name, operator in operators.items() if ".inner" in name}
        assert len(inner) == 1
        assert plain not in inner | {None}


@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_that_is_planned_alone_has_the_state_that_it_has_in_the_plan(
    kind: str, tmp_path: Path
) -> None:
    with hub_of(tmp_path, kind, 2) as hub:
        hub.execute(
            "CREATE QUERY below AS SELECT k, COUNT(*) AS n FROM s [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY k;"
            "CREATE QUERY above AS SELECT k, SUM(n) AS n FROM below [RANGE 4 SECONDS SLIDE 1 SECOND] GROUP BY k;"
            "CREATE QUERY top AS SELECT k, MAX(n) AS n FROM above [RANGE 4 SECONDS SLIDE 1 SECOND] GROUP BY k;"
        )
        planned = hub.loop.engine.plan.operators
        for query in hub.catalog.queries.values():
            assert operator_of(hub.catalog, query) == planned[query.operator_id]


def test_results_are_driven_alike_if_the_same_distance_is_between_them_and_their_sources(
    tmp_path: Path,
) -> None:
    with hub_of(tmp_path, "nested", 2) as hub:
        for name, window in (("rows", "ROWS 2 SLIDE 2"), ("time", "RANGE 2 SECONDS SLIDE 1 SECOND")):
            hub.execute(
                f"CREATE QUERY by_{name} AS SELECT SUM(x) AS n FROM s [{window}];"
                f"CREATE QUERY over_{name} AS SELECT SUM(n) AS n FROM by_{name} [RANGE 4 SECONDS SLIDE 4 SECONDS];"
            )
        index = index_of(hub.loop.engine.plan)
        over = {
            name: index.driver_of(hub.operator_and_query(name)[0].stream)
            for name in ("q0", "q1", "over_rows", "over_time")
        }
    assert over["q0"] == over["q1"]
    assert len(set(over.values())) == 3
