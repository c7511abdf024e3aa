"""Statements during an epoch under way: new queries do not wait for its end, and others wait for one epoch, not for several."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan import epoch_planner
from headrace.runtime.plan.plan_files import load_plan
from tests.runtime.delivery.actions.receiving import until
from tests.runtime.epoch.test_trigger import LONG, Held, opened

STREAM = "CREATE STREAM p (k STRING, v BIGINT) USING push;"
FIRST = "CREATE QUERY first AS SELECT v FROM p;"
OVER = "SELECT SUM(v) AS total FROM first"
JOINS = "".join(
    f"CREATE QUERY j{n} AS SELECT a.v FROM p a [RANGE 1 MINUTE], p b [RANGE 1 MINUTE] WHERE a.k = b.k AND a.v > {n};"
    for n in range(3)
)


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def hub(tmp_path: Path, held: Held) -> Iterator[Hub]:
    """A hub in the middle of an epoch."""
    with opened(tmp_path, held) as hub:
        hub.execute(STREAM + FIRST)
        with hub.running():
            hub.push("p", [{"k": "a", "v": 1}])
            assert held.began.acquire(timeout=LONG)
            yield hub
            held.released.release(100)


def answered(hub: Hub, name: str, count: int) -> None:
    until(lambda: hub.query(name).history().num_rows == count)


def test_a_new_query_is_durable_and_known_while_an_epoch_runs(hub: Hub, held: Held) -> None:
    before = hub.loop.engine.published.epoch
    with ThreadPoolExecutor(1) as pool:
        pool.submit(hub.register, "SELECT v + 1 AS w FROM p", "later").result(LONG)
        pool.submit(hub.register_many, {"few": "SELECT v FROM p WHERE v > 1", "on": OVER}).result(LONG)
        pool.submit(hub.execute_or_refuse, JOINS).result(LONG)
    assert hub.loop.engine.published.epoch == before
    assert set(hub.catalog.queries) == {"first", "later", "few", "on", "j0", "j1", "j2"}
    assert hub.query("later").schema.names == ("w",)
    assert hub.plan == epoch_planner.make_plan(hub.catalog)
    assert set(hub.loop.engine.plan.operators) == {hub.catalog.require_query("first").operator_id}
    held.released.release(100)
    hub.push("p", [{"k": "a", "v": 2}])
    answered(hub, "first", 2)
    answered(hub, "later", 2)
    answered(hub, "few", 1)
    until(lambda: hub.query("j1").invoke().to_pylist() == [{"v": 2}] * 2)
    assert hub.query("on").invoke().to_pylist() == [{"total": 3}]
    hub.stop()
    assert hub.loop.engine.plan == epoch_planner.make_plan(hub.catalog)
    manifest = hub.home.latest()
    assert load_plan(hub.home.store, manifest.plan) == hub.loop.engine.plan
    assert manifest.querylog == hub.catalog.position


def test_the_epoch_under_way_has_the_plan_that_it_began_with(hub: Hub, held: Held) -> None:
    """What its manifest names is what it ran: a kill after it leaves the new query to the next epoch."""
    before = hub.catalog.position
    hub.register("SELECT v FROM p WHERE v > 0", "later")
    with hub.loop._turn:
        held.released.release()
        until(lambda: hub.loop.engine.published.epoch and hub.query("first").history().num_rows == 1)
        manifest = hub.home.latest()
        assert manifest.querylog == before
        assert list(load_plan(hub.home.store, manifest.plan).operators) == list(manifest.operators)
        assert hub.catalog.require_query("later").operator_id not in manifest.operators
    held.released.release(100)
    answered(hub, "later", 1)


def test_a_query_from_now_begins_after_the_epoch_under_way(hub: Hub, held: Held) -> None:
    hub.register("SELECT v FROM p", "now", from_now=True)
    hub.push("p", [{"k": "a", "v": 2}])
    held.released.release(100)
    answered(hub, "now", 1)
    assert hub.query("now").history().to_pylist() == [{"v": 2}]


def test_a_change_waits_for_one_epoch_and_not_for_the_next(hub: Hub, held: Held) -> None:
    """The thread would take its lock again at once, as more rows wait."""
    with ThreadPoolExecutor(1) as pool:
        dropped = pool.submit(hub.drop_query, "first")
        until(hub.loop._turn.locked)
        hub.push("p", [{"k": "a", "v": 2}])
        held.released.release()
        dropped.result(LONG)
        assert not hub.catalog.queries


def test_the_thread_begins_no_epoch_while_a_change_wants_the_lock(hub: Hub, held: Held) -> None:
    with hub.loop._turn:
        hub.push("p", [{"k": "a", "v": 2}])
        held.released.release()
        answered(hub, "first", 1)
        assert not held.began.acquire(timeout=0.3)
    assert held.began.acquire(timeout=LONG)


def test_a_new_query_wakes_a_thread_that_has_nothing_to_do(tmp_path: Path) -> None:
    """It was about to wait when the query came, and had read the log before."""
    with opened(tmp_path) as hub, ThreadPoolExecutor(1) as pool:
        hub.execute(STREAM + FIRST)
        with hub.running():
            until(
                lambda: (
                    hub.home.latest().querylog == hub.catalog.position
                    and not hub.loop.engine.intake.news.is_set()
                )
            )
            with hub.loop.lock:
                pool.submit(hub.register, "SELECT v FROM p WHERE v > 0", "later").result(LONG)
            until(lambda: hub.home.latest().querylog == hub.catalog.position)


@pytest.mark.parametrize(
    "change",
    [
        "CREATE OR REPLACE QUERY first AS SELECT v + 1 AS v FROM p",
        "PAUSE QUERY first",
        "ALTER QUERY first SET (owner 'ana')",
        "CREATE STREAM other (v BIGINT) USING push",
    ],
)
def test_what_changes_something_waits_for_the_epoch(hub: Hub, held: Held, change: str) -> None:
    catalog = hub.catalog
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(hub.execute, change)
        until(hub.loop._turn.locked)
        assert hub.catalog is catalog
        held.released.release(100)
        done.result(LONG)
        assert hub.catalog is not catalog
