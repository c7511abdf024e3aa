"""THEN CALL: each committed row reaches the receiver at least once, in order, under keys that repeat only with their rows."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import UserError
from headrace.runtime.delivery.actions import dispatcher
from headrace.runtime.delivery.actions.channel import Message, Undelivered
from headrace.runtime.delivery.actions.receivers import Receivers
from headrace.runtime.delivery.actions.webhook import headers_of
from headrace.runtime.epoch.retention import EVERY
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.invoke.home_reader import Reader
from headrace.runtime.statements.show import show
from tests.language.one_statement import parse_statement
from tests.runtime.delivery.actions.receiving import SOON, STREAM, hook, letters, push, running, shown, until
from tests.runtime.epoch.test_retention import counting, minutes

ROOT = Path(__file__).parents[4]


def query(url: str, options: str = SOON, name: str = "q") -> str:
    return f"CREATE QUERY {name} AS SELECT k, v FROM s WHERE v > 0 THEN CALL '{url}' WITH ({options});"


def test_rows_arrive_in_order_once_and_a_later_run_continues(tmp_path: Path) -> None:
    with hook() as receiver:
        with running(tmp_path, query(receiver.url)) as hub:
            push(hub, 1, 2)
            push(hub, 0)
            push(hub, 3)
            until(lambda: len(receiver.calls) == 2)
        with running(tmp_path, query(receiver.url)) as hub:
            push(hub, 4)
            until(lambda: len(receiver.calls) == 3)
    assert receiver.values == [1, 2, 3, 4]
    keys = [call.key for call in receiver.calls]
    assert len(set(keys)) == 3
    first = receiver.calls[0]
    assert first.json["query"] == "q"
    assert first.json["key"] == first.key == first.headers["webhook-id"]
    assert first.json["rows"] == [{"k": "a", "v": 1}, {"k": "a", "v": 2}]
    assert "webhook-signature" not in first.headers


def test_an_epoch_is_cut_into_batches_with_keys_of_their_own(tmp_path: Path) -> None:
    with hook() as receiver, running(tmp_path, query(receiver.url, "batch '2'")) as hub:
        push(hub, 1, 2, 3, 4, 5)
        until(lambda: len(receiver.calls) == 3)
    assert [call.values for call in receiver.calls] == [[1, 2], [3, 4], [5]]
    assert [call.json["batch"] for call in receiver.calls] == [0, 1, 2]
    assert len({call.key for call in receiver.calls}) == 3


@pytest.mark.parametrize("status", [500, 503, 429, 408])
def test_a_receiver_that_fails_for_a_while_gets_the_same_message_again_and_no_earlier_one(
    tmp_path: Path, status: int
) -> None:
    answers = [204, status, status]
    with hook(answers) as receiver, running(tmp_path, query(receiver.url, f"batch '1', {SOON}")) as hub:
        push(hub, 1, 2)
        until(lambda: len(receiver.calls) == 4)
        until(lambda: shown(hub)["state"] == "delivering")
    assert [call.values for call in receiver.calls] == [[1], [2], [2], [2]]
    assert len({call.key for call in receiver.calls}) == 2
    assert letters(tmp_path) == []


def test_while_a_receiver_fails_its_state_is_shown_here_and_elsewhere(tmp_path: Path) -> None:
    options = "attempts '1000', wait '0.01 SECONDS', longestWait '0.01 SECONDS'"
    with hook([500] * 1000) as receiver, running(tmp_path, query(receiver.url, options)) as hub:
        push(hub, 1)
        until(lambda: len(receiver.calls) > 2)
        row = shown(hub)
        assert (row["name"], row["action"], row["state"]) == ("q", f"CALL {receiver.url}", "retrying")
        assert row["attempts"] >= 2
        assert "status 500" in row["error"]
        assert (row["dead_letters"], row["epochs_behind"]) == (0, 1)
        (status,) = hub.status()["actions"].values()
        assert (status["state"], status["delivered"]) == ("retrying", 0)
        (elsewhere,) = show(Reader.at(tmp_path).home, parse_statement("SHOW ACTIONS")).table.to_pylist()
        assert (elsewhere["state"], elsewhere["epochs_behind"]) == ("retrying", 1)
        assert hub.execute("SHOW SINKS")[0].table.num_rows == 0
        assert show(Reader.at(tmp_path).home, parse_statement("SHOW SINKS")).table.num_rows == 0


def test_after_all_attempts_a_message_is_a_dead_letter_and_the_next_one_is_sent(tmp_path: Path) -> None:
    options = f"batch '1', attempts '3', {SOON}"
    with hook([503, 503, 503]) as receiver, running(tmp_path, query(receiver.url, options)) as hub:
        push(hub, 1, 2)
        until(lambda: receiver.values == [1, 1, 1, 2])
        until(lambda: shown(hub)["epochs_behind"] == 0)
        row = shown(hub)
        assert (row["dead_letters"], row["state"]) == (1, "delivering")
        assert "status 503" in row["error"]
    (letter,) = letters(tmp_path)
    assert (letter["row"], letter["attempts"]) == ({"k": "a", "v": 1}, 3)
    assert (letter["query"], letter["key"]) == ("q", receiver.calls[0].key)
    assert letter["reason"] == "status 503 Service Unavailable"


@pytest.mark.parametrize("status", [400, 404, 410, (302, {"Location": "/elsewhere"})])
def test_what_a_receiver_refuses_for_good_is_a_dead_letter_at_once(tmp_path: Path, status: Any) -> None:
    with hook([status]) as receiver, running(tmp_path, query(receiver.url)) as hub:
        push(hub, 1)
        push(hub, 2)
        until(lambda: receiver.values == [1, 2])
    (letter,) = letters(tmp_path)
    assert (letter["row"]["v"], letter["attempts"]) == (1, 1)


def test_a_receiver_that_asks_for_time_gets_it(tmp_path: Path) -> None:
    """Its own wait is a hundredth of a second at most: a call in less than a second would be too soon."""
    with hook([(429, {"Retry-After": "1"})]) as receiver, running(tmp_path, query(receiver.url)) as hub:
        push(hub, 1)
        until(lambda: len(receiver.calls) == 2)
    first, second = (int(call.headers["webhook-timestamp"]) for call in receiver.calls)
    assert second - first >= 1


def test_a_receiver_that_never_answers_holds_back_neither_epochs_nor_other_actions(tmp_path: Path) -> None:
    release = threading.Event()
    with (
        hook(before=lambda _: release.wait()) as stuck,  # type: ignore[arg-type,return-value]
        hook() as other,
        running(tmp_path, query(stuck.url, "timeout '1 HOUR'"), query(other.url, name="p")) as hub,
    ):
        for value in range(1, 6):
            push(hub, value)
        until(lambda: other.values == [1, 2, 3, 4, 5])
        assert len(stuck.calls) == 1
        release.set()
        until(lambda: stuck.values == [1, 2, 3, 4, 5])


def test_a_receiver_that_asks_for_an_hour_takes_no_turn_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if one message at a time is sent: an action that waits for its next attempt sends none."""
    monkeypatch.setattr("headrace.runtime.delivery.actions.dispatcher._SENDING", 1)
    busy = [(503, {"Retry-After": "3600"})]
    with hook(busy) as one, hook() as other:
        with running(tmp_path, query(one.url), query(other.url, name="p")) as hub:
            push(hub, 1)
            until(lambda: len(one.calls) == 1)
            push(hub, 2)
            until(lambda: other.values == [1, 2])
            assert len(one.calls) == 1
        with running(tmp_path):
            until(lambda: one.values == [1, 1, 2])


