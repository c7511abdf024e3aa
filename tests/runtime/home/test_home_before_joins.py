"""A home of the version whose joins had two sides each (decision 31): joins of two streams continue, others are computed again."""

from __future__ import annotations

import tarfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.runtime.epoch.engine import Engine
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.home.home import Home
from headrace.runtime.home.run_cache import open_run
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan.bound_queries import bind_text
from headrace.time import now
from tests.fixtures.home_before_joins import (
    BEFORE,
    CHAINED,
    COUNTED,
    EMITTED,
    OTHERWISE,
    SLACKS,
    TWO_SIDED,
    UNREPEATABLE,
    epochs,
    push,
)
from tests.laws.two_streams import expected, opened
from tests.runtime.rig import answer

FIXTURE = Path(__file__).parents[2] / "fixtures" / "home-before-joins.tar.xz"
ROWS = epochs(BEFORE + 3)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    return str(tmp_path)


@pytest.fixture
def hub(folder: str) -> Iterator[Hub]:
    with pytest.warns(RuntimeWarning, match="earlier version"), opened(folder, 2) as hub:
        yield hub


def found(hub: Hub, name: str) -> str:
    return repr(answer(hub, name, {}))


def right(hub: Hub, text: str, count: int) -> str:
    return repr(expected(bind_text(hub.catalog, text), ROWS[:count], SLACKS))


def states(hub: Hub) -> dict[str, str]:
    (shown,) = hub.execute("SHOW QUERIES")
    assert shown.table is not None
    return {row["name"]: row["state"] for row in shown.table.to_pylist()}


def generations(hub: Hub) -> dict[str, int]:
    return {query.definition.name: query.generation for query in hub.catalog.queries.values()}


def test_joins_of_two_streams_go_on_from_their_state(hub: Hub) -> None:
    generation = generations(hub)
    before = {name: answer(hub, name, {}) for name in TWO_SIDED}
    assert all(before.values())
    push(hub, ROWS[BEFORE:])
    assert generation == generations(hub)
    assert max(generation[name] for name in TWO_SIDED) < min(generation[name] for name in OTHERWISE)
    for name, text in TWO_SIDED.items():
        assert found(hub, name) == right(hub, text, len(ROWS)), name


def test_other_joins_are_computed_again_with_what_reads_them(hub: Hub) -> None:
    hub.catch_up()
    assert states(hub)["three"] == "live"
    push(hub, ROWS[BEFORE:])
    hub.execute("RESUME QUERY paused")
    hub.catch_up()
    for name, text in (OTHERWISE | {"emitted": EMITTED}).items():
        assert found(hub, name) == right(hub, text, len(ROWS)), name
    assert found(hub, "reader") == right(hub, COUNTED.format(f"({EMITTED})"), len(ROWS))


def test_they_are_computed_again_once(folder: str) -> None:
    with pytest.warns(RuntimeWarning) as raised, opened(folder, 1) as hub:
        first = generations(hub)
    said = [str(warning.message) for warning in raised]
    again = ", ".join(OTHERWISE | CHAINED)
    assert said[0].endswith(f"planned again, and are computed from the archive: {again}")
    assert "suspended, since the archive has not all of their rows: RESUME QUERY" in said[1]
    assert said[1].endswith(": unarchived, from_now")
    assert len(said) == 2
    with warnings.catch_warnings(action="error"), opened(folder, 1) as hub:
        assert generations(hub) == first
        hub.catch_up()
        assert found(hub, "three") == right(hub, OTHERWISE["three"], BEFORE)


def test_a_driver_that_ends_after_its_takeover_leaves_it_to_the_next_one(folder: str) -> None:
    Engine(Home.at(Path(folder) / "home"), LocalExecutor(), now, 1)
    with pytest.warns(RuntimeWarning, match="earlier version"):
        hub = opened(folder, 2)
    with hub:
        push(hub, ROWS[BEFORE:])
        for name, text in {"pairs": TWO_SIDED["pairs"], "chain": OTHERWISE["chain"]}.items():
            assert found(hub, name) == right(hub, text, len(ROWS)), name


@pytest.mark.parametrize("statement", ["RESUME QUERY {}", "RESUME QUERIES WHERE name = '{}'"])
@pytest.mark.parametrize("name", UNREPEATABLE)
def test_a_join_without_an_archive_is_suspended_until_it_is_resumed(
    hub: Hub, name: str, statement: str
) -> None:
    before, generation = hub.query(name).history(), generations(hub)[name]
    assert before.num_rows > 0
    push(hub, ROWS[BEFORE : BEFORE + 1])
    assert states(hub)[name] == "failed"
    assert hub.query(name).history().equals(before)
    reason = hub.catalog.require_query(name).definition.failure
    assert reason is not None
    assert "RESUME QUERY" in reason
    hub.execute(statement.format(name))
    push(hub, ROWS[BEFORE + 1 :])
    assert states(hub)[name] == "live"
    assert generations(hub)[name] > generation
    assert name not in hub.status()["failed"]


def test_what_suspended_joins_have_stored_is_removed(hub: Hub) -> None:
    former = tuple(f"q{generations(hub)[name]}.inner/" for name in UNREPEATABLE)
    stored = {section for run in hub.home.latest().state for section in open_run(hub.home.store, run.name)}
    assert any(name.startswith("q") and ".inner/" in name for name in stored)
    assert not [name for name in stored if name.startswith(former)]
    push(hub, epochs(BEFORE + 12)[BEFORE:])  # runs of that state are merged
    assert states(hub)["pairs"] == "live"


def test_a_paused_join_stays_paused(hub: Hub) -> None:
    push(hub, ROWS[BEFORE:])
    assert states(hub)["paused"] == "paused"


def test_of_new_queries_none_is_planned_again(tmp_path: Path) -> None:
    texts: dict[str, Any] = OTHERWISE | UNREPEATABLE
    with opened(str(tmp_path), 1) as hub:
        hub.execute("CREATE STREAM a (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at")
        hub.execute("CREATE STREAM b (k STRING, v BIGINT, d DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at")
        hub.register(texts["three"], "three")
        hub.register(texts["from_now"], "from_now", from_now=True)
        hub.execute("ALTER QUERY three SET (owner 'ana')")
        first = generations(hub)
    with warnings.catch_warnings(action="error"), opened(str(tmp_path), 1) as hub:
        assert generations(hub) == first
