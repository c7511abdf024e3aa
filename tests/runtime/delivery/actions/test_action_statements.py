"""Actions as part of queries: what may be defined, and how CREATE, ALTER, RENAME, DROP and EXPLAIN treat them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import NameTaken, UserError
from headrace.runtime.delivery.actions.receivers import Receivers
from headrace.runtime.hub.opening import open_hub
from headrace.runtime.invoke.home_reader import Reader
from headrace.runtime.statements.show import show
from tests.language.one_statement import parse_statement
from tests.runtime.delivery.actions.receiving import SOON, STREAM, hook, push, running, shown, until

SELECT = "SELECT k, v FROM s WHERE v > 0"


def test_the_same_create_again_keeps_the_position_and_another_action_is_a_difference(tmp_path: Path) -> None:
    with hook() as receiver, running(tmp_path) as hub:
        create = f"CREATE QUERY q AS {SELECT} THEN CALL '{receiver.url}' WITH ({SOON})"
        hub.execute(create)
        push(hub, 1)
        until(lambda: receiver.values == [1])
        before = shown(hub)["id"]
        assert hub.execute(create)[0].message == "query q is there already"
        assert shown(hub)["id"] == before
        with pytest.raises(NameTaken, match=r"differs in THEN \(CALL .* there, CALL .*/other .* here\)"):
            hub.execute(create.replace("/hook", "/other"))
        push(hub, 2)
        until(lambda: receiver.values == [1, 2])


def test_alter_sets_actions_and_those_that_stay_continue(tmp_path: Path) -> None:
    with hook() as one, hook() as two, running(tmp_path) as hub:
        hub.execute(f"CREATE QUERY q AS {SELECT} THEN CALL '{one.url}'")
        push(hub, 1)
        until(lambda: one.values == [1])
        hub.execute(f"ALTER QUERY q THEN CALL '{one.url}' THEN CALL '{two.url}'")
        push(hub, 2)
        until(lambda: one.values == [1, 2])
        until(lambda: two.values == [2])
        hub.execute(f"ALTER QUERY q THEN CALL '{two.url}'")
        hub.execute("ALTER QUERY q RENAME TO r")
        push(hub, 3)
        until(lambda: two.values == [2, 3])
        assert two.calls[-1].json["query"] == "r"
        assert two.calls[0].json["key"].split("-")[0] == two.calls[1].json["key"].split("-")[0]
        hub.execute("ALTER QUERY r THEN NOTHING")
        push(hub, 4)
        assert hub.execute("SHOW ACTIONS")[0].table.num_rows == 0
    assert (one.values, two.values) == ([1, 2], [2, 3])
    assert not list((tmp_path / "sinks").glob("action-*/*"))


def test_a_dropped_query_does_nothing_more_and_leaves_no_position(tmp_path: Path) -> None:
    with hook([500] * 1000) as receiver, running(tmp_path) as hub:
        hub.execute(f"CREATE QUERY q AS {SELECT} THEN CALL '{receiver.url}' WITH (attempts '1000', {SOON})")
        push(hub, 1)
        until(lambda: len(receiver.calls) > 2)
        hub.execute("DROP QUERY q")
        assert hub.execute("SHOW ACTIONS")[0].table.num_rows == 0
        hub.execute(f"CREATE QUERY q AS {SELECT}")
        push(hub, 2)
        assert 2 not in receiver.values
    with open_hub(tmp_path, local=True) as hub:
        assert hub.status()["actions"] == {}


def test_the_position_of_a_sink_of_a_query_called_action_is_none_of_an_action(tmp_path: Path) -> None:
    got: list[int] = []
    for value in (1, 2):
        with running(tmp_path, STREAM.replace("STREAM s", "STREAM t")) as hub:
            hub.execute(f"CREATE QUERY action AS {SELECT}; CREATE QUERY q AS {SELECT} THEN WRITE TO t")
            hub.sink("action", lambda _, rows: got.extend(row["v"] for row in rows.to_pylist()))
            push(hub, value)
    assert got == [1, 2]
    (sink,) = show(Reader.at(tmp_path).home, parse_statement("SHOW SINKS")).table.to_pylist()
    assert sink["query"] == "action"


def test_an_altered_query_keeps_its_actions(tmp_path: Path) -> None:
    with hook() as receiver, running(tmp_path) as hub:
        hub.execute(f"CREATE QUERY q FROM NOW AS {SELECT} THEN CALL '{receiver.url}'")
        push(hub, 1)
        until(lambda: receiver.values == [1])
        hub.execute("ALTER QUERY q AS SELECT k, v * 10 AS v FROM s WHERE v > 0")
        push(hub, 2)
        until(lambda: 20 in receiver.values)


def test_results_of_an_altered_query_are_delivered_whenever_its_actions_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch with results of the new text is looked through before the actions are changed."""
    with hook() as receiver, running(tmp_path) as hub:
        hub.execute(f"CREATE QUERY q FROM NOW AS {SELECT} THEN CALL '{receiver.url}'")
        push(hub, 1)
        until(lambda: receiver.values == [1])
        logged = hub.actions.logged

        def later(entries: tuple[Mapping[str, Any], ...]) -> None:
            monkeypatch.undo()
            until(lambda: hub.actions.report()[0]["epochs_behind"] == 0)
            (action,) = hub.actions.report()
            push(hub, 2)
            until(lambda: hub.actions.report()[0]["position"] > action["position"])
            logged(entries)

        monkeypatch.setattr(hub.actions, "logged", later)
        hub.execute("ALTER QUERY q AS SELECT k, v * 10 AS v FROM s WHERE v > 0")
        push(hub, 3)
        until(lambda: 30 in receiver.values)
        assert receiver.values[-2:] == [20, 30]