def test_results_that_wait_for_a_receiver_are_kept_until_it_has_them(tmp_path: Path) -> None:
    """The query retains five minutes of results; the receiver is away for forty."""
    away = threading.Event()
    with hook(before=lambda number: number == 0 and away.wait()) as receiver, counting(tmp_path) as hub:  # type: ignore[arg-type,return-value]
        hub.execute(
            "CREATE QUERY kept OPTIONS (retain '5 MINUTES') AS SELECT COUNT(*) AS v FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE]"
            f" THEN CALL '{receiver.url}' WITH (timeout '1 HOUR')"
        )
        minutes(hub, range(40))
        assert hub.query("kept").history().num_rows == 39
        away.set()
        until(lambda: len(receiver.values) == 39)
        until(lambda: shown(hub)["epochs_behind"] == 0)
        minutes(hub, range(40, 40 + 2 * EVERY))
        assert hub.query("kept").history().num_rows <= 6 + 2 * EVERY


def test_an_answer_that_takes_too_long_is_no_answer(tmp_path: Path) -> None:
    release = threading.Event()
    waits = {0: release}
    with hook(before=lambda number: number in waits and waits[number].wait()) as receiver:  # type: ignore[arg-type,return-value]
        with running(
            tmp_path, query(receiver.url, f"timeout '0.05 SECONDS', attempts '1000', {SOON}")
        ) as hub:
            push(hub, 1)
            until(lambda: len(receiver.calls) >= 2)
            release.set()
        assert len({call.key for call in receiver.calls}) == 1


