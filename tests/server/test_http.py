"""The routes of a served home, used with curl."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from headrace.server.tables import arrow_bytes
from tests.runtime.delivery.actions.receiving import until as eventually
from tests.server.serving import STREAM, TOTAL, TUMBLE, Served, served

ROWS = '{"k":"a","v":1,"at":"2024-01-01T00:00:01Z"}\n{"k":"b","v":2,"at":"2024-01-01T00:00:12Z"}\n'
JSON_LINES = ("-H", "Content-Type: application/x-ndjson")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served") / "home") as running:
        status, outcomes = running.post("/v1/statements", STREAM + TUMBLE + TOTAL)
        assert status == 200, outcomes
        yield running


def until(hub: Served, path: str, key: str, wanted: object) -> None:
    for _ in range(200):
        if hub.get(path)[key] == wanted:
            return
    pytest.fail(f"{path}: {hub.get(path)[key]}, not {wanted}")


def test_a_script_answers_one_outcome_a_statement(hub: Served) -> None:
    status, outcomes = hub.post("/v1/statements", "SHOW STREAMS; DESCRIBE s")
    assert status == 200
    assert [outcome["kind"] for outcome in outcomes] == ["show", "describe"]
    assert [outcome["statement"] for outcome in outcomes] == ["SHOW STREAMS", "DESCRIBE s"]
    assert outcomes[0]["rows"][0]["name"] == "s"


def test_pushed_rows_are_answered_and_bad_ones_come_back_with_their_reason(hub: Served) -> None:
    bad = '{"k":"a","v":"x","at":"2024-01-01T00:00:01Z"}\n'
    status, answer = hub.post("/v1/streams/s/rows", ROWS + bad, *JSON_LINES)
    assert (status, answer["accepted"], answer["rejected"]) == (200, 2, 1)
    assert answer["reasons"] == [{"row": 2, "text": bad.strip(), "reason": 'column v: "x" is not a BIGINT'}]
    until(hub, "/v1/queries/total/answer", "rows", [{"n": 2}])
    assert hub.get("/v1/queries/q/answer")["rows"] == [{"k": "a", "n": 1}]
    status, answer = hub.post(
        "/v1/streams/s/rows", "k,v,at\nc,3,2024-01-01T00:00:13Z\n", "-H", "Content-Type: text/csv"
    )
    assert (status, answer) == (200, {"accepted": 1, "rejected": 0})
    until(hub, "/v1/queries/total/answer", "rows", [{"n": 3}])


def test_a_request_repeated_with_its_key_counts_once(hub: Served) -> None:
    hub.post(
        "/v1/statements",
        "CREATE STREAM once (v BIGINT) USING push; CREATE QUERY c AS SELECT COUNT(*) AS n FROM once",
    )
    for _ in range(3):
        status, answer = hub.post(
            "/v1/streams/once/rows", '{"v":1}\n', *JSON_LINES, "-H", "Idempotency-Key: one"
        )
        assert (status, answer["accepted"]) == (200, 1)
    hub.post("/v1/streams/once/rows", '{"v":2}\n', *JSON_LINES, "-H", "Idempotency-Key: two")
    until(hub, "/v1/queries/c/answer", "rows", [{"n": 2}])
    drop = [hub.post("/v1/statements", "DROP QUERY c", "-H", "Idempotency-Key: three") for _ in range(2)]
    assert drop[0] == drop[1]
    assert drop[0][0] == 200
    status, problem = hub.post("/v1/statements", "DROP QUERY total", "-H", "Idempotency-Key: three")
    assert (status, problem["error"]["message"]) == (
        409,
        "the Idempotency-Key 'three' was used for another request",
    )
    shown = [
        hub.post(f"/v1/statements?{options}", "SHOW QUERIES", "-H", "Idempotency-Key: four")[0]
        for options in ("zone=UTC", "tables=json", "zone=Asia/Tokyo", "tables=arrow")
    ]
    assert shown == [200, 200, 409, 409]
    for key in ("Idempotency-Key;", f"Idempotency-Key: {'k' * 201}"):
        assert hub.post("/v1/statements", "SHOW QUERIES", "-H", key)[0] == 400


def test_bytes_that_are_no_arrow_stream_are_refused_whatever_is_wrong_with_them(hub: Served) -> None:
    def push(body: bytes) -> tuple[int, str]:
        response = httpx.post(
            f"{hub.url}/v1/streams/s/rows",
            content=body,
            headers={"Content-Type": "application/vnd.apache.arrow.stream"},
        )
        return response.status_code, response.text

    text = pa.array(["ab", "cd"])
    whole = arrow_bytes(pa.table({"k": text}))
    offsets = text.buffers()[1].to_pybytes()[:12]
    assert whole.count(offsets) == whole.count(b"abcd") == 1
    wrong = (
        b"",
        b"nonsense",
        b"\xc8v\xed\x99'Ru\x82\xbb\xbf\xb82J\xf8\xe8",  # a length that no body has
        whole[: len(whole) // 2],
        whole.replace(offsets, b"\0\0\0\0\xff\xff\xff\x7f\xff\xff\xff\x7f"),  # text beyond its buffer
        whole.replace(b"abcd", b"a\xff\xfed"),
    )
    for body in wrong:
        status, problem = push(body)
        assert (status, "the body is no Arrow stream" in problem) == (400, True), (body, problem)


def test_rows_are_pushed_as_csv_and_those_that_do_not_fit_are_described(hub: Served) -> None:
    csv = ("-H", "Content-Type: text/csv; charset=utf-8", "-H", "Idempotency-Key: csv")
    script = "CREATE STREAM sheet (k STRING, v BIGINT, at TIMESTAMP) USING push TIMESTAMP BY at; CREATE QUERY of_sheet AS SELECT k, v FROM sheet"
    assert hub.post("/v1/statements", script)[0] == 200
    body = 'at,v,k\n2024-01-01T00:00:01Z,1,"a, ""b"""\n2024-01-01T00:00:02Z,,\n2024-01-01T00:00:03Z,many,c\n'
    for _ in range(2):
        status, answer = hub.post("/v1/streams/sheet/rows", body, *csv)
        assert (status, answer["accepted"], answer["rejected"]) == (200, 2, 1)
        assert len(answer["reasons"]) == 1
        assert "many" in json.dumps(answer["reasons"])
    until(hub, "/v1/queries/of_sheet/results", "rows", [{"k": 'a, "b"', "v": 1}, {"k": None, "v": None}])
    status, problem = hub.post("/v1/streams/sheet/rows", body, "-H", "Content-Type: application/pdf")
    assert (status, "text/csv" in problem["error"]["remedy"]) == (415, True)