def test_explain_and_the_catalog_show_actions(tmp_path: Path) -> None:
    with running(tmp_path) as hub:
        hub.execute(f"CREATE QUERY q AS {SELECT} THEN CALL 'https://example.org/hook' WITH (batch '7')")
        assert "then CALL https://example.org/hook WITH (batch '7')" in hub.explain("q").splitlines()
        create = f"CREATE QUERY q AS {SELECT}\n  THEN CALL 'https://example.org/hook' WITH ('batch' '7')"
        assert hub.execute("SHOW CREATE QUERY q")[0].table.to_pylist() == [{"statement": create}]
        assert hub.execute(create)[0].message == "query q is there already"
        assert hub.execute("SHOW ACTIONS LIKE 'x%'")[0].table.num_rows == 0


def test_a_query_that_stores_no_changes_has_no_actions(tmp_path: Path) -> None:
    with running(tmp_path) as hub, pytest.raises(UserError, match="delivers no changes"):
        hub.execute(
            "CREATE QUERY q OPTIONS (materialize 'none') AS SELECT COUNT(*) AS n FROM s"
            " BEGIN NOW - INTERVAL 1 HOUR END NOW THEN CALL 'https://example.org/'"
        )


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ("SELECT k, v FROM s", "reads what it would write to 's'"),
        ("SELECT k, v FROM other", "reads what it would write to 's'"),
        ("SELECT COUNT(*) AS v, k FROM s GROUP BY k", "retracts rows, and a stream has insertions only"),
        ("SELECT k, v AS w FROM free", "stream 's' has no column 'w'"),
        ("SELECT k FROM free", "column v is missing"),
        ("SELECT v AS k, v FROM free", "column k is"),
    ],
)
def test_what_cannot_be_written_to_a_stream_is_refused_with_a_place(
    tmp_path: Path, select: str, message: str
) -> None:
    with running(tmp_path) as hub:
        for name in ("other", "free"):
            hub.execute(STREAM.replace("STREAM s", f"STREAM {name}"))
        hub.execute("CREATE QUERY back AS SELECT k, v FROM s THEN WRITE TO other")
        text = f"CREATE QUERY q AS {select} THEN WRITE TO s"
        with pytest.raises(UserError, match=message) as raised:
            hub.execute(text)
        assert raised.value.line_and_column == (1, len(text))