def test_a_signature_is_that_of_standard_webhooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SECRET_HOOK", "swordfish")
    signed = query("{url}", "secretEnv 'HEADRACE_SECRET_HOOK'")
    with hook() as receiver, running(tmp_path, signed.replace("{url}", receiver.url)) as hub:
        push(hub, 1)
        (call,) = until(lambda: receiver.calls)
        shown_text = str(hub.execute("SHOW ACTIONS")[0].table.to_pylist()) + hub.explain("q")
    sent = f"{call.key}.{call.headers['webhook-timestamp']}.".encode() + call.body
    mac = hmac.new(b"swordfish", sent, hashlib.sha256).digest()
    assert call.headers["webhook-signature"] == f"v1,{base64.b64encode(mac).decode()}"
    assert "swordfish" not in shown_text
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"swordfish" not in stored


def test_the_vector_of_the_specification() -> None:
    """The example of github.com/standard-webhooks/standard-webhooks, 'Signature scheme'."""

    class Known(Message):
        @property
        def key(self) -> str:
            return "msg_p5jXN8AQM9LWM0D4loKWxJek"

    message = Known("q", "a", 0, 0, None)
    secret = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    headers = headers_of(message, b'{"test": 2432232314}', 1614265330, secret)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_secret_in_a_file_is_for_its_user_alone(tmp_path: Path) -> None:
    file = tmp_path / "secrets" / "hook.key"
    file.parent.mkdir()
    file.write_text("swordfish\n")
    file.chmod(0o640)
    with hook() as receiver:
        statement = query(receiver.url, "secretFile 'hook.key'")
        with running(tmp_path) as hub:
            with pytest.raises(UserError, match="other users may read the secret"):
                hub.execute(statement)
            file.chmod(0o600)
            hub.execute(statement)
            push(hub, 1)
            (call,) = until(lambda: receiver.calls)
    sent = f"{call.key}.{call.headers['webhook-timestamp']}.".encode() + call.body
    mac = hmac.new(b"swordfish", sent, hashlib.sha256).digest()
    assert call.headers["webhook-signature"] == f"v1,{base64.b64encode(mac).decode()}"


def test_a_secret_that_is_not_there_is_reported_at_once(tmp_path: Path) -> None:
    with (
        running(tmp_path) as hub,
        pytest.raises(UserError, match="HEADRACE_SECRET_NONE is not set") as raised,
    ):
        hub.execute(query("https://example.org/", "secretEnv 'HEADRACE_SECRET_NONE'"))
    assert raised.value.line_and_column == (1, 60)


KILLED = """
import sys
from pathlib import Path
from headrace.runtime.epoch.retention import EVERY
from headrace.runtime.hub.opening import open_hub
hub = open_hub(Path(sys.argv[1]), local=True)
hub.execute(sys.argv[2])
hub.push("s", [{"k": "a", "v": 1}, {"k": "a", "v": 2}, {"k": "a", "v": 3}])
hub.loop.drain()
hub.push("s", [{"k": "a", "v": 4}], producer="p", sequence=0)
hub.loop.drain()
sys.stdin.read()
"""


