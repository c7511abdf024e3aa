"""Names of queries and streams with any characters, in the paths of requests and in clients."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pyarrow as pa
import pytest
from websockets.sync.client import connect

import headrace as hr
from headrace.errors import UnknownName
from headrace.remote.remote_hub import RemoteHub
from headrace.remote.transport import segment
from tests.runtime.delivery.actions.receiving import until
from tests.server.serving import Served, served

NAMES = (
    *("a/b", "/", "a//b", "a/b/answer", "a/rows", "a%2Fb", "a%252Fb", "a%25b", "100%", "a b", " "),
    *(
        "it's",
        'a "b"',
        "a`b",
        "a?b=c",
        "a#b",
        "ä ✓ 山",
        "..",
        ".",
        "../x",
        "a+b",
        "a;b",
        "a\\b",
        "{name}",
    ),
)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("names") / "home") as running:
        yield running


@pytest.fixture(scope="module", params=["socket", "http"])
def remote(hub: Served, request: pytest.FixtureRequest) -> Iterator[RemoteHub]:
    with hr.connect(hub.home if request.param == "socket" else hub.url) as remote:
        yield remote


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@pytest.mark.parametrize("name", NAMES)
def test_a_query_and_a_stream_of_any_name_are_reached(hub: Served, remote: RemoteHub, name: str) -> None:
    stream = f"{name}~"
    remote.execute(f"CREATE STREAM {quoted(stream)} (v BIGINT) USING push")
    query = remote.register(f"SELECT v FROM {quoted(stream)} AS s", name)
    assert (query.name, remote.query(name).name) == (name, name)
    assert remote.push(stream, [{"v": 7}]) == 1
    until(lambda: query.history().to_pylist() == [{"v": 7}])
    assert query.invoke().to_pylist() == [{"v": 7}]
    assert next(query.follow(cursor=0)).to_pylist() == [{"v": 7}]
    assert query.explain()

    path = f"/v1/queries/{segment(name)}"
    with httpx.Client(base_url=hub.url) as client:
        assert client.get(path).json()["name"] == name
        assert client.get(path.replace("%2F", "%2f")).json()["name"] == name
        for part in ("answer", "results", "timeline", "costs", "explain"):
            assert client.get(f"{path}/{part}").status_code == 200, part
        for part in ("pause", "resume", "acknowledge?client=me&cursor=0"):
            assert client.post(f"{path}/{part}").status_code == 200, part
    with connect(f"{hub.url.replace('http://', 'ws://')}{path}/follow?since=0") as socket:
        socket.send('{"credits": 1}')
        assert json.loads(socket.recv(timeout=30))["rows"] == [{"v": 7}]
    query.drop()
    with pytest.raises(UnknownName):
        remote.query(name)
    remote.execute(f"DROP STREAM {quoted(stream)}")


def test_a_stream_is_pushed_to_by_the_name_alone(hub: Served, remote: RemoteHub) -> None:
    for name in NAMES:
        remote.execute(f"CREATE STREAM {quoted(name)} (v BIGINT) USING push")
        assert remote.push(name, pa.table({"v": [1]})) == 1
        response = httpx.post(f"{hub.url}/v1/streams/{segment(name)}/rows", content='{"v": 2}')
        assert response.json() == {"accepted": 1, "rejected": 0}
        remote.execute(f"DROP STREAM {quoted(name)}")


def test_a_slash_that_is_not_encoded_divides_the_path(hub: Served) -> None:
    assert hub.curl("/v1/queries/a/b")[0] == 404
    assert hub.curl("/v1/queries%2Fa")[0] == 404
    assert hub.curl("/console/..%2Fapplication.py")[0] == 404
    redirect = httpx.get(f"{hub.url}/v1/queries/a%2Fb/")
    assert (redirect.status_code, httpx.URL(redirect.headers["location"]).raw_path) == (
        307,
        b"/v1/queries/a%2Fb",
    )


def test_the_audit_log_and_metrics_have_such_paths(hub: Served) -> None:
    with hr.connect(hub.url) as remote:
        remote.execute("CREATE STREAM audited (v BIGINT) USING push")
        remote.register("SELECT v FROM audited", "x/rows").drop()
        remote.execute("DROP STREAM audited")
    lines = [json.loads(line) for line in (hub.home / "audit.jsonl").read_text().splitlines()]
    assert [line["path"] for line in lines if line["method"] == "DELETE"][-1] == "/v1/queries/x%2Frows"
    assert 'method="DELETE",route="/v1/queries/{name}",status="200"' in hub.curl("/metrics")[1]