@pytest.mark.parametrize("body", ["c,3,2024-01-01T00:00:13Z\n", '\n"c",3,2024-01-01T00:00:13Z\nd,4,\n'])
def test_csv_without_a_header_is_refused_for_its_first_row_would_be_lost(hub: Served, body: str) -> None:
    before = hub.get("/v1/status")["streams"]
    status, problem = hub.post("/v1/streams/s/rows", body, "-H", "Content-Type: text/csv")
    assert (status, problem["error"]["remedy"]) == (400, "Begin with a header: k,v,at."), problem
    assert "names no column of stream 's'" in problem["error"]["message"]
    assert hub.get("/v1/status")["streams"] == before


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ("Content-Encoding: gzip", "'gzip'"),
        ("Content-Encoding: identity, br", "'br'"),
        ("Content-Type: application/json; charset=latin-1", "'latin-1'"),
        ('Content-Type: text/csv; header=present; Charset="UTF-16"', "'UTF-16'"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/streams/s/rows", "/v1/statements", "/v1/check", "/v1/queries"])
def test_a_body_that_is_compressed_or_in_another_charset_is_refused(
    hub: Served, path: str, header: str, named: str
) -> None:
    before = hub.get("/v1/status")["streams"]
    status, problem = hub.post(path, "SHOW STREAMS", "-H", header)
    assert (status, named in problem["error"]["message"]) == (415, True), problem
    assert problem["error"]["remedy"].startswith("Send it ")
    assert hub.get("/v1/status")["streams"] == before


@pytest.mark.parametrize("kind", ["text/plain; charset=utf-8", 'text/plain;charset="UTF8"', "text/plain"])
def test_a_body_in_utf_8_is_read(hub: Served, kind: str) -> None:
    headers = ("-H", f"Content-Type: {kind}", "-H", "Content-Encoding: identity")
    assert hub.post("/v1/statements", "SHOW STREAMS LIKE 'é'", *headers)[0] == 200


def test_followers_get_rows_with_cursors_and_resume_after_one(hub: Served) -> None:
    with subprocess.Popen(
        ["curl", "-sN", "--max-time", "60", f"{hub.url}/v1/queries/q/follow?since=0"],
        stdout=subprocess.PIPE,
        text=True,
    ) as follower:
        assert follower.stdout is not None
        hub.post("/v1/streams/s/rows", '{"k":"z","v":1,"at":"2024-01-01T00:01:00Z"}\n', *JSON_LINES)
        lines = []
        while not any('"k":"c"' in line for line in lines):
            lines.append(follower.stdout.readline())
        follower.kill()
    cursors = [int(line.split()[1]) for line in lines if line.startswith("id: ")]
    assert cursors == sorted(set(cursors))
    data = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    resumed = subprocess.run(
        [
            "curl",
            "-sN",
            "--max-time",
            "2",
            "-H",
            f"Last-Event-ID: {cursors[0]}",
            f"{hub.url}/v1/queries/q/follow",
        ],
        capture_output=True,
        text=True,
    )
    again = [
        json.loads(line.removeprefix("data: "))
        for line in resumed.stdout.splitlines()
        if line.startswith("data: ")
    ]
    assert again == data[1:]


def test_a_client_gets_what_it_has_not_acknowledged(hub: Served) -> None:
    def fetched() -> list[str]:
        follow = f"{hub.url}/v1/queries/q/follow?client=me"
        done = subprocess.run(["curl", "-sN", "--max-time", "1", follow], capture_output=True, text=True)
        return [line for line in done.stdout.splitlines() if line.startswith("id: ")]

    first = fetched()
    assert first
    assert fetched() == first
    cursor = first[0].split()[1]
    status, _ = hub.post(f"/v1/queries/q/acknowledge?client=me&cursor={cursor}", "")
    assert status == 200
    assert fetched() == first[1:]
    status, problem = hub.post("/v1/queries/q/acknowledge?client=me&cursor=999999", "")
    assert (status, problem["error"]["remedy"]) == (400, "Send the id of a received event.")


def test_the_name_of_a_client_fits_a_file(hub: Served) -> None:
    for name, status in (("c" * 246, 200), ("c" * 247, 400), ("%2F" * 83, 400)):
        found, answer = hub.post(f"/v1/queries/q/acknowledge?client={name}&cursor=0", "")
        assert found == status, answer
    assert answer["error"]["message"] == f"the name of the client is too long for a file's: '{'/' * 40}…'"
    assert answer["error"]["remedy"].startswith("Take 3 bytes less")


@pytest.mark.parametrize("parameter", ["after", "since"])
def test_history_by_page_has_every_row_once(hub: Served, parameter: str) -> None:
    rows, after = [], ""
    while True:
        page = hub.get(f"/v1/queries/q/results?limit=1{after}")
        if not page["rows"]:
            break
        assert len(page["rows"]) == 1
        rows += page["rows"]
        after = f"&{parameter}={page['next']}"
    assert rows == hub.get("/v1/queries/q/results")["rows"]
    assert len(rows) == 3
    assert hub.get("/v1/queries/q/results?since=2024-01-01T00:00:20Z")["rows"] == rows[1:]


def test_arrow_keeps_types(hub: Served) -> None:
    done = subprocess.run(
        ["curl", "-s", "-H", "Accept: application/vnd.apache.arrow.stream", f"{hub.url}/v1/queries/q/answer"],
        capture_output=True,
        check=True,
    )
    table = pa.ipc.open_stream(done.stdout).read_all()
    assert table.schema.field("n").type == pa.int64()


def test_queries_are_listed_by_page_searched_paused_and_dropped(hub: Served) -> None:
    selects = {f"n{number:02d}": f"SELECT COUNT(*) AS n FROM s WHERE v > {number}" for number in range(12)}
    status, answer = hub.post(
        "/v1/queries",
        json.dumps({"queries": selects, "owner": "ann"}),
        "-H",
        "Content-Type: application/json",
    )
    assert (status, len(answer["registered"])) == (200, 12)
    first = hub.get("/v1/queries?owner=ann&limit=5")
    second = hub.get(f"/v1/queries?owner=ann&limit=10&after={first['next']}")
    assert [q["name"] for q in first["queries"] + second["queries"]] == sorted(selects)
    assert second["next"] is None
    assert [q["name"] for q in hub.get("/v1/queries?like=N11")["queries"]] == ["n11"]
    assert hub.post("/v1/queries/n00/pause", "")[0] == 200
    assert hub.get("/v1/queries/n00")["paused"] is True
    assert hub.get("/v1/queries/n00")["columns"] == [{"name": "n", "type": "BIGINT"}]
    assert hub.curl("/v1/queries/n00", "-X", "DELETE")[0] == 200
    assert hub.curl("/v1/queries/n00")[0] == 404


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/statements", "CREATE QUERY x AS\n SELECT nothing FROM s", 400, "nothing"),
        (
            "/v1/statements",
            "CREATE QUERY q AS SELECT COUNT(*) AS n FROM s",
            409,
            "the query 'q' exists and differs",
        ),
        ("/v1/statements", "INVOKE nobody", 404, "there is no query 'nobody'"),
        ("/v1/streams/nothing/rows", "{}", 404, "there is no stream 'nothing'"),
        ("/v1/queries", '{"queries": 3}', 400, "body.queries"),
    ],
)
def test_a_mistake_is_a_problem_with_its_place_and_remedy(
    hub: Served, path: str, body: str, status: int, message: str
) -> None:
    kind = "application/json" if path == "/v1/queries" else "application/x-ndjson"
    found, problem = hub.post(path, body, "-H", f"Content-Type: {kind}")
    assert (found, message in problem["error"]["message"]) == (status, True), problem
    assert set(problem["error"]) == {"message", "line", "column", "width", "remedy"}
    assert "Traceback" not in str(problem)


