"""The first epoch after queries were registered, or a home was opened, visits the states that have rows, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.suite.standing import Clocked, queries_of, script, watchers
from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub

READ = ("s", "u")


def opened(path: Path) -> Hub:
    return Hub(path / "home", LocalExecutor(), tasks=2)


def visited(clocked: Clocked) -> set[str]:
    """The operators that an epoch visits in which no query gets a row."""
    clocked.push(1, "quiet")
    seen = clocked.hub.loop.step()
    assert seen is not None
    return set(seen.operators)


def names(hub: Hub, queries: Sequence[str]) -> set[str]:
    return {hub.catalog.require_query(query).operator_id for query in queries}


@pytest.mark.parametrize("count", [30, 300])
def test_queries_that_never_had_a_row_are_not_visited(tmp_path: Path, count: int) -> None:
    with opened(tmp_path) as hub:
        hub.execute(script(queries_of("mixed", count)))
        clocked = Clocked(hub)
        assert visited(clocked) == set()
        clocked.push(10, *READ)
        clocked.settle()
        assert hub.last is not None
        for number, text in enumerate(watchers(count)):
            hub.register(text, f"w{number}")
        new = names(hub, [f"w{number}" for number in range(count)])
        assert not visited(clocked) & new


def test_a_home_that_is_opened_visits_what_it_has_stored(tmp_path: Path) -> None:
    with opened(tmp_path) as hub:
        hub.execute(script([*queries_of("mixed", 10), *watchers(10)]))
        clocked = Clocked(hub)
        clocked.push(10, *READ)
        clocked.settle()
        without_rows = names(hub, [f"q{number}" for number in range(10, 20)])
        with_rows = names(hub, ["q0", "q1"])  # windows of time, which are open
        second = clocked.second
    with opened(tmp_path) as hub:
        states = visited(Clocked(hub, second))
        assert with_rows <= states
        assert not without_rows & states
