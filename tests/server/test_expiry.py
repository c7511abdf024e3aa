"""Tokens that expire: every route refuses them, followers end, and a clock that jumps decides nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from headrace.server import access
from headrace.server.access import Access
from headrace.server.problems import Refused
from headrace.server.security.tokens import Tokens
from headrace.store.files.filesystem import LocalStore
from headrace.time import SECOND
from tests.cli.building import headrace
from tests.server.serving import STREAM, served
from tests.server.test_access import ROUTES


def test_every_route_refuses_an_expired_token_and_its_followers_end(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with served(home, auth=True) as hub:
        script = f"{STREAM} CREATE QUERY q OPTIONS (owner 'ana') AS SELECT k FROM s"
        assert hub.curl("/v1/statements", "-d", script, token=hub.token)[0] == 200
        tokens = Tokens(LocalStore(home))
        token = tokens.make("ana", "register", lasts=3 * SECOND)
        follow = ["curl", "-sN", "--max-time", "60", f"{hub.url}/v1/queries/q/follow"]
        said = ("-H", f"Authorization: Bearer {token}")
        socket_url = f"{hub.url.replace('http', 'ws')}/v1/queries/q/follow"
        with (
            subprocess.Popen([*follow, *said], stdout=subprocess.PIPE, text=True) as follower,
            connect(socket_url, additional_headers={"Authorization": f"Bearer {token}"}) as socket,
        ):
            assert follower.stdout is not None
            assert follower.stdout.readline() == ": following\n"
            assert "the token has expired" in follower.stdout.read()
            with pytest.raises(ConnectionClosed, match="the token has expired"):
                list(socket)
        for method, route in ROUTES:
            status, text = hub.curl(route, "-X", method, token=token)
            assert (status, json.loads(text)["error"]["message"]) == (403, "the token has expired"), route
        assert "(expired)" in headrace("token", "list", "--home", home).stdout
        assert hub.curl("/v1/queries", token=hub.token)[0] == 200
    lines = [json.loads(line) for line in (home / "audit.jsonl").read_text().splitlines()]
    assert sum(line["message"] == "the token has expired" for line in lines) >= len(ROUTES)


def test_a_token_is_made_with_the_time_that_it_lasts(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "tokens").mkdir(parents=True)
    done = headrace("token", "create", "--home", home, "--owner", "ana", "--expires", "30 days")
    assert done.returncode == 0, done.stderr
    admitted = Tokens(LocalStore(home)).admit(done.stdout.split()[1])
    assert admitted is not None
    assert admitted.expires is not None
    for wrong in ("soon", "-1 day", "0 seconds"):
        done = headrace("token", "create", "--home", home, "--owner", "ana", f"--expires={wrong}")
        assert (done.returncode, "30 DAYS" in done.stderr or "1 DAY" in done.stderr) == (2, True), done.stderr


def test_a_clock_that_jumps_forwards_expires_and_one_that_is_set_back_does_not_revoke(tmp_path: Path) -> None:
    now = [1_000 * SECOND]
    tokens = Tokens(LocalStore(tmp_path), lambda: now[0])
    lasting, short = tokens.make("ana", "read"), tokens.make("ana", "read", lasts=60 * SECOND)
    for at, valid in ((1_000, True), (1_059, True), (1_060, False), (10**9, False), (0, True), (1_001, True)):
        now[0] = at * SECOND
        assert (tokens.admit(short) is not None) == valid, at
        assert tokens.admit(lasting) is not None
        assert len([*tokens.verifiers()]) == 1 + valid
        assert tokens.why_not(short) == "the token has expired"
    assert tokens.why_not("wrong") == "the token is not valid"


def test_requests_that_last_are_woken_when_their_token_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "WATCH_SECONDS", 0.01)
    now = [0]
    tokens = Tokens(LocalStore(tmp_path), lambda: now[0])
    kept = tokens.admit(tokens.make("ana", "read"))
    lost = tokens.admit(tokens.make("ana", "read", lasts=60 * SECOND))
    assert kept is not None
    assert lost is not None
    checked, woken = Access(tokens), asyncio.Event()

    async def watch() -> None:
        with checked.lasting(kept), checked.lasting(lost):
            watching = asyncio.create_task(checked.watch(woken.set))
            checked.require_valid(lost)
            assert tokens.holds(lost)
            now[0] = 61 * SECOND
            await asyncio.wait_for(woken.wait(), 60)
            watching.cancel()

    asyncio.run(watch())
    with pytest.raises(Refused, match="the token has expired"):
        checked.require_valid(lost)
    checked.require_valid(kept)
    assert not tokens.holds(lost)
    assert tokens.holds(kept)
    assert not checked._followers
    name = hashlib.sha256(b"").hexdigest()
    assert name not in tokens.names()