def test_the_place_of_a_mistake_is_in_its_own_fields(hub: Served) -> None:
    _, problem = hub.post("/v1/statements", "CREATE QUERY x AS\n SELECT nothing FROM s")
    assert (problem["error"]["line"], problem["error"]["column"], problem["error"]["width"]) == (2, 9, 7)


def test_a_time_zone_is_that_of_one_script(hub: Served) -> None:
    hub.post("/v1/statements", "SET TIME ZONE 'Asia/Tokyo'")
    create = "CREATE QUERY noon AS SELECT COUNT(*) AS n FROM s WHERE at >= TIMESTAMP'2024-01-01 00:00:01'"
    assert hub.post("/v1/statements", create)[0] == 200
    assert hub.post("/v1/statements?zone=Asia/Tokyo", create)[0] == 409


def test_the_plan_status_health_and_description(hub: Served) -> None:
    assert hub.get("/healthz") == {"status": "alive"}
    assert hub.get("/readyz") == {"status": "ready"}
    assert hub.get("/v1/status")["running"] is True
    assert hub.get("/v1/explain?format=json")["plan"]
    assert hub.curl("/v1/queries/q/explain?format=svg")[1].lstrip().startswith("<svg")
    described = hub.get("/openapi.json")
    assert "/v1/queries/{name}/follow" in described["paths"]


