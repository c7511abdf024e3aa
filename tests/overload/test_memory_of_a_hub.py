"""The memory budget of a hub: the files of state show that what runs never uses more; queries that do not pay answer as without a
budget, and those that paid do so once there is room.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.main import main
from headrace.errors import UserError
from headrace.operators.families.family import state_name
from headrace.overload.memory import CALM
from headrace.runtime.epoch.engine import Engine
from headrace.runtime.home.home import Home
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.plan import derived_streams
from headrace.runtime.plan.adaptive.overload_control import chosen_shares, epoch_rows
from headrace.store.files.container import Container
from headrace.store.logs.manifest import Manifest
from headrace.time import SECOND
from tests.examples import examples
from tests.runtime.rig import answer

STREAM = "CREATE STREAM s (at TIMESTAMP, k BIGINT, v BIGINT) USING push TIMESTAMP BY at"
QUERIES = {
    "wide": "SELECT k, SUM(v) AS total FROM s [RANGE 600 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "few": "SELECT v, COUNT(*) AS n FROM s [RANGE 20 SECONDS SLIDE 2 SECONDS] GROUP BY v",
    "rows": "SELECT k, v FROM s [RANGE 30 SECONDS]",
    "pairs": "SELECT a.k, b.v FROM s [RANGE 10 SECONDS] AS a, s [RANGE 10 SECONDS] AS b WHERE a.k = b.k",
    "near": "SELECT APPROX_COUNT(*) AS n FROM s [RANGE 60 SECONDS SLIDE 2 SECONDS]",
    "last": "SELECT k, v FROM s [ROWS 50]",
}


def rows(first: int, count: int, keys: int = 10_000) -> pa.Table:
    """Half a second between two rows."""
    number = np.arange(first, first + count)
    at = pa.array(number * (SECOND // 2)).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"at": at, "k": number * 7919 % keys, "v": number % 5})


def used(hub: Hub) -> dict[str, int]:
    """By query that runs, the bytes of its states in the files: of what several share, equal parts."""
    catalog, plan, sizes = hub.catalog, hub.loop.engine.plan, dict[str, int]()
    for run in hub.home.latest().state:
        for section, table in Container.open(hub.home.store.map(run.name)).tables().items():
            state = section.partition("/")[0]
            sizes[state] = sizes.get(state, 0) + table.nbytes
    found: dict[str, int] = {}
    for operator in plan.operators.values():
        sharing = [other for other in plan.operators.values() if state_name(other) == state_name(operator)]
        part = sizes.get(state_name(operator), 0) // len(sharing)
        for query in catalog.queries.values():
            own = query.operator_id == derived_streams.owner_of(operator.id)
            if (own or query.definition.join == operator.id) and not query.definition.paused:
                found[query.definition.name] = found.get(query.definition.name, 0) + part
    return found


def suspended(hub: Hub) -> dict[str, str]:
    return dict(hub.status()["failed"])


def run(hub: Hub, counts: Sequence[int]) -> int:
    """Push so many rows in each epoch; returns how many there are."""
    first = 0
    for count in counts:
        hub.push("s", rows(first, count))
        hub.catch_up()
        first += count
    return first


def test_the_query_that_uses_most_is_suspended_with_the_reason_and_runs_again_when_there_is_room(
    tmp_path: Path,
) -> None:
    with open_hub(tmp_path / "home", local=True, memory="60 KB") as hub:
        hub.execute(STREAM)
        for name in ("wide", "few"):
            hub.register(QUERIES[name], name)
        first = 0
        while "wide" not in suspended(hub):
            assert sum(used(hub).values()) <= 60_000
            assert first < 20_000
            hub.push("s", rows(first, 100))
            hub.catch_up()
            first += 100
        reason = suspended(hub)["wide"]
        assert reason.startswith("memory: its state takes ")
        assert reason.endswith("bytes, and all queries together may take 60,000")
        status = hub.status()["memory"]
        assert (status["limit"], status["owner_limit"]) == (60_000, None)
        assert status["given_up"][0].startswith("query wide, suspended with ")
        assert status["queries"].keys() == {"few"}
        (explained,) = hub.execute("EXPLAIN QUERY wide")
        assert "memory: suspended in epoch " in explained.message
        (explained,) = hub.execute("EXPLAIN ALL")
        assert " of 60 kB, spared from 80 % on (" in explained.message
        assert "given up: query wide, suspended with" in explained.message
    with open_hub(tmp_path / "home", local=True, memory="10 MB") as hub:
        for _ in range(2 * CALM + 3):
            hub.push("s", rows(first, 1))
            hub.catch_up()
            first += 1
        assert not suspended(hub)
        assert hub.status()["memory"]["given_up"] == []
        found = {name: answer(hub, name) for name in ("wide", "few")}
    with open_hub(tmp_path / "other", local=True) as hub:
        hub.execute(STREAM)
        for name in ("wide", "few"):
            hub.register(QUERIES[name], name)
        run(hub, [first])
        assert found == {name: answer(hub, name) for name in found}
        assert hub.status()["memory"] is None


def test_an_owner_s_budget_is_paid_by_that_owner_s_queries(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True, owner_memory=40_000) as hub:
        hub.execute(STREAM)
        hub.register(QUERIES["wide"], "hers", owner="Ana")
        hub.register(QUERIES["wide"].replace("600", "700"), "free")
        run(hub, [500, 500, 500, 500])
        assert suspended(hub).keys() == {"hers"}
        assert "the queries of 'ana' may take 40,000" in suspended(hub)["hers"]
        assert hub.status()["memory"]["owners"] == {}


def test_a_user_may_resume_a_suspended_query_and_it_counts_again(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True, memory=20_000) as hub:
        hub.execute(STREAM)
        hub.register(QUERIES["wide"], "wide")
        run(hub, [1000])
        assert suspended(hub).keys() == {"wide"}
        hub.execute("RESUME QUERY wide")
        hub.push("s", rows(1000, 10))
        hub.catch_up()
        assert suspended(hub).keys() == {"wide"}
        assert any("query wide" in line for line in hub.status()["memory"]["given_up"])
        hub.execute("DROP QUERY wide")
        hub.push("s", rows(1010, 10))
        hub.catch_up()
        assert not any("query" in line for line in hub.status()["memory"]["given_up"])


@pytest.mark.parametrize("pause", ["PAUSE QUERY wide", "PAUSE QUERIES LIKE 'w%'"])
def test_a_suspended_query_that_a_user_pauses_stays_paused_when_there_is_room(
    tmp_path: Path, pause: str
) -> None:
    with open_hub(tmp_path / "home", local=True, memory="60 KB") as hub:
        hub.execute(STREAM)
        hub.register(QUERIES["wide"], "wide")
        first = run(hub, [400] * 12)
        assert "wide" in suspended(hub)
        hub.execute(pause)
        assert hub.catalog.require_query("wide").definition.state == "paused"
    with open_hub(tmp_path / "home", local=True, memory="10 MB") as hub:
        for number in range(2 * CALM + 3):
            hub.push("s", rows(first + number, 1))
            hub.catch_up()
        assert hub.catalog.require_query("wide").definition.state == "paused"
        assert hub.status()["memory"]["given_up"] == []
        hub.execute("RESUME QUERY wide")
        hub.catch_up()
        assert hub.catalog.require_query("wide").definition.state == "live"


def test_what_a_user_has_paused_does_not_count(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True, memory=10**6) as hub:
        hub.execute(STREAM)
        for name in ("wide", "few"):
            hub.register(QUERIES[name], name)
        run(hub, [500])
        both = hub.status()["memory"]
        assert both["queries"] == pytest.approx(used(hub))
        hub.execute("PAUSE QUERY wide")
        hub.push("s", rows(500, 1))
        hub.catch_up()
        one = hub.status()["memory"]
        assert one["queries"].keys() == {"few"}
        assert one["used"] < both["used"] / 2


QOS = " WITH SHEDDING WITH QOS (loss (1 AT 0 PERCENT, 0.9 AT 60 PERCENT, 0.2 AT 95 PERCENT))"


def test_a_query_that_allows_loss_is_sampled_before_any_other_pays(tmp_path: Path) -> None:
    text = "SELECT k, COUNT(*) AS n FROM s [RANGE 100 SECONDS SLIDE 2 SECONDS] GROUP BY k" + QOS
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(STREAM)
        hub.register(text, "lossy")
        hub.register(QUERIES["few"], "few")
        run(hub, [100] * 30)
        whole = used(hub)["lossy"]
        exact = answer(hub, "few")
    with open_hub(tmp_path / "home2", local=True, memory=whole) as hub:
        hub.execute(STREAM)
        hub.register(text, "lossy")
        hub.register(QUERIES["few"], "few")
        first = run(hub, [100] * 30)
        assert not suspended(hub)
        shares = chosen_shares(hub.home.latest())
        assert [len(seen) for seen in shares.values()] == [1]
        assert 0.03 < min(shares.values())[0] < 1
        (explained,) = hub.execute("EXPLAIN QUERY lossy")
        assert "memory: answered from " in explained.message
        assert sum(used(hub).values()) <= whole
        assert answer(hub, "few") == exact
    with open_hub(
        tmp_path / "home2", local=True, memory=whole
    ) as hub:  # the samples are facts of the manifest
        assert chosen_shares(hub.home.latest()) == shares
    with open_hub(tmp_path / "home2", local=True, memory=100 * whole) as hub:
        for number in range(20 * CALM):
            hub.push("s", rows(first + number, 1))
            hub.catch_up()
        assert not chosen_shares(hub.home.latest())


def test_large_epochs_are_cut_while_memory_is_short(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True, memory=30_000) as hub:
        hub.execute(STREAM)
        hub.register(QUERIES["few"], "few")
        run(hub, [2000])  # 48 kB of rows
        most = epoch_rows(hub.home.latest())
        assert most is not None
        assert most * 24 <= 30_000 / 8 + 24
        assert hub.status()["memory"]["kinds"]["rows"] <= 30_000
        assert hub.status()["memory"]["given_up"] == [f"epochs of more than {most:,} rows"]


@pytest.mark.parametrize("size", ["0", "many", "1 PB"])
def test_a_size_that_is_none_is_refused(tmp_path: Path, size: str) -> None:
    with pytest.raises(UserError, match="is no size of memory"):
        open_hub(tmp_path / "home", local=True, memory=size)
    assert not (tmp_path / "home").exists()


@examples(8)
@given(data=st.data())
def test_what_runs_is_within_the_budget_after_every_epoch_and_answers_as_without_one(
    data: st.DataObject,
) -> None:
    chosen = data.draw(st.lists(st.sampled_from(sorted(QUERIES)), min_size=1, unique=True), "queries")
    counts = data.draw(st.lists(st.integers(0, 150), min_size=1, max_size=8), "rows of epochs")
    limit = data.draw(st.integers(500, 60_000), "limit")
    restarts = data.draw(st.sets(st.integers(1, len(counts))), "restarts")
    with tempfile.TemporaryDirectory() as folder:
        exact = _answers(Path(folder) / "exact", chosen, counts)
        home = Path(folder) / "home"
        hub, first = open_hub(home, local=True, memory=limit), 0
        try:
            _begin(hub, chosen)
            for number, count in enumerate(counts):
                if number in restarts:
                    hub.close()
                    hub = open_hub(home, local=True, memory=limit)
                if count:
                    hub.push("s", rows(first, count))
                hub.catch_up()
                first += count
                assert sum(used(hub).values()) <= limit
            paid = suspended(hub)
            found = {name: answer(hub, name) for name in chosen if name not in paid}
            assert found == {name: exact[name] for name in found}
            hub.close()
            hub = open_hub(home, local=True)
            for _ in range(len(chosen) + 3):  # a tick for each statement
                hub.push("s", rows(first, 1))
                hub.catch_up()
                first += 1
            assert not suspended(hub)
            assert _found(hub, chosen) == _answers(Path(folder) / "again", chosen, [first])
        finally:
            hub.close()


@examples(6)
@given(data=st.data())
def test_every_owner_is_within_its_budget_after_every_epoch_and_pays_for_itself(data: st.DataObject) -> None:
    """By the bytes of the files; queries of others, and those without an owner, answer as without a budget."""
    names = data.draw(
        st.lists(st.sampled_from(sorted(QUERIES)), min_size=2, max_size=4, unique=True), "queries"
    )
    owners = {name: data.draw(st.sampled_from(("ana", "ben", "")), f"owner of {name}") for name in names}
    counts = data.draw(st.lists(st.integers(1, 150), min_size=1, max_size=8), "rows of epochs")
    limit, first = data.draw(st.integers(500, 20_000), "limit"), 0
    with tempfile.TemporaryDirectory() as folder:
        exact = _answers(Path(folder) / "exact", names, counts)
        with open_hub(Path(folder) / "home", local=True, owner_memory=limit) as hub:
            hub.execute(STREAM)
            for name in names:
                hub.register(QUERIES[name], name, owner=owners[name] or None)
            for count in counts:
                hub.push("s", rows(first, count))
                hub.catch_up()
                first += count
                sizes = used(hub)
                for owner in ("ana", "ben"):
                    assert sum(size for name, size in sizes.items() if owners[name] == owner) <= limit
            paid = suspended(hub)
            assert all(owners[name] for name in paid)
            assert all(f"the queries of '{owners[name]}' may take" in reason for name, reason in paid.items())
            found = {name: answer(hub, name) for name in names if name not in paid}
            assert found == {name: exact[name] for name in found}


def _begin(hub: Hub, chosen: Sequence[str]) -> None:
    hub.execute(STREAM)
    for name in chosen:
        hub.register(QUERIES[name], name)


def _answers(home: Path, chosen: Sequence[str], counts: Sequence[int]) -> Mapping[str, list[Any]]:
    with open_hub(home, local=True) as hub:
        _begin(hub, chosen)
        run(hub, [count for count in counts if count])
        return _found(hub, chosen)


def _found(hub: Hub, chosen: Sequence[str]) -> Mapping[str, list[Any]]:
    return {name: answer(hub, name) for name in chosen}


def test_a_suspension_that_a_kill_has_prevented_is_decided_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest of the epoch is published, its entry of the query log is not written."""
    hub = open_hub(tmp_path / "home", local=True, memory=20_000)
    hub.execute(STREAM)
    hub.register(QUERIES["wide"], "wide")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    hub.push("s", rows(0, 1000))
    monkeypatch.setattr(Engine, "log", killed)
    with pytest.raises(KeyboardInterrupt):
        hub.catch_up()
    monkeypatch.undo()
    hub.close()
    with open_hub(tmp_path / "home", local=True, memory=20_000) as hub:
        assert suspended(hub).keys() == {"wide"}
        hub.push("s", rows(1000, 10))
        hub.catch_up()
        assert suspended(hub).keys() == {"wide"}
        hub.execute("RESUME QUERY wide")
    with open_hub(tmp_path / "home", local=True, memory=20_000) as hub:
        assert not suspended(hub), "a statement that came later holds"
        hub.push("s", rows(1010, 10))
        hub.catch_up()
        assert suspended(hub).keys() == {"wide"}


