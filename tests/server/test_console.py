"""The console in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.server.browsing import Browser, browsing, needs_browser
from tests.server.serving import STREAM, TOTAL, TUMBLE, Served, served

pytestmark = needs_browser


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served") / "home") as running:
        running.post("/v1/statements", STREAM + TUMBLE + TOTAL)
        selects = {f"alert_{n:03d}": f"SELECT COUNT(*) AS n FROM s WHERE v > {n}" for n in range(150)}
        running.post("/v1/queries", json.dumps({"queries": selects}), "-H", "Content-Type: application/json")
        push(running, 1, 12)
        yield running


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def push(hub: Served, *seconds: int) -> None:
    rows = [{"k": "a", "v": second, "at": f"2024-01-01T00:00:{second:02d}Z"} for second in seconds]
    hub.post("/v1/streams/s/rows", "".join(f"{json.dumps(row)}\n" for row in rows))


def test_the_overview_follows_what_is_committed(hub: Served, browser: Browser) -> None:
    browser.open(f"{hub.url}/")
    browser.until_text("152\nstanding queries")
    browser.until_text("epochs run", "#health")
    before = hub.get("/v1/status")["streams"]["s"]["rows"]
    push(hub, 13, 14, 15)
    browser.until_text(f"{before + 3}\nrows in all")
    assert browser.complaints() == []


def test_a_query_is_searched_opened_and_seen_live(hub: Served, browser: Browser) -> None:
    browser.open(f"{hub.url}/#/queries")
    browser.until_text("alert_097")
    browser.type("input[type=search]", "total")
    browser.until_text("total")
    browser.click("total")
    browser.until_text("n BIGINT")
    before = hub.get("/v1/queries/total/answer")["rows"][0]["n"]
    push(hub, 16)
    browser.until_text(f"n\n{before + 1}")
    browser.until_text("query total", "main .picture")
    assert browser.complaints() == []


def test_a_mistake_in_the_editor_is_shown_and_selected_where_it_is(hub: Served, browser: Browser) -> None:
    browser.open(f"{hub.url}/#/editor")
    browser.type("textarea", "CREATE QUERY x AS\nSELECT nothing FROM s")
    browser.click("Run")
    browser.until_text("line 2, column 8:", "[role=alert]")
    area = "document.querySelector('textarea')"
    selected = browser.driver.execute_script(
        f"return {area}.value.slice({area}.selectionStart, {area}.selectionEnd)"
    )
    assert selected == "nothing"
    browser.type("textarea", "CREATE QUERY x AS SELECT MAX(v) AS top FROM s; SHOW STREAMS")
    browser.click("Run")
    browser.until_text("query x registered")
    browser.until_text("name")
    assert hub.get("/v1/queries/x")["paused"] is False


def test_a_query_is_paused_resumed_and_keeps_its_page(hub: Served, browser: Browser) -> None:
    browser.open(f"{hub.url}/#/queries/alert_001")
    browser.until_text("Pause")
    browser.click("Pause")
    browser.until_text("Resume")
    assert hub.get("/v1/queries/alert_001")["paused"] is True
    browser.click("Resume")
    browser.until_text("Pause")
    assert hub.get("/v1/queries/alert_001")["paused"] is False


def test_names_and_texts_are_shown_as_text(hub: Served, browser: Browser) -> None:
    hub.post(
        "/v1/statements",
        "CREATE QUERY `<img src=x onerror=alert(1)>` AS SELECT '<b>bold</b>' AS t, COUNT(*) AS n FROM s GROUP BY 1",
    )
    browser.open(f"{hub.url}/#/queries")
    browser.until_text("<img src=x onerror=alert(1)>")
    assert browser.driver.execute_script("return document.querySelectorAll('main img').length") == 0


def test_a_hub_with_tokens_asks_for_one_until_it_is_valid(
    tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> None:
    with served(tmp_path_factory.mktemp("guarded") / "home", auth=True) as guarded:
        browser.open(f"{guarded.url}/")
        browser.until_text("This hub asks for a token", "dialog")
        browser.type("#token", "wrong")
        browser.click("Continue")
        browser.until_text("This hub asks for a token", "dialog")
        browser.type("#token", str(guarded.token))
        browser.click("Continue")
        browser.until_text("0\nstanding queries")