def test_a_body_beyond_the_limit_is_refused_while_it_comes(hub: Served, tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate((64 << 20) + 1)
    status, text = hub.curl("/v1/streams/s/rows", "-X", "POST", "--data-binary", f"@{large}")
    assert (status, "larger than" in text) == (413, True)


def test_metrics_count_what_is_committed(hub: Served) -> None:
    def value(line: str) -> float:
        (found,) = [text for text in hub.curl("/metrics")[1].splitlines() if text.startswith(f"{line} ")]
        return float(found.rpartition(" ")[2])

    before = value('headrace_stream_rows_total{stream="s"}')
    hub.post("/v1/streams/s/rows", '{"k":"m","v":1,"at":"2024-01-01T00:01:01Z"}\n' * 3, *JSON_LINES)
    for _ in range(200):
        if value('headrace_stream_rows_total{stream="s"}') == before + 3:
            break
    assert value('headrace_stream_rows_total{stream="s"}') == before + 3
    hub.post("/v1/statements", "PAUSE QUERY total")
    assert value('headrace_queries{state="paused"}') == 1
    hub.post("/v1/statements", "RESUME QUERY total")
    assert value('headrace_epoch_seconds_count{stage="execute"}') > 0
    assert value('headrace_http_request_seconds_count{method="POST",route="/v1/statements",status="200"}') > 0


def test_followers_are_counted_by_their_connection(hub: Served) -> None:
    def counted() -> dict[str, float]:
        samples = re.findall(r'headrace_followers{connection="(\w+)"} (\S+)', hub.curl("/metrics")[1])
        return {connection: float(count) for connection, count in samples}

    eventually(lambda: counted() == {"events": 0, "websocket": 0})  # those of earlier tests are gone
    address = hub.url.replace("http://", "ws://") + "/v1/queries/q/follow"
    follow = ["curl", "-sN", "--max-time", "60", f"{hub.url}/v1/queries/q/follow"]
    with connect(address), connect(address), subprocess.Popen(follow, stdout=subprocess.PIPE) as following:
        eventually(lambda: counted() == {"events": 1, "websocket": 2})
        following.kill()
        eventually(lambda: counted() == {"events": 0, "websocket": 2})
    eventually(lambda: counted() == {"events": 0, "websocket": 0})


def test_a_websocket_sends_as_many_epochs_as_there_are_credits(hub: Served) -> None:
    address = hub.url.replace("http://", "ws://") + "/v1/queries/q/follow?since=0&client=socket"
    with connect(address) as socket:
        with pytest.raises(TimeoutError):
            socket.recv(timeout=0.5)
        socket.send('{"credits": 1}')
        first = json.loads(socket.recv(timeout=30))
        with pytest.raises(TimeoutError):
            socket.recv(timeout=0.5)
        socket.send(json.dumps({"acknowledge": first["cursor"], "credits": 100}))
        second = json.loads(socket.recv(timeout=30))
    assert first["cursor"] < second["cursor"]
    with connect(address) as again:
        again.send('{"credits": 1}')
        assert json.loads(again.recv(timeout=30)) == second


def test_a_websocket_for_nothing_or_of_nonsense_is_closed_with_a_reason(hub: Served) -> None:
    with (
        pytest.raises(InvalidStatus),
        connect(hub.url.replace("http://", "ws://") + "/v1/queries/none/follow"),
    ):
        pass
    with connect(hub.url.replace("http://", "ws://") + "/v1/queries/q/follow") as socket:
        socket.send("nonsense")
        with pytest.raises(ConnectionClosed, match="expected"):
            socket.recv(timeout=30)
