"""State that outgrows its budget: what is counted, what is given up first, and that no answer changes (PSoup's order of degradation)."""

from __future__ import annotations

from pathlib import Path

from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.hub.state_budget import LESS, StateBudget
from tests.laws.test_materialize import invoked, meant
from tests.runtime.rig import Rig, cut, faults_once_tidy, made_rows

FILES = cut(made_rows(19, 300), *range(15, 300, 15))
WINDOW = "BEGIN NOW - INTERVAL 1 HOUR END NOW"
TEXTS = {
    "light": f"SELECT k, x FROM s WHERE x > 8 {WINDOW}",
    "heavy": f"SELECT k, g, x, y FROM s WHERE x > -5 {WINDOW}",
    "grouped": f"SELECT k, COUNT(*) AS n, SUM(x) AS total FROM s WHERE x > 0 {WINDOW} GROUP BY k",
}
OTHERS = {
    "slides": "SELECT k, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k",
    "joined": "SELECT a.x, b.y FROM s a, s b WHERE a.k = b.k AND a.x = 8 AND b.x = 9"
    " BEGIN NOW - INTERVAL 2 SECONDS END NOW - INTERVAL 1 SECOND",
}


def modes(hub: Hub) -> dict[str, str | None]:
    return {name: hub.catalog.require_query(name).definition.materialize for name in TEXTS}


def lived(rig: Rig, limit: int | None) -> tuple[Hub, StateBudget | None]:
    hub = open_hub(rig.home, local=True, tasks=2)
    budget = StateBudget(hub, limit) if limit is not None else None
    if budget is not None:
        hub.on_epoch(budget.saw)
    hub.execute(rig.script({}))
    hub.loop.engine.housekeeping.every = 1
    for name, text in TEXTS.items():
        hub.execute(f"CREATE QUERY {name} OPTIONS (materialize 'complete') AS {text}")
    for name, text in OTHERS.items():
        hub.execute(f"CREATE QUERY {name} AS {text}")
    for count, file in enumerate(FILES, 1):
        rig.drop(file)
        hub.catch_up()
        for name in TEXTS if count % 4 == 0 else ():
            assert invoked(hub, name) == meant(hub, name, FILES[:count], 0), (name, count)
    return hub, budget


def test_the_bytes_that_are_reported_are_those_of_the_files(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    rig.drop(*cut(made_rows(3, 9000), 4000))
    with rig.hub(2, {**TEXTS, **OTHERS}) as hub:
        for name, text in TEXTS.items():
            hub.execute(f"CREATE QUERY whole_{name} OPTIONS (materialize 'complete') AS {text}")
        hub.catch_up()
        runs = [run.name for run in hub.home.latest().state]
        state_bytes = hub.status()["state_bytes"]
        assert state_bytes == sum((hub.path / name).stat().st_size for name in runs) > 100_000
        of_each = [counters["state_bytes"] for counters in hub.status()["last_epoch"]["work"].values()]
        assert 0.9 * state_bytes < sum(of_each) <= state_bytes  # the rest are the containers' own headers


def test_the_whole_answers_go_first_the_heaviest_before_the_others_and_then_the_selections(
    tmp_path: Path,
) -> None:
    free, _ = lived(Rig(tmp_path / "free", {"maxFilesPerTrigger": "1"}), None)
    with free:
        needed = free.status()["state_bytes"]
        assert set(modes(free).values()) == {"complete"}
    hub, budget = lived(Rig(tmp_path / "tight", {"maxFilesPerTrigger": "1"}), needed // 3)
    with hub:
        assert budget is not None
        assert budget.steps
        assert budget.steps[0].query != "light"
        assert all(step.state_bytes > needed // 3 for step in budget.steps)
        order = [step.materialize for step in budget.steps]
        assert order == sorted(order, key=list(LESS.values()).index)
        assert hub.status()["state_bytes"] < needed
        assert (
            "materialize partial" in hub.execute("EXPLAIN QUERY heavy")[0].message
            or modes(hub)["heavy"] == "none"
        )
        assert hub.catalog.require_query("slides").definition.materialize is None
        assert faults_once_tidy(hub) == []


def test_without_any_budget_at_all_everything_is_given_up_that_can_be_and_then_it_rests(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    hub, budget = lived(rig, 0)
    with hub:
        assert budget is not None
        assert set(modes(hub).values()) == {"none"}
        assert len(budget.steps) == 2 * len(TEXTS)
        position = hub.catalog.position
        rig.drop(made_rows(20, 5))
        hub.catch_up()
        assert hub.catalog.position == position


def test_a_query_whose_changes_a_client_counts_keeps_its_answer(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {"maxFilesPerTrigger": "1"})
    with rig.hub(2, {}) as hub:
        for name in ("heavy", "light"):
            hub.execute(f"CREATE QUERY {name} OPTIONS (materialize 'complete') AS {TEXTS[name]}")
        rig.drop(*FILES[:2])
        hub.catch_up()
        client = hub.query("heavy").client("me")
        delivery = client.fetch()
        assert delivery is not None
        client.acknowledge(delivery)
    with open_hub(rig.home, local=True, state_bytes=0) as hub:
        client = hub.query("heavy").client("me")
        for file in FILES[2:14]:
            rig.drop(file)
            hub.catch_up()
        assert hub.catalog.require_query("heavy").definition.materialize == "complete"
        assert hub.catalog.require_query("light").definition.materialize == "none"
        assert sum(pending.rows.num_rows for pending in client.pending()) > 0
