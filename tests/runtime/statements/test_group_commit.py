"""Changes of many threads are one append to the log, and each is all or nothing, as if it were alone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError, StoreError, UserError
from headrace.runtime.hub.hub import Hub
from headrace.runtime.hub.opening import open_hub
from tests.runtime.delivery.actions.receiving import STREAM, until

GOOD = "CREATE QUERY q{0} AS SELECT v FROM s WHERE v > {0}; CREATE QUERY r{0} AS SELECT v FROM q{0};"
BAD = "CREATE QUERY b{0} AS SELECT v FROM s; CREATE QUERY c{0} AS SELECT nothing FROM s;"


def appends(hub: Hub) -> int:
    return len(list((hub.path / "querylog").iterdir()))


def together(hub: Hub, scripts: list[str]) -> list[Any]:
    """What each script answers or raises, when all wait for the one lock, in this order."""

    def run(script: str) -> Any:
        try:
            return [outcome.message for outcome in hub.execute_or_refuse(script)]
        except HeadraceError as error:
            return error

    with ThreadPoolExecutor(len(scripts)) as threads:
        with hub._statements._one_script:
            answers = []
            for (
                script
            ) in scripts:  # one after the other: threads do not arrive in the order in which they begin
                answers.append(threads.submit(run, script))
                until(lambda: len(hub._statements._group._arrived) == len(answers))
        return [answer.result() for answer in answers]


def test_scripts_that_wait_are_one_append_and_a_mistake_is_that_of_its_own_script(tmp_path: Path) -> None:
    scripts = [(BAD if number % 3 == 0 else GOOD).format(number) for number in range(12)]
    with open_hub(tmp_path, local=True) as hub:
        hub.execute(STREAM)
        before = appends(hub)
        answers = together(hub, scripts)
        assert appends(hub) == before + 1
        for number, answer in enumerate(answers):
            if number % 3 == 0:
                assert isinstance(answer, UserError)
                assert "there is no column 'nothing'" in str(answer)
            else:
                assert answer == [f"query q{number} registered", f"query r{number} registered"]
        names = {f"{kind}{number}" for number in range(12) if number % 3 for kind in "qr"}
        assert {query.definition.name for query in hub.catalog.queries.values()} == names
        hub.push("s", [{"k": "a", "v": 100}])
        hub.loop.drain()
        assert hub.query("r1").history().num_rows == 1
    with open_hub(tmp_path, local=True) as hub:
        assert {query.definition.name for query in hub.catalog.queries.values()} == names


def test_a_script_sees_those_before_it_and_not_what_a_mistake_has_undone(tmp_path: Path) -> None:
    with open_hub(tmp_path, local=True) as hub:
        hub.execute(STREAM)
        read = "CREATE QUERY over{0} AS SELECT v FROM {1}"
        scripts = [GOOD.format(0), BAD.format(1), read.format(0, "q0"), read.format(1, "b1"), "DROP QUERY q0"]
        good, bad, over, lost, dropped = together(hub, scripts)
        assert good == ["query q0 registered", "query r0 registered"]
        assert "there is no column" in str(bad)
        assert over == ["query over0 registered"]
        assert "there is no stream, relation or query 'b1'" in str(lost)
        assert "is read by r0, over0" in str(dropped)


def test_a_join_of_a_script_that_was_undone_is_not_the_first_of_its_graph(tmp_path: Path) -> None:
    joined = "CREATE QUERY j{0} AS SELECT s.v FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE], t [RANGE 1 MINUTE SLIDE 1 MINUTE] WHERE s.k = t.k AND s.v > {0};"
    with open_hub(tmp_path, local=True) as hub:
        hub.execute(STREAM + STREAM.replace("STREAM s", "STREAM t"))
        bad = joined.format(0) + BAD.format(0)
        _, first, second = together(hub, [bad, joined.format(1), joined.format(2)])
        assert (first, second) == (["query j1 registered"], ["query j2 registered"])
        joins = {query.definition.name: query.definition.join for query in hub.catalog.queries.values()}
        assert joins["j1"] == ""
        assert joins["j2"] != ""


def test_an_append_that_fails_is_the_error_of_all_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_hub(tmp_path, local=True) as hub:
        hub.execute(STREAM + "CREATE QUERY old AS SELECT v FROM s")

        def full(*_: Any) -> None:
            raise StoreError("the disk is full", outcome="absent")

        with monkeypatch.context() as patch:
            patch.setattr("headrace.runtime.epoch.engine.Engine.log", full)
            answers = together(hub, [GOOD.format(0), BAD.format(1), GOOD.format(2)])
        assert [isinstance(answer, StoreError) for answer in answers] == [True, False, True]
        assert isinstance(answers[1], UserError)
        assert list(hub.catalog.queries) == ["old"]
        hub.drop_query("old")
        assert not hub.catalog.queries
        hub.execute_or_refuse(GOOD.format(3))
        assert list(hub.catalog.queries) == ["q3", "r3"]


def test_changes_that_have_to_wait_for_an_epoch_wait_for_it_once(tmp_path: Path) -> None:
    """All that come while the first waits for the epoch are in the append after it."""
    with open_hub(tmp_path, local=True) as hub:
        hub.execute(STREAM + "".join(f"CREATE QUERY q{n} AS SELECT v FROM s;" for n in range(20)))
        before, started = appends(hub), threading.Barrier(21)

        def drop(number: int) -> None:
            started.wait()
            hub.execute_or_refuse(f"DROP QUERY q{number}")

        with ThreadPoolExecutor(20) as threads:
            with hub.loop.lock:  # as an epoch does
                done = [threads.submit(drop, number) for number in range(20)]
                started.wait()
                until(lambda: len(hub._statements._group._arrived) >= 19)
            for future in done:
                future.result()
        assert not hub.catalog.queries
        assert appends(hub) - before == 2