def test_with_another_budget_the_first_epoch_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = open_hub(tmp_path / "home", local=True, memory=20_000)
    hub.execute(STREAM)
    hub.register(QUERIES["wide"], "wide")
    hub.push("s", rows(0, 1000))
    monkeypatch.setattr(Engine, "log", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        hub.catch_up()
    monkeypatch.undo()
    hub.close()
    with open_hub(tmp_path / "home", local=True, memory="10 MB") as hub:
        assert not suspended(hub)
        hub.push("s", rows(1000, 10))
        hub.catch_up()
        assert not suspended(hub)


def test_of_the_shares_for_time_and_for_memory_the_lesser_holds() -> None:
    facts = {
        "overload": {"shares": {"a": [0.5, 1.0], "b": [0.25]}, "epoch_rows": 70},
        "memory": {"shares": {"a": [0.75, 0.5], "c": [0.125]}, "epoch_rows": 50},
    }
    manifest = Manifest(1, 1, facts=facts)
    assert chosen_shares(manifest) == {"a": (0.5, 0.5), "b": (0.25,), "c": (0.125,)}
    assert epoch_rows(manifest) == 50
    assert epoch_rows(Manifest(1, 1)) is None


def test_the_command_gives_the_budget_to_the_hub_of_a_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.sql"
    script.write_text(f"{STREAM}; CREATE QUERY q AS {QUERIES['few']}; EXPLAIN ALL;")
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(STREAM)
        hub.push("s", rows(0, 100))
    options = ["run", str(script), "--once", "--home", str(tmp_path / "home"), "--engine", "local"]
    assert main([*options, "--memory", "many"]) == 2
    assert "'many' is no size of memory" in capsys.readouterr().err
    assert main([*options, "--memory", "3 MB"]) == 0
    assert Home.at(tmp_path / "home").latest().facts["memory"]["limits"] == [3_000_000, None]