@pytest.mark.parametrize(("at", "again"), [(0, [[1, 2], [3], [4]]), (1, [[1, 2], [3], [4]]), (2, [[4]])])
def test_killed_between_the_call_and_its_answer_the_receiver_sees_the_epoch_again_under_the_same_keys(
    tmp_path: Path, at: int, again: list[list[int]]
) -> None:
    processes: list[subprocess.Popen[bytes]] = []

    def kill(number: int) -> None:
        if number == at:
            processes[0].kill()
            processes[0].wait()

    with hook(before=kill) as receiver:
        script = STREAM + query(receiver.url, f"batch '2', {SOON}")
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path), script], stdin=subprocess.PIPE, cwd=ROOT
        ) as process:
            processes.append(process)
            until(lambda: len(receiver.calls) == at + 1)
            assert process.wait() == -9
        with running(tmp_path, script) as hub:
            hub.push("s", [{"k": "a", "v": 4}], producer="p", sequence=0)  # if it was killed before that
            until(lambda: len(receiver.calls) == at + 1 + len(again))
    assert [call.values for call in receiver.calls[at + 1 :]] == again
    bodies = {}
    for call in receiver.calls:
        assert bodies.setdefault(call.key, call.body) == call.body
    assert len(bodies) == 3


def test_the_operator_is_notified_of_minutes_with_much_traffic(tmp_path: Path) -> None:
    """Query Q1 of 'Continuous queries over data streams' (section 2): notifyoperator(SUM(length)) of each minute above T."""
    with hook() as operator, open_hub(tmp_path, local=True) as hub, hub.running():
        hub.execute(
            "CREATE STREAM ptb (saddr BIGINT, daddr BIGINT, length BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at;"
            "CREATE QUERY q1 AS SELECT window_start AS minute, SUM(length) AS v FROM ptb [RANGE 1 MINUTE SLIDE 1 MINUTE]"
            f" HAVING SUM(length) > 100 THEN CALL '{operator.url}'"
        )
        for minute, length in enumerate([60, 30, 200, 0]):
            for second in (1, 2):
                at = f"2020-01-01T00:{minute:02d}:{second:02d}Z"
                hub.push(
                    "ptb", [{"saddr": 1, "daddr": 2, "length": length, "at": datetime.fromisoformat(at)}]
                )
        until(lambda: len(operator.values) == 2)
    assert [row for call in operator.calls for row in call.json["rows"]] == [
        {"minute": "2020-01-01T00:00:00Z", "v": 120},
        {"minute": "2020-01-01T00:02:00Z", "v": 400},
    ]


@pytest.mark.parametrize("receivers", [None, Receivers()])
def test_a_resolver_that_hangs_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receivers: Receivers | None
) -> None:
    """Names of local hubs are resolved by the client, those of served ones by the check of their addresses."""
    asked, release, resolve = threading.Event(), threading.Event(), socket.getaddrinfo

    def hangs(host: Any, *more: Any, **named: Any) -> Any:
        if host not in ("nowhere.invalid", b"nowhere.invalid"):
            return resolve(host, *more, **named)
        asked.set()
        assert release.wait(600)
        raise socket.gaierror(socket.EAI_AGAIN, "later")

    monkeypatch.setattr(socket, "getaddrinfo", hangs)
    monkeypatch.setattr(dispatcher, "_CLOSING_SECONDS", 0.1)
    hub = open_hub(tmp_path, local=True, receivers=receivers)
    try:
        hub.start()
        hub.execute(STREAM + query("http://nowhere.invalid/", "timeout '1 HOUR'"))
        push(hub, 1)
        assert asked.wait(60)
        closing = threading.Thread(target=hub.close, daemon=True)
        closing.start()
        closing.join(30)
        assert not closing.is_alive()
    finally:
        release.set()


def test_a_name_without_an_address_is_a_failure_like_others() -> None:
    with pytest.raises(Undelivered) as raised:
        Receivers().address("nowhere.invalid", 80)
    assert not raised.value.lasting
