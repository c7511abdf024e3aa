"""Access over the network: tokens, and what is refused without one."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect as connect_socket

from headrace import connect as headrace_connect
from headrace.errors import UnknownName
from headrace.runtime.home.lru_cache import Recent
from headrace.server.access import Access
from headrace.server.following import Feed
from headrace.server.open_or_connect import open_hub
from headrace.server.problems import Refused
from headrace.server.security.audit import AuditLog
from headrace.server.security.permissions import Limits
from headrace.server.security.principal import Principal
from headrace.server.security.quotas import Quotas
from headrace.server.security.roots import Roots
from tests.cli.building import headrace
from tests.server.serving import STREAM, Served, certificate, served

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
    ("GET", "/v1/queries/q/timeline"),
    ("GET", "/v1/queries/q/costs"),
    ("GET", "/v1/network?query=q"),
    ("GET", "/v1/network/box?query=q&name=query%20q"),
    ("GET", "/v1/network/line?query=q&source=read%20s&target=query%20q"),
    ("GET", "/v1/summary"),
    ("GET", "/v1/catalog"),
    ("GET", "/v1/epochs"),
    ("POST", "/v1/epochs/pause"),
    ("POST", "/v1/epochs/step"),
    ("POST", "/v1/epochs/catch-up"),
    ("POST", "/v1/epochs/resume"),
    ("POST", "/v1/check"),
]
CALLING = "CREATE QUERY x AS SELECT k FROM s THEN CALL 'https://example.org/' WITH ({})"
READS = {("POST", "/v1/queries/q/acknowledge"), ("POST", "/v1/check")}
"""What changes nothing, or only how far the client itself has read."""


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


def tokens_of(home: Path) -> Callable[..., str]:
    """Makes tokens as an administrator does, while the hub runs."""

    def make(owner: str, role: str) -> str:
        done = headrace("token", "create", "--home", home, "--owner", owner, "--role", role)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[1]

    return make


def test_every_route_refuses_a_revoked_token_and_hides_what_belongs_to_another_owner(tmp_path: Path) -> None:
    """What a route answers to the owner, to another owner and to a token that was revoked, for every route there is."""
    home = tmp_path / "home"
    with served(home, auth=True) as hub:
        make = tokens_of(home)
        ana, ben, reader = make("ana", "register"), make("ben", "register"), make("ana", "read")
        revoked = make("ana", "register")
        listed = headrace("token", "list", "--home", home).stdout
        assert listed.count("ana") == 3
        name = hashlib.sha256(revoked.encode()).hexdigest()[:12]
        assert name in listed
        assert headrace("token", "revoke", name, "--home", home).returncode == 0
        assert name not in headrace("token", "list", "--home", home).stdout
        assert hub.curl("/v1/statements", "-d", STREAM, token=hub.token)[0] == 200
        query = "CREATE QUERY q AS SELECT k FROM s"
        for method, route in ROUTES:
            assert hub.curl(route, "-X", method, token=revoked)[0] == 403, route
        assert hub.curl("/v1/statements", "-d", query, token=reader)[0] == 403
        assert hub.curl("/v1/statements", "-d", query, token=ana)[0] == 200
        for method, route in ROUTES:
            if not PLACEHOLDER.search(route) or "/streams/" in route:
                continue
            status, text = hub.curl(route, "-X", method, token=ben)
            assert (status, "there is no query 'q'" in text) == (404, True), route
            if method == "GET" and "follow" not in route:
                assert hub.curl(route, token=reader)[0] == 200, route
                assert hub.curl(route, token=hub.token)[0] == 200, route
        for method, route in ROUTES:
            writes = (method, route.partition("?")[0]) not in READS
            if writes and method != "GET":
                body = '{"queries": {}}' if route == "/v1/queries" else "DROP QUERY q"
                status, text = hub.curl(route, "-X", method, "--json", body, token=reader)
                assert status == 403, (route, text)
        for all_work in ("/v1/explain", "/v1/network", "/v1/network?like=q", "/v1/network/box?name=read%20s"):
            assert hub.curl(all_work, token=ana)[0] == 403, all_work
        line = "/v1/network/line?query=q&source=read%20s&target=query%20q"
        for own_work in ("/v1/network?query=q", "/v1/network/box?query=q&name=query%20q", line):
            assert hub.curl(own_work, token=ana)[0] == 200, own_work
            assert hub.curl(own_work, token=ben)[0] == 404, own_work
        reading, beside = "CREATE QUERY x AS SELECT k FROM q", "CREATE QUERY x AS SELECT k FROM s"
        assert hub.curl("/v1/check", "-d", reading, token=ben)[0] == 404
        for token, seen in ((ana, ["q"]), (ben, [])):
            (checked,) = json.loads(hub.curl("/v1/check", "-d", beside, token=token)[1])["queries"]
            assert {(work["queries"], *work["names"]) for work in checked["work"] if work["queries"]} == {
                (1, *seen)
            }
        assert json.loads(hub.curl("/v1/summary", token=ben)[1])["queries"]["live"] == 0
        assert json.loads(hub.curl("/v1/queries", token=ben)[1])["queries"] == []
        assert [each["name"] for each in json.loads(hub.curl("/v1/queries", token=ana)[1])["queries"]] == [
            "q"
        ]
        assert json.loads(hub.curl("/v1/status", token=ben)[1])["queries"] == {}
        assert list(json.loads(hub.curl("/v1/status", token=ana)[1])["queries"]) == ["q"]
        assert hub.curl("/v1/queries/q", "-X", "DELETE", token=ana)[0] == 200


@pytest.mark.parametrize(
    ("statement", "status"),
    [
        ("SHOW QUERIES", 200),
        ("SHOW ACTIONS", 200),
        ("SHOW STREAMS", 200),
        ("SHOW SINKS", 403),
        ("EXPLAIN ALL", 403),
        ("INVOKE q", 404),
        ("DESCRIBE q", 404),
        ("SHOW CREATE QUERY q", 404),
        ("EXPLAIN QUERY q", 404),
        ("EXPLAIN SELECT k FROM q", 404),
        ("EXPLAIN SELECT k FROM (SELECT k FROM q) AS inner_one", 404),
        ("EXPLAIN SELECT k FROM s WHERE k IN (SELECT k FROM q)", 404),
        (
            "CREATE QUERY mine AS SELECT k FROM s; CREATE QUERY x AS SELECT k FROM mine UNION ALL SELECT k FROM q",
            404,
        ),
        ("CREATE QUERY x AS SELECT query FROM system.queries", 403),
        (
            "CREATE QUERY x AS SELECT k FROM s WHERE k IN (SELECT query FROM system.queries [RANGE 1 HOUR])",
            403,
        ),
        ("EXPLAIN SELECT epoch FROM system.epochs", 403),
        ("CREATE OR REPLACE QUERY q AS SELECT v FROM s", 409),
        ("CREATE QUERY x OPTIONS (owner 'ana') AS SELECT k FROM s", 403),
        ("ALTER QUERY q AS SELECT v FROM s", 404),
        ("ALTER QUERY q SET (tags 'a')", 404),
        ("CREATE QUERY x AS SELECT k FROM s THEN WRITE TO 'out'", 403),
        ("CREATE QUERY x AS SELECT k FROM s THEN WRITE TO s", 400),
        (CALLING.format("secretFile 'ana.key'"), 403),
        (CALLING.format("secretFile 'hook'"), 403),
        (CALLING.format("secretEnv 'HEADRACE_SECRET_ANA'"), 403),
        (CALLING.format("secretEnv 'HEADRACE_SECRET_BEN_2'"), 403),
        (CALLING.format("secretEnv 'HEADRACE_SECRET_BEN'"), 400),
        (CALLING.format("secretFile 'ben.key'"), 400),
        ("ALTER QUERY q THEN NOTHING", 404),
        ("ALTER QUERY q RENAME TO r", 404),
        ("PAUSE q", 404),
        ("RESUME q", 404),
        ("DROP QUERY q", 404),
        ("DROP QUERIES LIKE '%'", 200),
        ("PAUSE QUERIES LIKE '%'", 200),
        ("DROP STREAM s", 403),
        ("CREATE STREAM t (k STRING) USING push", 403),
        ("ALTER STREAM s SET (keep '0.5')", 403),
        ("PUNCTUATE s AT TIMESTAMP '2020-01-01'", 403),
        ("REFRESH RELATION r", 403),
        ("CREATE RELATION r (k STRING) USING csv OPTIONS (path 'r.csv')", 403),
    ],
)
def test_a_statement_of_another_owner_finds_changes_and_shows_nothing(
    both: tuple[Served, str, str], statement: str, status: int
) -> None:
    hub, ana, ben = both
    found, text = hub.curl("/v1/statements", "-d", statement, token=ben)
    assert (found, status) == (status, status), text
    if statement.startswith("SHOW") and status == 200 and "STREAMS" not in statement:
        assert json.loads(text)[0]["rows"] == []
    (query,) = json.loads(hub.curl("/v1/queries", token=ana)[1])["queries"]
    assert (query["name"], query["owner"], query["paused"], query["tags"]) == ("q", "ana", False, [])
    assert json.loads(hub.curl("/v1/queries", token=ben)[1])["queries"] == []


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str, str]]:
    """A hub with the query q of ana, and the tokens of ana and ben."""
    home = tmp_path_factory.mktemp("both") / "home"
    with served(home, auth=True) as hub:
        make = tokens_of(home)
        ana, ben = make("ana", "register"), make("ben", "register")
        assert hub.curl("/v1/statements", "-d", STREAM, token=hub.token)[0] == 200
        query = "CREATE QUERY q AS SELECT k FROM s THEN CALL 'https://example.org/'"
        assert hub.curl("/v1/statements", "-d", query, token=ana)[0] == 200
        yield hub, ana, ben


def test_an_owner_may_do_all_that_with_its_own_queries(both: tuple[Served, str, str]) -> None:
    hub, ana, ben = both
    status, text = hub.curl("/v1/statements", "-d", "SHOW ACTIONS; SHOW CREATE QUERY q", token=ana)
    action, created = (answer["rows"] for answer in json.loads(text))
    assert [(row["name"], row["owner"]) for row in action] == [("q", "ana")]
    assert created[0]["statement"].endswith("THEN CALL 'https://example.org/'")
    script = (
        "CREATE QUERY b AS SELECT k FROM s; CREATE QUERY c AS SELECT k FROM b; DESCRIBE b; EXPLAIN QUERY c;"
        " ALTER QUERY c SET (tags 'x'); PAUSE c; RESUME c; SHOW QUERIES; DROP QUERY c; DROP QUERIES LIKE '%'"
    )
    status, text = hub.curl("/v1/statements", "-d", script, token=ben)
    assert status == 200, text
    answers = json.loads(text)
    assert [row["owner"] for row in answers[7]["rows"]] == ["ben", "ben"]
    assert "1 query dropped: b" in answers[9]["message"]


def test_an_owner_may_not_set_actions_with_the_secret_of_another(both: tuple[Served, str, str]) -> None:
    hub, ana, _ = both
    then = "ALTER QUERY q THEN CALL 'https://example.org/' WITH (secretFile '{}')"
    status, text = hub.curl("/v1/statements", "-d", then.format("ben.key"), token=ana)
    assert (status, "is not that of 'ana'" in text) == (403, True)
    status, text = hub.curl("/v1/statements", "-d", then.format("ana.key"), token=ana)
    assert (status, "cannot read the secret" in text) == (400, True)


def test_a_socket_of_another_owner_is_refused(both: tuple[Served, str, str]) -> None:
    hub, ana, ben = both
    url = f"{hub.url.replace('http', 'ws')}/v1/queries/q/follow"
    for token, status in ((ben, 404), ("wrong", 403)):
        with (
            pytest.raises(InvalidStatus, match=f"HTTP {status}"),
            connect_socket(url, additional_headers={"Authorization": f"Bearer {token}"}),
        ):
            pass
    with connect_socket(url, additional_headers={"Authorization": f"Bearer {ana}"}):
        pass


def test_a_follower_gets_nothing_of_a_query_that_is_another_owners_now(tmp_path: Path) -> None:
    with open_hub(tmp_path / "home", local=True) as hub:
        hub.execute(f"{STREAM} CREATE QUERY q OPTIONS (owner 'ana') AS SELECT k FROM s")
        ana = Limits(Roots((), hub.path)).of(Principal("ana", "read"))
        feed = Feed(hub, "q", "json", Recent(1), ana, Access(None))
        feed.require_permitted()
        hub.execute("DROP QUERY q; CREATE QUERY q OPTIONS (owner 'ben') AS SELECT k, v FROM s")
        with pytest.raises(UnknownName, match="there is no query 'q'"):
            feed.require_permitted()


def test_quotas_say_the_limit(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with served(home, "--max-queries", "2", "--max-rows", "10", "--max-body", "500", auth=True) as hub:
        ana = tokens_of(home)("ana", "register")
        assert hub.curl("/v1/statements", "-d", STREAM, token=hub.token)[0] == 200
        create = "CREATE QUERY q{} AS SELECT k FROM s;"
        script = "".join(create.format(number) for number in range(3))
        status, text = hub.curl("/v1/statements", "-d", script, token=ana)
        assert (status, "has 2 queries, and may have 2" in text) == (403, True)
        many = json.dumps({"queries": {f"q{number}": "SELECT k FROM s" for number in range(3)}})
        assert hub.curl("/v1/queries", "--json", many, token=ana)[0] == 403
        assert json.loads(hub.curl("/v1/queries", token=ana)[1])["queries"] == []
        assert hub.curl("/v1/statements", "-d", script.replace("q2", "q1"), token=ana)[0] == 200
        unlimited = script.replace("QUERY q", "QUERY mine")
        assert hub.curl("/v1/statements", "-d", unlimited, token=hub.token)[0] == 200
        rows = "\n".join(['{"k":"a","v":1,"at":"2020-01-01T00:00:00Z"}'] * 10)
        pushes = [hub.curl("/v1/streams/s/rows", "-i", "-d", rows, token=ana) for _ in range(2)]
        assert pushes[0][0] == 200, pushes
        assert pushes[1][0] == 429, pushes
        assert "may push 10 rows a second" in pushes[1][1]
        assert "retry-after: 1" in pushes[1][1].lower()
        assert hub.curl("/v1/streams/s/rows", "-d", rows, token=hub.token)[0] == 200
        status, text = hub.curl("/v1/statements", "-d", "-" * 501, token=ana)
        assert (status, "larger than 500 bytes" in text) == (413, True)


def test_a_full_bucket_holds_a_second_and_large_pushes_are_paid_for_afterwards() -> None:
    now = [0.0]
    quotas = Quotas(rows_per_second=10, seconds=lambda: now[0])
    ana = Principal("ana", "register")
    now[0] = 100.0
    quotas.take_rows(ana, 25)
    with pytest.raises(Refused) as raised:
        quotas.take_rows(ana, 1)
    assert raised.value.headers == {"Retry-After": "2"}
    now[0] += 1.7
    quotas.take_rows(ana, 2)
    with pytest.raises(Refused):
        quotas.take_rows(ana, 1)
    now[0] += 1000
    quotas.take_rows(ana, 25)
    with pytest.raises(Refused):
        quotas.take_rows(ana, 1)
    quotas.take_rows(Principal("ben", "register"), 10)
    with pytest.raises(Refused, match="'BEN' may push 10 rows a second"):
        quotas.take_rows(Principal("BEN", "register"), 10)
    quotas.take_rows(Principal("ana", "administer"), 1000)


def test_changes_and_refusals_are_in_the_audit_log(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with served(home, auth=True) as hub:
        ana = tokens_of(home)("ana", "register")
        hub.curl("/v1/statements", "-d", STREAM, token=hub.token)
        hub.curl("/v1/statements", "-d", "DROP STREAM s", token=ana)
        hub.curl("/v1/queries", token="wrong")
        hub.curl("/v1/queries", token=ana)
        hub.curl("/v1/streams/s/rows", "-d", '{"k":"a","v":1}', token=ana)
    assert (home / "audit.jsonl").stat().st_mode & 0o077 == 0
    made, dropped, wrong = (json.loads(line) for line in (home / "audit.jsonl").read_text().splitlines())
    assert (made["role"], made["status"], made["statement"]) == ("administer", 200, STREAM)
    assert (dropped["owner"], dropped["role"], dropped["status"]) == ("ana", "register", 403)
    assert (dropped["statement"], dropped["message"]) == (
        "DROP STREAM s",
        "the token's role is 'register', and this needs 'administer'",
    )
    assert dropped["token"] == hashlib.sha256(ana.encode()).hexdigest()[:12]
    assert dropped["address"] == "127.0.0.1"
    assert (wrong["owner"], wrong["method"], wrong["path"], wrong["status"]) == (
        None,
        "GET",
        "/v1/queries",
        403,
    )


def test_the_audit_log_rotates_and_keeps_the_newest(tmp_path: Path) -> None:
    log = AuditLog(tmp_path, largest=100)
    for number in range(60):
        log.write({"number": number, "text": "x" * 80})
    files = sorted(tmp_path.glob("audit-*.jsonl"))
    assert [json.loads(file.read_text())["number"] for file in files] == list(range(44, 60))
    assert len({file.name for file in files}) == 16


def test_paths_over_the_network_are_below_a_root(tmp_path: Path) -> None:
    home, data, other = tmp_path / "home", tmp_path / "data", tmp_path / "other"
    for folder in (data, other):
        folder.mkdir()
        (folder / "a.csv").write_text("k\na\n")
    (data / "link").symlink_to(other)
    stream = "CREATE OR REPLACE STREAM f (k STRING) USING csv OPTIONS (path '{}', header 'true')"
    with served(home, "--allow-root", str(data)) as hub:
        assert hub.post("/v1/statements", STREAM)[0] == 200
        assert hub.post("/v1/statements", stream.format(data / "*.csv"))[0] == 200
        for path in (
            other,
            data / "link",
            f"{data}/../other",
            f"file:{other}",
            home / "tokens",
            f"{tmp_path}/*/a.csv",
        ):
            status, problem = hub.post("/v1/statements", stream.format(path))
            assert (status, "path" in problem["error"]["message"]) == (403, True), path
        relation = stream.format(other).replace("STREAM f", "RELATION r")
        assert hub.post("/v1/statements", relation)[0] == 403
        query = "CREATE QUERY q AS SELECT k FROM s THEN WRITE TO '{}'"
        assert hub.post("/v1/statements", query.format(other))[0] == 403
        assert hub.post("/v1/statements", query.format(data / "out"))[0] == 200
        assert hub.post("/v1/statements", f"ALTER QUERY q THEN WRITE TO '{other}'")[0] == 403
        with headrace_connect(home) as local:
            local.execute(stream.format(other))


def test_a_pattern_does_not_lead_out_of_a_root(tmp_path: Path) -> None:
    """`*/..` is the root itself or a folder that a link leads to; what is before the pattern cannot show it."""
    roots = Roots((tmp_path / "data",), tmp_path / "home")
    roots.require(str(tmp_path / "data" / "*" / "a.csv"))
    with pytest.raises(Refused, match=r"has a '\.\.'"):
        roots.require(str(tmp_path / "data" / "*" / ".." / ".." / "other"))


@pytest.mark.parametrize(
    "path",
    [
        "data/{.,x}{.,x}/other",
        "data/{a,.{.,x}}/other",
        "{data,other}/a.csv",
        "{data/a" + ",other/b}",
        "data/{h,{.,x}{.,x}/home/tokens/}*",
    ],
)
def test_alternatives_of_a_pattern_do_not_lead_out_of_a_root(tmp_path: Path, path: str) -> None:
    roots = Roots((tmp_path / "data",), tmp_path / "home")
    roots.require(str(tmp_path / "data" / "{a,b{1,2}}" / "c.csv"))
    with pytest.raises(Refused, match="path"):
        roots.require(f"{tmp_path}/{path}")


def test_an_absolute_alternative_does_not_lead_out_of_a_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    roots = Roots((tmp_path,), tmp_path / "home")
    roots.require("{a,b}.csv")
    with pytest.raises(Refused, match="/etc/passwd"):
        roots.require("{/etc/passwd,/etc/passwd}")


def test_a_pattern_of_very_many_alternatives_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="more than 100 alternatives"):
        Roots((tmp_path,), tmp_path / "home").require(f"{tmp_path}/{'{a,b}' * 60}")


def test_an_owner_pushes_no_repetition_of_what_another_has_pushed(both: tuple[Served, str, str]) -> None:
    hub, ana, ben = both
    push, row = (
        ("-X", "POST", "-H", "Idempotency-Key: 1", "-d"),
        '{{"k":"a","v":{},"at":"2024-01-01T00:00:01Z"}}',
    )
    for token, value in ((ana, 1), (ben, 2), (ana, 1)):
        status, text = hub.curl("/v1/streams/s/rows", *push, row.format(value), token=token)
        assert (status, text) == (200, '{"accepted":1,"rejected":0}')
    path = "/v1/streams/s/rows"
    numbered = ("-H", "Producer: action-0a17", "-H", "Sequence: 99", "-d", row.format(1))
    assert hub.curl(path, *numbered, token=hub.token)[0] == 403
    assert hub.curl(path, *numbered, token=ana)[0] == 200


def test_the_home_is_no_root_even_where_it_is_below_one(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    roots = Roots((tmp_path,), tmp_path / "home")
    roots.require(str(tmp_path / "data.csv"))
    for path in (tmp_path / "home" / "secrets" / "x", tmp_path / "h*" / "x", tmp_path / "*"):
        with pytest.raises(Refused, match="may be in the hub's home"):
            roots.require(str(path))


def test_a_certificate_encrypts(tmp_path: Path) -> None:
    made, key = certificate(tmp_path)
    with served(tmp_path / "home", "--tls-cert", str(made), "--tls-key", str(key), auth=True) as hub:
        port = hub.url.rpartition(":")[2]
        assert hub.url == f"https://127.0.0.1:{port}"
        known = replace(hub, url=f"https://localhost:{port}")
        assert known.curl("/v1/queries", "--cacert", str(made), token=hub.token)[0] == 200
        plain = subprocess.run(["curl", "-sS", f"http://127.0.0.1:{port}/healthz"], capture_output=True)
        assert plain.returncode != 0
    done = headrace("serve", "--home", tmp_path / "other", "--tls-cert", made)
    assert (done.returncode, "belong together" in done.stderr) == (2, True)
    done = headrace("serve", "--home", tmp_path / "other", "--tls-cert", key, "--tls-key", made)
    assert (done.returncode, "cannot use the certificate" in done.stderr) == (2, True)


def test_actions_of_a_hub_with_tokens_reach_public_addresses_and_those_that_are_allowed(
    tmp_path: Path,
) -> None:
    query = "CREATE QUERY q AS SELECT k FROM s THEN CALL 'http://127.0.0.1:9/'"
    with served(tmp_path / "home", auth=True) as hub:
        assert hub.curl("/v1/statements", "-d", STREAM, token=hub.token)[0] == 200
        status, text = hub.curl("/v1/statements", "-d", query, token=hub.token)
        assert (status, "may not reach 127.0.0.1" in text) == (400, True)
    with served(tmp_path / "other", "--allow-call", "127.0.0.0/8", auth=True) as hub:
        assert hub.curl("/v1/statements", "-d", STREAM + query, token=hub.token)[0] == 200


def test_a_token_of_a_limited_role_needs_an_owner(tmp_path: Path) -> None:
    with served(tmp_path / "home", auth=True):
        done = headrace("token", "create", "--home", tmp_path / "home", "--role", "read")
        assert (done.returncode, "needs an owner" in done.stderr) == (2, True)
        assert headrace("token", "revoke", "nothing", "--home", tmp_path / "home").returncode == 2
        assert headrace("token", "revoke", "--home", tmp_path / "home").returncode == 2
    assert headrace("token", "list", "--home", tmp_path / "nowhere").returncode == 2


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
