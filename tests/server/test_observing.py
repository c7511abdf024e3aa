"""What a running hub answers to its observers: costs, earlier answers, the network, checks, epochs one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.server.serving import STREAM, TOTAL, TUMBLE, Served, served

ALERTS = 30


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served") / "home") as running:
        running.post("/v1/statements", STREAM + TUMBLE + TOTAL)
        selects = {
            f"alert_{n:02d}": f"SELECT k, COUNT(*) AS n FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] WHERE v > {n} GROUP BY k"
            for n in range(ALERTS)
        }
        body = json.dumps({"queries": selects, "owner": "ann", "tags": ["alerts"]})
        running.post("/v1/queries", body, "-H", "Content-Type: application/json")
        for second in (1, 12, 23):
            push(running, second)
        yield running


def push(hub: Served, *seconds: int) -> None:
    before = hub.get("/v1/summary")["streams"]["s"]["rows"] or 0
    rows = [
        {"k": "ab"[second % 2], "v": second, "at": f"2024-01-01T00:00:{second:02d}Z"} for second in seconds
    ]
    hub.post("/v1/streams/s/rows", "".join(f"{json.dumps(row)}\n" for row in rows))
    for _ in range(500):
        if hub.get("/v1/summary")["streams"]["s"]["rows"] == before + len(seconds):
            return
    pytest.fail("the rows are in no epoch")


def test_queries_are_sorted_by_what_they_take_and_listed_by_page(hub: Served) -> None:
    pages = [hub.get(f"/v1/queries?sort=nanoseconds&limit=10&skip={skip}") for skip in (0, 10, 20, 30)]
    costs = [query["nanoseconds"] for page in pages for query in page["queries"]]
    names = {query["name"] for page in pages for query in page["queries"]}
    assert (len(costs), len(names), pages[0]["total"]) == (ALERTS + 2, ALERTS + 2, ALERTS + 2)
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] > 0
    assert sum(query["share"] for page in pages for query in page["queries"]) == pytest.approx(1)
    selective = hub.get("/v1/queries?sort=selectivity&tag=alerts")["queries"]
    assert [query["selectivity"] for query in selective] == sorted(
        (query["selectivity"] for query in selective), reverse=True
    )
    assert "nanoseconds" not in hub.get("/v1/queries")["queries"][0]


def test_queries_are_listed_by_state(hub: Served) -> None:
    hub.post("/v1/queries/alert_07/pause", "")
    assert [query["name"] for query in hub.get("/v1/queries?state=paused")["queries"]] == ["alert_07"]
    assert hub.get("/v1/queries?state=live")["total"] == ALERTS + 1
    assert hub.get("/v1/summary")["queries"] == {"live": ALERTS + 1, "paused": 1, "failed": 0}
    hub.post("/v1/queries/alert_07/resume", "")


def test_an_answer_as_of_a_time_and_the_times_at_which_there_are_results(hub: Served) -> None:
    line = hub.get("/v1/queries/q/timeline?buckets=4")
    assert line["last"] - line["first"] == 10_000_000
    assert sum(line["rows"]) == 2
    then = hub.get(f"/v1/queries/q/answer?at={quote('2024-01-01T00:00:10Z')}")["rows"]
    assert then == [{"k": "b", "n": 1}]
    status, answer = hub.curl("/v1/queries/q/answer?at=yesterday")
    assert (status, "'yesterday' is no time" in answer) == (400, True)
    assert hub.curl("/v1/queries/q/answer?at=2024-01-01&last=1%20SECONDS")[0] == 400


def test_the_costs_of_all_queries_in_an_epoch_add_up_to_its_work(hub: Served) -> None:
    names = [query["name"] for query in hub.get("/v1/queries?limit=100")["queries"]]
    spent = {name: hub.get(f"/v1/queries/{name}/costs")["epochs"] for name in names}
    last = hub.get("/v1/status")["last_epoch"]
    work = sum(each["nanoseconds"] for each in last["work"].values())
    here = [point for points in spent.values() for point in points if point["epoch"] == last["epoch"]]
    assert sum(point["nanoseconds"] for point in here) == pytest.approx(work)
    assert sum(point["results"] for point in here) == sum(
        each["results"] for each in last["operators"].values()
    )


def test_the_network_has_what_passes_along_each_line_and_who_shares_each_box(hub: Served) -> None:
    drawn = hub.get("/v1/network")
    boxes = {box["name"]: box for box in drawn["boxes"]}
    assert len(boxes) == len(drawn["boxes"]) <= 60
    assert all(line["source"] in boxes and line["target"] in boxes for line in drawn["lines"])
    assert boxes["read s"]["kind"] == "read"
    into = sum(line["rows"] for line in drawn["lines"] if line["source"] == "read s")
    folds = {line["target"] for line in drawn["lines"] if line["source"] == "read s"}
    first, last = map(int, re.findall(r"epochs (\d+) to (\d+)", drawn["caption"])[0])
    assert into == pytest.approx(3 * len(folds) / (last - first + 1))
    shared = hub.get(f"/v1/network/box?name={quote('read s')}&limit=5&search=alert")
    assert (shared["total"], len(shared["queries"])) == (ALERTS, 5)
    costs = [query["nanoseconds"] for query in shared["queries"]]
    assert costs == sorted(costs, reverse=True)
    others = hub.get(f"/v1/network/box?name={quote('more queries')}&limit=100")
    drawn_by_name = {box["title"][0] for box in drawn["boxes"] if box["kind"] == "query"}
    assert len({query["name"] for query in others["queries"]} | drawn_by_name) == ALERTS + 2


def test_a_line_has_its_rows_in_each_epoch_and_their_mean_is_that_of_the_picture(hub: Served) -> None:
    for chosen in ("query=total", "like=alert_1", ""):
        drawn = hub.get(f"/v1/network?{chosen}")
        first, last = map(int, re.findall(r"epochs (\d+) to (\d+)", drawn["caption"])[0])
        for line in drawn["lines"]:
            ends = f"source={quote(line['source'])}&target={quote(line['target'])}"
            found = hub.get(f"/v1/network/line?{ends}&{chosen}&epochs=1000")["epochs"]
            epochs = [point["epoch"] for point in found]
            assert epochs == sorted(set(epochs))
            assert last in epochs
            passed = [point["rows"] for point in found if first <= point["epoch"] <= last]
            assert sum(passed) == pytest.approx(line["rows"] * (last - first + 1))
        assert any(line["rows"] for line in drawn["lines"])
    newest = hub.get(f"/v1/network/line?{ends}&epochs=1")["epochs"]
    assert newest == found[-1:]


def test_boxes_without_a_line_have_no_rows_and_others_are_not_known(hub: Served) -> None:
    path = "/v1/network/line?query=total&source=read%20s&target="
    assert {point["rows"] for point in hub.get(f"{path}query%20total")["epochs"]} == {0}
    status, text = hub.curl(f"{path}query%20alert_1")
    assert (status, "there is no box 'query alert_1'" in text) == (404, True)


def test_the_network_of_some_queries_has_only_their_boxes(hub: Served) -> None:
    one = hub.get("/v1/network?query=total")
    assert [box["title"] for box in one["boxes"] if box["kind"] == "query"] == [["total"]]
    some = hub.get("/v1/network?like=alert_1&tag=alerts")
    names = {box["title"][0] for box in some["boxes"] if box["kind"] == "query"}
    assert names == {f"alert_1{n}" for n in range(10)}
    assert hub.curl("/v1/network?like=nothing")[0] == 404
    assert hub.curl("/v1/network/box?name=nothing")[0] == 404


@pytest.mark.parametrize(
    ("select", "is_new"),
    [
        ("SELECT k, COUNT(*) AS n FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] WHERE v > 99 GROUP BY k", []),
        ("SELECT v, k FROM s [ROWS 7]", ["fold", "state"]),
    ],
)
def test_a_check_says_what_a_query_shares_before_it_is_registered(
    hub: Served, select: str, is_new: list[str]
) -> None:
    """And shows the same as EXPLAIN once it is."""
    status, found = hub.post("/v1/check", f"CREATE QUERY tried AS {select}")
    assert status == 200, found
    (query,) = found["queries"]
    assert hub.curl("/v1/queries/tried")[0] == 404
    assert [work["kind"] for work in query["work"] if not work["queries"]] == is_new
    assert all(work["nanoseconds"] for work in query["work"] if work["queries"])
    hub.post("/v1/statements", f"CREATE QUERY tried AS {select}")
    explained = "\n".join(hub.get("/v1/queries/tried/explain?format=json")["plan"])
    for work in query["work"]:
        label = work["label"].split(":")[-1].strip()
        whom = f"shared with {work['queries']:,} quer" if work["queries"] else ": its own"
        assert f"{label}{whom if whom.startswith(':') else f': {whom}'}" in explained
    hub.post("/v1/statements", "DROP QUERY tried")


def test_a_check_finds_mistakes_where_they_are_and_changes_nothing(hub: Served) -> None:
    script = "CREATE QUERY one AS SELECT v FROM s;\nCREATE QUERY two AS SELECT nothing FROM s"
    status, problem = hub.post("/v1/check", script)
    assert (status, problem["error"]["line"], problem["error"]["column"]) == (400, 2, 28)
    made = "CREATE STREAM t (v BIGINT) USING push; CREATE QUERY of_t AS SELECT v FROM t; SHOW STREAMS"
    status, found = hub.post("/v1/check", made)
    assert (status, found) == (200, {"statements": 3, "queries": [{"kind": "query", "name": "of_t"}]})
    assert [stream["name"] for stream in hub.get("/v1/catalog")["streams"]] == ["s"]


def test_epochs_are_paused_done_one_by_one_and_resumed(hub: Served) -> None:
    assert hub.post("/v1/epochs/step", "")[0] == 409
    paused = hub.post("/v1/epochs/pause", "")[1]
    assert paused["running"] is False
    assert hub.curl("/readyz")[0] == 503
    rows = '{"k":"a","v":1,"at":"2024-01-01T00:00:40Z"}\n'
    hub.post("/v1/streams/s/rows", rows)
    assert hub.get("/v1/summary")["streams"]["s"]["waiting"] == 1
    boxes = {box["name"]: box["waiting"] for box in hub.get("/v1/network")["boxes"]}
    assert {name: rows for name, rows in boxes.items() if rows} == {"read s": 1}
    assert hub.get("/v1/epochs")["epoch"] == paused["epoch"]
    stepped = hub.post("/v1/epochs/step", "")[1]
    assert (stepped["epoch"], stepped["observed"]["rows"]) == (paused["epoch"] + 1, 1)
    assert hub.get("/v1/summary")["streams"]["s"]["waiting"] == 0
    while hub.post("/v1/epochs/step", "")[1]["observed"] is not None:
        pass
    newest = hub.get(f"/v1/epochs?after={paused['epoch']}")["epochs"]
    assert newest[0]["rows"] == 1
    assert hub.post("/v1/epochs/resume", "")[1]["running"] is True
    assert hub.curl("/readyz")[0] == 200


def test_the_catalog_has_the_names_that_statements_use(hub: Served) -> None:
    found = hub.get("/v1/catalog")
    assert [column["name"] for column in found["streams"][0]["columns"]] == ["k", "v", "at"]
    assert {"name": "lower", "usage": "lower(text)"}.keys() == found["functions"][0].keys()
    assert "lower" in {function["name"] for function in found["functions"]}
