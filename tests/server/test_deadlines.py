"""Requests whose statements take too long: the answer states what of them is done, and what is not done then is not done later."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from headrace.errors import StoreError
from headrace.runtime.epoch.engine import Engine
from headrace.runtime.home.deadline import (
    Deadline,
    DeadlinePassed,
    change,
    held_in_time,
    limited_by,
    require_time,
)
from headrace.runtime.hub.hub import Hub
from headrace.runtime.plan.bound_queries import bind_text
from headrace.server.paging import page_of_results
from headrace.server.routes import statements
from headrace.server.security.permissions import Limits
from headrace.server.security.principal import LOCAL, OPEN
from headrace.server.security.quotas import STATEMENT_SECONDS, Quotas
from headrace.server.security.roots import Roots
from tests.runtime.delivery.actions.receiving import until
from tests.server.serving import served
from tests.server.test_faults import Listening, listening

NOTHING = "Nothing was changed."
PATIENCE = (0.3, 3, 30)
"""Seconds in which something has to begin: more on a machine that is slow now."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Listening]:
    with listening(tmp_path / "home") as running:
        yield running


@contextmanager
def in_an_epoch(hub: Hub) -> Iterator[None]:
    """A block in which an epoch is under way: what changes what it reads waits for it."""
    with hub.loop.lock:
        yield


def refused(response: httpx.Response, effect: str) -> None:
    assert response.status_code == 504, response.text
    error = response.json()["error"]
    assert error["message"].startswith("the request took longer than ")
    assert error["message"].endswith(effect)
    assert "timeout" in error["remedy"]


def queries(hub: Listening) -> set[str]:
    return {query["name"] for query in hub.client.get("/v1/queries").json()["queries"]}


def settled(hub: Listening) -> None:
    """All that an earlier request has left to threads is over: a change that needs the same locks is made."""
    assert hub.client.post("/v1/statements", content="DROP QUERY IF EXISTS nothing").status_code == 200


# -- over HTTP -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("POST", "/v1/statements", "DROP QUERY q"),
        ("POST", "/v1/statements", "DROP QUERY q; CREATE QUERY other AS SELECT v FROM s"),
        ("POST", "/v1/statements", "DROP QUERY q; SHOW QUERIES"),
        ("POST", "/v1/statements", "DROP QUERIES WHERE name LIKE 'q'"),
        ("DELETE", "/v1/queries/q", None),
    ],
)
def test_a_change_that_waits_too_long_for_an_epoch_is_never_made(
    hub: Listening, method: str, path: str, content: str | None
) -> None:
    with in_an_epoch(hub.hub):
        refused(hub.client.request(method, path, params={"timeout": 0.2}, content=content), NOTHING)
    settled(hub)
    assert queries(hub) == {"q", "total"}
    assert hub.client.request(method, path, content=content).status_code == 200
    assert "q" not in queries(hub)


NEW = "CREATE QUERY a AS SELECT v FROM s; CREATE QUERY b AS SELECT k FROM s;"
PROMISE = "PUNCTUATE s AT TIMESTAMP '2024-01-01 00:00:00';"


@pytest.mark.parametrize(
    ("script", "done", "made"),
    [
        (f"{NEW} SHOW QUERIES; DROP QUERY q; CREATE QUERY c AS SELECT v FROM s", "2 are", {"a", "b"}),
        (f"{NEW} {PROMISE} DROP QUERY q", "3 are", {"a", "b"}),
        (f"{PROMISE} DROP QUERY q", "1 is", set[str]()),
        (f"{PROMISE} SHOW STREAMS; DROP QUERY q; {NEW} {PROMISE}", "1 is", set[str]()),
        (f"SHOW STREAMS; {NEW} DROP QUERIES WHERE name LIKE 'q'", "3 are", {"a", "b"}),
        (f"SHOW STREAMS; {NEW} CREATE STREAM t (v BIGINT) USING push; SHOW STREAMS", "3 are", {"a", "b"}),
    ],
)
def test_what_is_done_before_the_time_is_over_is_stated(
    tmp_path: Path, script: str, done: str, made: set[str]
) -> None:
    """A new query and a promise do not wait for the epoch, the end of a query and a new stream do."""
    effect = f"Of its statements the first {done} done, and the others are not."
    for timeout in PATIENCE:
        with listening(tmp_path / f"home {timeout}") as hub:
            with in_an_epoch(hub.hub):
                response = hub.client.post("/v1/statements", params={"timeout": timeout}, content=script)
            if effect not in response.text and timeout < PATIENCE[-1]:
                continue  # a machine that is so slow has not done the first ones by then
            refused(response, effect)
            settled(hub)
            assert queries(hub) == {"q", "total"} | made
            return