def test_a_stream_that_is_written_is_not_dropped(tmp_path: Path) -> None:
    with running(tmp_path, STREAM.replace("STREAM s", "STREAM t")) as hub:
        hub.execute(f"CREATE QUERY q AS {SELECT} THEN WRITE TO t")
        with pytest.raises(UserError, match="'t' is written by q"):
            hub.execute("DROP STREAM t")
        with pytest.raises(UserError, match="'t' is written by q"):
            hub.execute("CREATE OR REPLACE STREAM t (k STRING) USING push")
        with pytest.raises(UserError, match="there is no stream 'u'"):
            hub.execute("ALTER QUERY q THEN WRITE TO u")
        hub.execute("ALTER QUERY q THEN NOTHING; DROP STREAM t")


@pytest.mark.parametrize(
    ("allowed", "host", "address", "admitted"),
    [
        ((), "example.org", "93.184.216.34", True),
        ((), "evil.example", "127.0.0.1", False),
        ((), "evil.example", "10.1.2.3", False),
        ((), "evil.example", "169.254.169.254", False),
        ((), "evil.example", "::1", False),
        ((), "evil.example", "::ffff:192.168.0.1", False),
        ((), "evil.example", "fe80::1%eth0", False),
        ((), "evil.example", "224.0.0.1", False),
        ((), "example.org", "2606:2800:220:1:248:1893:25c8:1946", True),
        ((), "evil.example", "::127.0.0.1", False),
        ((), "evil.example", "::ffff:0:127.0.0.1", False),
        ((), "evil.example", "64:ff9b::7f00:1", False),
        ((), "evil.example", "2002:7f00:1::1", False),
        ((), "evil.example", "2001:0:7f00:1::1", False),
        ((), "evil.example", "fec0::1", False),
        ((), "evil.example", "ff0e::1", False),
        ((), "evil.example", "240.0.0.1", False),
        (("*.example.org",), "hooks.example.org", "10.1.2.3", True),
        (("*.example.org",), "other.net", "93.184.216.34", False),
        (("10.1.0.0/16",), "internal", "10.1.2.3", True),
        (("10.1.0.0/16",), "internal", "10.2.2.3", False),
        (("10.1.0.0/16",), "public", "93.184.216.34", False),
    ],
)
def test_receivers_are_admitted_by_name_or_address(
    allowed: tuple[str, ...], host: str, address: str, admitted: bool
) -> None:
    assert Receivers.of(allowed).admits(host, address) == admitted


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "192.168.1.1"])
def test_a_limited_hub_refuses_private_addresses_when_they_are_defined(tmp_path: Path, host: str) -> None:
    with open_hub(tmp_path, local=True, receivers=Receivers()) as hub:
        hub.execute(STREAM)
        with pytest.raises(UserError, match="actions of this hub may not reach") as raised:
            hub.execute(f"CREATE QUERY q AS {SELECT} THEN CALL 'http://{host}:80/'")
        assert raised.value.line_and_column == (1, 60)


def test_a_name_with_a_private_address_is_refused_when_it_is_called(tmp_path: Path) -> None:
    """The name was admitted when the query was defined; what it means now is checked for every call."""
    import socket

    with hook() as receiver:
        url = receiver.url.replace("127.0.0.1", socket.gethostname())
        with open_hub(tmp_path, local=True) as hub:
            hub.execute(STREAM + f"CREATE QUERY q AS {SELECT} THEN CALL '{url}' WITH ({SOON})")
        with open_hub(tmp_path, local=True, receivers=Receivers()) as hub, hub.running():
            push(hub, 1)
            until(lambda: shown(hub)["dead_letters"] == 1)
            assert "may not reach" in shown(hub)["error"]
    assert receiver.calls == []


def test_an_admitted_name_is_called_by_it(tmp_path: Path) -> None:
    with hook() as receiver:
        url = receiver.url.replace("127.0.0.1", "localhost")
        with open_hub(tmp_path, local=True, receivers=Receivers.of(["localhost"])) as hub, hub.running():
            hub.execute(STREAM + f"CREATE QUERY q AS {SELECT} THEN CALL '{url}' WITH ({SOON})")
            push(hub, 1)
            (call,) = until(lambda: receiver.calls)
    assert call.headers["host"] == url.split("/")[2]


@pytest.mark.parametrize("text", ["http://a/", "10.0.0.1/33", ""])
def test_an_allowed_host_is_a_name_or_a_network(text: str) -> None:
    with pytest.raises(UserError, match="neither a host nor a network"):
        Receivers.of([text])
