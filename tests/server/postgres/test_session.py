"""The session of a client, without a connection: all rows of a SELECT arrive, by a cursor and by INSERT."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.runtime.epoch.executor import LocalExecutor
from headrace.runtime.hub.hub import Hub
from headrace.server.following import Publications
from headrace.server.postgres import session as sessions
from headrace.server.postgres.protocol.problems import Failed
from headrace.server.postgres.session import Answer, Session
from headrace.server.postgres.tables.sql_text import Text
from headrace.server.security.permissions import Limits
from headrace.server.security.principal import LOCAL, Principal
from headrace.server.security.quotas import Quotas
from headrace.server.security.roots import Roots

ROWS = 25_000
"""More than DuckDB gives together."""
NUMBERS = f"SELECT i, TIMESTAMPTZ '2024-01-01' FROM range({ROWS}) t(i)"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with Hub(tmp_path / "home", LocalExecutor(), tasks=1) as hub:
        hub.execute("CREATE STREAM s (i BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at")
        hub.execute("CREATE QUERY q AS SELECT i FROM s")
        yield hub


def answered(
    hub: Hub, *texts: str, principal: Principal = LOCAL, quotas: Quotas | None = None
) -> list[tuple[Answer, list[int]]]:
    """What a session answers to each statement, with the first column of its rows."""

    async def run() -> list[tuple[Answer, list[int]]]:
        permissions = Limits(Roots((), hub.path), quotas or Quotas()).of(principal)
        session = Session(hub, Publications(), permissions, lambda *_, **__: None)
        answers = []
        for text in texts:
            (answer,) = await session.run(Text(text))  # type: ignore[misc]
            values: list[int] = []
            while answer.rows is not None and (table := answer.rows.take(0)) is not None:
                values += table.column(0).to_pylist()
            answers.append((answer, values))
        session.close()
        return answers

    return asyncio.run(run())


def test_fetch_all_of_a_select_has_no_limit(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_ALL", 3)
    declared = f"DECLARE c CURSOR FOR {NUMBERS}"
    answers = answered(hub, declared, "FETCH 2 FROM c", "FETCH ALL FROM c", "FETCH ALL FROM c", "FETCH c")
    assert [len(values) for _, values in answers] == [0, 2, ROWS - 2, 0, 0]
    fetched, values = answers[2]
    assert values == list(range(2, ROWS))
    assert fetched.rows is not None
    assert fetched.rows.taken == ROWS - 2


def test_fetch_all_of_a_cursor_that_follows_ends(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_ALL", 3)
    hub.query("q").client("me")
    hub.push("s", [{"i": number, "at": 0} for number in range(5)])
    hub.catch_up()
    answers = answered(
        hub, "DECLARE c CURSOR FOR FOLLOW q CLIENT 'me'", "FETCH ALL FROM c", "FETCH ALL FROM c"
    )
    assert [values for _, values in answers] == [[], [0, 1, 2], [3, 4]]


def test_insert_of_a_select_pushes_all_its_rows(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_ALL", 3)
    ((answer, _),) = answered(hub, f"INSERT INTO s {NUMBERS}")
    assert answer.tag == f"INSERT 0 {ROWS}"
    hub.catch_up()
    assert sorted(hub.query("q").history()["i"].to_pylist()) == list(range(ROWS))


def test_insert_of_more_bytes_than_a_client_may_send_pushes_none(hub: Hub) -> None:
    with pytest.raises(Failed, match="more than 100,000 bytes") as failed:
        answered(
            hub,
            f"INSERT INTO s {NUMBERS}",
            principal=Principal("ana", "register"),
            quotas=Quotas(body_bytes=100_000),
        )
    assert failed.value.problem.code == "54000"
    assert hub.home.ingest_log.length == 0