def test_an_answer_that_is_too_late_is_not_waited_for(
    hub: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, released = list[int](), threading.Event()

    def slow(*_: Any) -> pa.Table:
        asked.append(1)
        released.wait(60)
        return pa.table({"n": pa.array([], pa.int64())})

    monkeypatch.setattr("headrace.runtime.statements.execute.answer_within", slow)
    script = "CREATE QUERY a AS SELECT v FROM s; INVOKE q; INVOKE total; DROP QUERY total"
    try:
        for timeout in PATIENCE:
            response = hub.client.post("/v1/statements", params={"timeout": timeout}, content=script)
            if asked:
                break
        refused(response, "Of its statements the first 1 is done, and the others are not.")
    finally:
        released.set()
    settled(hub)
    assert queries(hub) == {"q", "total", "a"}
    assert asked == [1], "the second is not computed any more"


@pytest.mark.parametrize(
    ("method", "path", "slow", "content"),
    [
        ("GET", "/v1/queries/q/answer", "headrace.runtime.hub.query_handle.answer_within", None),
        (
            "GET",
            "/v1/queries/q/answer?at=2024-01-01T00:00:00Z",
            "headrace.runtime.results.past_answer.answer_as_of",
            None,
        ),
        ("GET", "/v1/queries/q/results", "headrace.server.routes.queries.page_of_results", None),
        (
            "GET",
            "/v1/queries/q/timeline",
            "headrace.runtime.results.past_answer.timeline",
            None,
        ),
        ("POST", "/v1/check", "headrace.server.routes.statements.prospect", NEW),
    ],
)
def test_a_read_that_takes_too_long_is_refused_and_ends_at_its_next_part(
    hub: Listening, monkeypatch: pytest.MonkeyPatch, method: str, path: str, slow: str, content: str | None
) -> None:
    entered, released, ended = threading.Event(), threading.Event(), list[BaseException]()

    def read(*_: Any, **__: Any) -> None:
        entered.set()
        released.wait(60)
        try:
            require_time()
        except DeadlinePassed as error:
            ended.append(error)
            raise

    monkeypatch.setattr(slow, read)
    try:
        for timeout in PATIENCE:
            limited = f"{path}{'&' if '?' in path else '?'}timeout={timeout}"
            response = hub.client.request(method, limited, content=content)
            refused(response, NOTHING)
            if entered.is_set():
                break
        assert "Send it again" in response.json()["error"]["remedy"]
        assert not ended
    finally:
        released.set()
    until(lambda: ended)


def test_results_and_answers_from_the_archive_end_at_their_next_part(hub: Listening) -> None:
    """A read checks its time before each epoch of results, and before each part of the archive."""
    text = "SELECT k, v FROM s BEGIN TIMESTAMP '2020-01-01' END NOW"
    hub.hub.execute(f"CREATE QUERY asked OPTIONS (materialize 'none') AS {text}")
    assert hub.push(1).status_code == 200
    hub.until(1)
    reads = [
        lambda: hub.hub.query("asked").invoke(),
        lambda: hub.hub.query("q").invoke(),
        lambda: page_of_results(hub.hub, "q", None, None, 10).rows,
    ]
    for read in reads:
        assert read().num_rows == 1
        with limited_by([Deadline.after(0)]), pytest.raises(DeadlinePassed):
            read()
        assert read().num_rows == 1


def answer_after(
    pool: ThreadPoolExecutor, hub: Listening, script: str, begun: threading.Event, released: threading.Event
) -> httpx.Response:
    """The answer to a script whose change begins in time and ends when the time is over; it does not come before."""
    for timeout in PATIENCE:
        answer = pool.submit(hub.client.post, "/v1/statements", params={"timeout": timeout}, content=script)
        until(lambda: begun.is_set() or answer.done())  # noqa: B023 - called now
        if begun.is_set():
            break
    with pytest.raises(TimeoutError):
        answer.result(timeout + 0.2)
    released.set()
    return answer.result(60)


def test_a_change_that_has_begun_when_the_time_is_over_is_done_and_reported(
    hub: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, text = Engine.log_ahead, statements._outcome

    def slowly(*of: Any) -> str:
        """The thread ends some time after the change."""
        time.sleep(0.2)
        return text(*of)

    monkeypatch.setattr(statements, "_outcome", slowly)
    for script in ("CREATE QUERY a AS SELECT v FROM s", "CREATE QUERY b AS SELECT k FROM s; SHOW STREAMS"):
        begun, released = threading.Event(), threading.Event()

        def held(engine: Engine, *entries: Any, begun: Any = begun, released: Any = released) -> bool:
            begun.set()
            released.wait(60)
            return plain(engine, *entries)

        monkeypatch.setattr(Engine, "log_ahead", held)
        with ThreadPoolExecutor(1) as pool, in_an_epoch(hub.hub):
            response = answer_after(pool, hub, script, begun, released)
        if "SHOW" in script:  # it comes after the time is over
            refused(response, "Of its statements the first 1 is done, and the others are not.")
        else:
            assert (response.status_code, response.json()[0]["message"]) == (200, "query a registered")
    assert {"a", "b"} <= queries(hub)


def test_registrations_that_take_too_long_leave_none(hub: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    held = hub.hub._statements._one_script
    some = {"queries": {f"r{n}": f"SELECT v FROM s WHERE v > {n}" for n in range(3)}}
    with ThreadPoolExecutor(1) as pool:
        has_it, released = threading.Event(), threading.Event()

        def another_script() -> None:
            with held:
                has_it.set()
                released.wait(60)

        other = pool.submit(another_script)
        assert has_it.wait(60)
        refused(hub.client.post("/v1/queries", params={"timeout": 0.2}, json=some), NOTHING)
        until(lambda: not hub.hub._statements._group._arrived)  # its thread ends after the answer
        released.set()
        other.result(60)
    settled(hub)
    assert queries(hub) == {"q", "total"}
    assert hub.client.post("/v1/queries", params={"timeout": 60}, json=some).status_code == 200


def test_a_repetition_waits_no_longer_than_it_may_and_is_carried_out_if_the_first_was_not(
    hub: Listening,
) -> None:
    with ThreadPoolExecutor(2) as pool:

        def sent(timeout: float) -> httpx.Response:
            headers = {"Idempotency-Key": "k"}
            return httpx.post(
                f"http://127.0.0.1:{hub.port}/v1/statements",
                params={"timeout": timeout},
                content="DROP QUERY q",
                headers=headers,
                timeout=60,
            )

        with in_an_epoch(hub.hub):
            first = pool.submit(sent, 1)
            until(lambda: first.done() or hub.hub._statements._group._arrived or hub.hub.loop._turn.locked())
            refused(pool.submit(sent, 0.1).result(60), NOTHING)
            second = pool.submit(sent, 60)
            assert first.result(60).status_code == 504
        assert second.result(60).status_code == 200
    assert queries(hub) == {"total"}


@pytest.mark.parametrize("timeout", ["0", "-1", "nan", "1e9", "x"])
def test_a_time_that_is_none_is_refused(hub: Listening, timeout: str) -> None:
    response = hub.client.post(f"/v1/statements?timeout={timeout}", content="DROP QUERY q")
    assert response.status_code == 400, response.text
    assert queries(hub) == {"q", "total"}


def test_the_administrators_limit_is_that_of_the_network(tmp_path: Path) -> None:
    quotas = Limits(Roots((), tmp_path), Quotas(statement_seconds=5)).quotas
    assert [quotas.seconds_for(OPEN, wanted) for wanted in (None, 2, 9)] == [5, 2, 5]
    assert [quotas.seconds_for(LOCAL, wanted) for wanted in (None, 2, 9)] == [None, 2, 9]
    assert Quotas().seconds_for(OPEN, None) == STATEMENT_SECONDS
    with served(tmp_path / "home", "--max-time", "7") as hub:
        assert hub.get("/v1/summary")["quotas"]["statement_seconds"] == 7


# -- in the runtime --------------------------------------------------------------------------------------------------


def test_the_late_ones_of_a_group_do_not_hold_back_the_others(tmp_path: Path) -> None:
    with listening(tmp_path / "home") as hub, ThreadPoolExecutor(3) as pool:

        def run(script: str, deadline: Deadline) -> Any:
            with limited_by([deadline]):
                return [outcome.message for outcome in hub.hub.execute_or_refuse(script)]

        group = hub.hub._statements._group
        with in_an_epoch(hub.hub):
            with ThreadPoolExecutor(1) as one:
                has_it, released = threading.Event(), threading.Event()

                def another_script() -> None:
                    with hub.hub._statements._one_script:
                        has_it.set()
                        released.wait(60)

                other = one.submit(another_script)
                assert has_it.wait(60)
                short = Deadline.after(600)
                late = pool.submit(run, "DROP QUERY q", short)
                patient = pool.submit(run, "DROP QUERY total", Deadline.after(600))
                until(lambda: len(group._arrived) == 2)
                short.until = time.monotonic() + 0.3
                released.set()
                other.result(60)
            until(lambda: short.has_passed)
        with pytest.raises(DeadlinePassed):
            late.result(60)
        assert patient.result(60) == ["query total dropped"]
        assert queries(hub) == {"q"}


def test_a_thread_waits_no_longer_than_its_statement_may(tmp_path: Path) -> None:
    with listening(tmp_path / "home") as hub, ThreadPoolExecutor(1) as pool:

        def run() -> None:
            with limited_by([Deadline.after(0.1)]):
                hub.hub.execute_or_refuse("DROP QUERY q")

        with in_an_epoch(hub.hub), pytest.raises(DeadlinePassed):
            pool.submit(run).result(60)


def test_the_rest_of_many_registrations_is_not_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = list[str]()

    def bound(catalog: Any, text: str, zone: str) -> Any:
        planned.append(text)
        return bind_text(catalog, text, zone)

    with listening(tmp_path / "home") as hub:
        monkeypatch.setattr("headrace.runtime.statements.execute.bind_text", bound)
        many = {f"m{n}": f"SELECT v FROM s WHERE v > {n}" for n in range(50)}
        with limited_by([Deadline.after(0)]), pytest.raises(DeadlinePassed):
            hub.hub.register_many(many)
        assert len(planned) <= 1
        assert queries(hub) == {"q", "total"}


def test_a_change_is_made_or_given_up_and_never_both() -> None:
    for _ in range(200):
        deadline, made = Deadline.after(60), list[int]()

        def work(deadline: Deadline = deadline, made: list[int] = made) -> None:
            with suppress(DeadlinePassed), limited_by([deadline]):
                for number in range(100):
                    change(lambda number=number: made.append(number))

        thread = threading.Thread(target=work)
        thread.start()
        deadline.give_up()
        count = len(made)
        thread.join(60)
        assert len(made) == count
        assert deadline.done == bool(count)


def test_a_change_that_failed_has_an_error_to_wait_for_and_one_that_did_nothing_has_not() -> None:
    deadline = Deadline.after(60)
    with limited_by([deadline]):
        assert change(lambda: False) is False
        assert not deadline.is_settled
        with pytest.raises(StoreError):
            change(lambda: (_ for _ in ()).throw(StoreError("the disk is full")))
        assert (deadline.done, deadline.is_settled) == (0, True)


def test_a_change_that_fails_late_is_answered_by_its_error(
    hub: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, released = threading.Event(), threading.Event()

    def fails(*_: Any) -> bool:
        begun.set()
        released.wait(60)
        raise StoreError("the disk is full", outcome="unknown")

    monkeypatch.setattr(Engine, "log_ahead", fails)
    with ThreadPoolExecutor(1) as pool, in_an_epoch(hub.hub):
        response = answer_after(pool, hub, "CREATE QUERY a AS SELECT v FROM s", begun, released)
    assert (response.status_code, "the disk is full" in response.text) == (503, True)


def test_locks_are_waited_for_as_long_as_the_first_deadline_allows() -> None:
    lock = threading.Lock()
    with held_in_time(lock), limited_by([Deadline.after(60), Deadline.after(0.05)]):
        begun = time.monotonic()
        with pytest.raises(DeadlinePassed), held_in_time(lock):
            pass
        assert time.monotonic() - begun >= 0.04
    with limited_by([Deadline.after(0)]), held_in_time(lock), pytest.raises(DeadlinePassed):
        change(list)  # the lock was free
    assert not lock.locked()
