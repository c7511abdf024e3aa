"""Access over the network: tokens, and what is refused without one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.building import headrace
from tests.server.serving import served

PLACEHOLDER = re.compile(r"(?<=/)[qs](?=/|$)")
ROUTES = [
    ("POST", "/v1/statements"),
    ("GET", "/v1/queries"),
    ("POST", "/v1/queries"),
    ("GET", "/v1/queries/q"),
    ("DELETE", "/v1/queries/q"),
    ("POST", "/v1/queries/q/pause"),
    ("POST", "/v1/queries/q/resume"),
    ("GET", "/v1/queries/q/answer"),
    ("GET", "/v1/queries/q/results"),
    ("GET", "/v1/queries/q/follow"),
    ("POST", "/v1/queries/q/acknowledge?client=a&cursor=0"),
    ("GET", "/v1/queries/q/explain"),
    ("POST", "/v1/streams/s/rows"),
    ("GET", "/v1/status"),
    ("GET", "/v1/explain"),
    ("GET", "/metrics"),
]


def test_every_route_needs_a_token_which_is_shown_once_and_stored_as_a_digest(tmp_path: Path) -> None:
    with served(tmp_path / "home", auth=True) as hub:
        token = hub.token
        assert token is not None
        described = hub.get("/openapi.json")["paths"]
        tried = {(method, PLACEHOLDER.sub("{name}", route.partition("?")[0])) for method, route in ROUTES}
        known = {(method.upper(), path) for path, methods in described.items() for method in methods}
        assert tried == {(method, path) for method, path in known if path not in ("/healthz", "/readyz")}
        for method, route in ROUTES:
            assert hub.curl(route, "-X", method)[0] == 401, route
            assert hub.curl(route, "-X", method, token="wrong")[0] == 403, route
        assert hub.curl("/v1/queries", token=token)[0] == 200
        assert hub.curl("/healthz")[0] == 200
    stored = [file.name for file in (tmp_path / "home" / "tokens").iterdir()]
    assert len(stored) == 1
    assert token not in "".join(path.name for path in (tmp_path / "home").rglob("*"))


def test_an_open_door_is_for_this_machine_only(tmp_path: Path) -> None:
    done = headrace("serve", "--home", tmp_path / "home", "--host", "0.0.0.0", "--no-auth")
    assert done.returncode == 2
    assert "--no-auth is for this machine only" in done.stderr


def test_a_port_in_use_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with served(tmp_path / "home") as hub:
        port = hub.url.rpartition(":")[2]
        done = headrace("serve", "--home", tmp_path / "other", "--port", port, "--no-auth")
        assert done.returncode == 2
        assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
        assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_that_is_none_is_refused(tmp_path: Path, port: str) -> None:
    assert headrace("serve", "--home", tmp_path / "home", "--port", port, "--no-auth").returncode == 2


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("Origin: http://elsewhere.example", "the page of 'http://elsewhere.example' may not use this hub"),
        ("Origin: null", "the page of 'null' may not use this hub"),
        ("Host: elsewhere.example", "the host 'elsewhere.example' is not this machine"),
    ],
)
def test_without_tokens_a_page_of_another_site_is_refused(tmp_path: Path, header: str, message: str) -> None:
    """A browser of this machine sends such requests for any page that is open in it."""
    with served(tmp_path / "home") as hub:
        status, problem = hub.post("/v1/statements", "CREATE STREAM s (v INT) USING push", "-H", header)
        assert (status, problem["error"]["message"]) == (403, message)
        assert hub.get("/v1/status")["streams"] == {}
        status, _ = hub.post("/v1/statements", "SHOW STREAMS", "-H", f"Origin: {hub.url}")
        assert status == 200
