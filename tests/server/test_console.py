"""The console in a real browser."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.runtime.delivery.actions.receiving import until as eventually
from tests.server.browsing import Browser, browsing, needs_browser
from tests.server.serving import STREAM, TOTAL, TUMBLE, Served, served

pytestmark = needs_browser
PAGE = 50
"""Queries that a page of the list has."""
_AXE = importlib.util.find_spec("axe_core_python")
AXE = None if _AXE is None else Path(str(_AXE.origin)).with_name("axe.min.js")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served") / "home") as running:
        running.post("/v1/statements", STREAM + TUMBLE + TOTAL)
        selects = {f"alert_{n:03d}": f"SELECT COUNT(*) AS n FROM s WHERE v > {n}" for n in range(150)}
        running.post(
            "/v1/queries",
            json.dumps({"queries": selects, "tags": ["numbered"]}),
            "-H",
            "Content-Type: application/json",
        )
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
    names = "performance.getEntriesByType('resource').map((one) => one.name)"
    browser.until_true(f"return {names}.filter((name) => name.includes('/v1/epochs')).length > 3")
    asked = browser.driver.execute_script(f"return {names}.filter((name) => name.includes('after=-1&'))")
    assert len(asked) == 1, "later ones ask for newer epochs only"
    assert browser.complaints() == []


def test_a_query_is_searched_opened_and_seen_live(hub: Served, browser: Browser) -> None:
    browser.open(f"{hub.url}/#/queries")
    browser.until_text("alert_037")
    browser.type("input[type=search]", "total")
    browser.until_text("total")
    browser.click("total")
    browser.until_text("n BIGINT")
    before = hub.get("/v1/queries/total/answer")["rows"][0]["n"]
    push(hub, 16)
    browser.until_text(f"n\n{before + 1}")
    browser.until_text("query total", ".caption")
    assert browser.complaints() == []


def test_a_page_that_is_not_seen_holds_no_connection_and_misses_no_row(hub: Served, browser: Browser) -> None:
    """A browser has six connections to a hub, for all its tabs and for the pages that one can go back to."""

    def followers(number: int) -> bool:
        return f'headrace_followers{{connection="events"}} {number}.0' in hub.curl("/metrics")[1]

    browser.open(f"{hub.url}/#/queries/total")
    eventually(lambda: followers(1))
    before = hub.get("/v1/queries/total/answer")["rows"][0]["n"]
    push(hub, 17)
    browser.until_text(f"\t{before}\t1\t")  # a later row completes its instant
    page = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("tab")
    eventually(lambda: followers(0))
    push(hub, 18)
    eventually(lambda: hub.get("/v1/queries/total/answer")["rows"][0]["n"] == before + 2)
    browser.driver.close()
    browser.driver.switch_to.window(page)
    eventually(lambda: followers(1))
    browser.until_text(f"\t{before + 1}\t1\t")
    assert browser.complaints() == []


def test_queries_are_sorted_chosen_and_paged_by_the_server(hub: Served, browser: Browser) -> None:
    browser.open(f"{hub.url}/#/queries")
    browser.until_text(f"1 to {PAGE} of ")
    assert browser.count("tbody tr") == PAGE
    browser.click("Next")
    browser.until_text(f"{PAGE + 1} to {2 * PAGE} of ")
    browser.click("cost an epoch")
    browser.until_true("return document.querySelector('th[aria-sort]')?.innerText.includes('cost')")
    costliest = hub.get("/v1/queries?sort=nanoseconds&limit=1")["queries"][0]["name"]
    browser.until_text(costliest, "tbody tr:first-child")
    assert "sort=nanoseconds" in browser.driver.current_url
    browser.driver.refresh()
    browser.until_true("return document.querySelector('th[aria-sort]')?.innerText.includes('cost')")
    browser.open(f"{hub.url}/#/queries?tag=numbered&like=alert_01")
    browser.until_text("1 to 10 of 10 queries")


def test_the_past_of_a_query_is_read_with_a_slider(hub: Served, browser: Browser) -> None:
    push(hub, 21, 32)
    while (
        hub.get("/v1/queries/q/timeline")["last"] != 1704067230 * 1_000_000
    ):  # windows that end at 10, 20, 30
        pass
    browser.open(f"{hub.url}/#/queries/q")
    browser.until_text("to 2024-01-01T00:00:30Z.")
    browser.set_range("input[type=range]", 0)
    for words, end in (("", 10), ("Later", 20), ("Later", 30), ("Earlier", 20), ("Earlier", 10)):
        if words:
            browser.click(words)
        shown = hub.get(f"/v1/queries/q/answer?at=2024-01-01T00:00:{end}Z")["rows"][0]["n"]
        browser.until_text(f"a\t{shown}", ".past tbody")
        browser.until_true(f"return document.querySelector('output').textContent.slice(17, 19) >= {end}")
        assert int(browser.text("output")[17:19]) < end + 10
    assert browser.complaints() == []


HELD_BACK = """
    const plain = window.fetch, gate = new Promise((resolve) => { window.release = resolve; });
    window.fetch = async (url, options) => {
      const answer = await plain(url, options);
      if (!String(url).includes('search=alert_1&')) return answer;
      await gate;
      setTimeout(() => setTimeout(() => { window.isLate = true; }, 200), 0);
      return answer;
    };
"""


def test_the_network_is_zoomed_searched_and_followed_to_who_shares(hub: Served, browser: Browser) -> None:
    browser.open(f"{hub.url}/#/network")
    browser.until_true("return document.querySelectorAll('.box').length > 10")
    whole = browser.attribute(".network", "viewBox")
    browser.click("+")
    assert browser.attribute(".network", "viewBox") != whole
    browser.click("Show all")
    assert browser.attribute(".network", "viewBox") == whole
    browser.driver.execute_script("document.querySelector('.box.read').focus()")
    for key, kind in ((Keys.ARROW_RIGHT, "fold"), (Keys.ARROW_RIGHT, "state"), (Keys.ARROW_LEFT, "fold")):
        browser.driver.switch_to.active_element.send_keys(key)
        assert f"box {kind}" in browser.focused("class")
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    browser.until_text("share it", ".panel")
    browser.driver.execute_script(HELD_BACK)  # the answer to an older search comes last
    browser.type(".panel input", "alert_14")
    browser.until_text("10 queries share it", ".panel")
    browser.driver.execute_script("release()")
    browser.until_true("return window.isLate")
    assert "10 queries share it" in browser.text(".panel")
    browser.click("alert_147")
    browser.until_text("v > 147", "main pre")
    browser.open(f"{hub.url}/#/network?like=alert_00")
    browser.until_text("10 queries", ".caption")
    assert browser.count(".box.query") == 10
    browser.until_true("return document.querySelector('.box.read .measure').textContent.includes('quer')")
    assert browser.complaints() == []


def test_a_line_of_the_network_has_a_history(hub: Served, browser: Browser) -> None:
    browser.open(f"{hub.url}/#/network")
    grip = """document.querySelector('.grip[data-source="read s"]')"""
    browser.until_true(f"return {grip} !== null")
    target = browser.driver.execute_script(
        f"const grip = {grip}; grip.dispatchEvent(new MouseEvent('click', {{ bubbles: true }})); return grip.dataset.target"
    )
    browser.until_true("return document.querySelector('.panel .chart canvas') !== null")
    path = f"/v1/network/line?source={quote('read s')}&target={quote(target)}"
    before = sum(point["rows"] for point in hub.get(path)["epochs"])
    browser.until_text(f"{before:,.0f} rows in the last", ".panel")
    push(hub, 32, 32)
    browser.until_text(f"{before + 2:,.0f} rows in the last", ".panel")
    browser.click("Close")
    browser.driver.execute_script(
        f"document.querySelector('.box[data-box={json.dumps(target)}]').focus()".replace("'", "`")
    )
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    browser.until_text("its network", ".panel")
    browser.driver.execute_script("document.querySelector('.panel summary').click()")
    browser.click("from read stream s")
    browser.until_text(f"{before + 2:,.0f} rows in the last", ".panel")
    assert browser.complaints() == []


def test_places_of_the_network_are_kept_and_come_back_to(hub: Served, browser: Browser) -> None:
    browser.open(f"{hub.url}/#/network")
    browser.until_true("return document.querySelectorAll('.box').length > 10")
    browser.type(".finder input", "query total")
    browser.until_text("total", ".hits")
    browser.driver.find_element(By.CSS_SELECTOR, ".finder input").send_keys(Keys.ENTER)
    browser.until_text("1 query", ".panel")
    browser.until_true("return location.hash.includes('box=query+total')")
    name = "document.querySelector('input[placeholder=name]')"
    browser.driver.execute_script(f"{name}.value = 'the sum'; {name}.dispatchEvent(new Event('input'))")
    browser.click("Keep")
    browser.until_true(
        "return [...document.querySelectorAll('option')].some((one) => one.value === 'the sum')"
    )
    kept = place(browser)
    browser.open(f"{hub.url}/#/network")
    browser.until_true("return document.querySelectorAll('.box').length > 10")
    browser.driver.execute_script(
        """const select = [...document.querySelectorAll('select')].find((one) => [...one.options].some((option) => option.value === 'the sum'));
           select.value = 'the sum'; select.dispatchEvent(new Event('change'));"""
    )
    browser.until_text("1 query", ".panel")
    assert place(browser) == kept


def place(browser: Browser) -> list[int]:
    """What part of the network is seen, in whole points."""
    return [round(float(number)) for number in browser.attribute(".network", "viewBox").split()]


def test_an_epoch_is_done_alone(hub: Served, browser: Browser) -> None:
    browser.open(f"{hub.url}/#/performance")
    browser.until_text("Costliest queries")
    browser.click("Pause epochs")
    browser.until_text("rows wait until the next step")
    push(hub, 33, 34)
    browser.click("Step")
    browser.until_text("read stream s", ".observed")
    assert "2 rows" in browser.text(".observed")
    browser.click("Run")
    browser.until_text("Epochs run by themselves")
    assert hub.curl("/readyz")[0] == 200


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


def test_the_editor_marks_mistakes_completes_and_shows_what_is_shared(hub: Served, browser: Browser) -> None:
    browser.open(f"{hub.url}/#/editor")
    browser.type("textarea", "CREATE QUERY y AS SELECT nothing FROM s")
    browser.until_text("line 1, column 26:", ".mistake")
    assert browser.text(".marks mark") == "nothing"
    browser.type("textarea", "CREATE QUERY y AS SELECT low")
    browser.until_text("lower(", ".completions")
    browser.driver.switch_to.active_element.send_keys(Keys.TAB)
    assert browser.driver.execute_script("return document.querySelector('textarea').value").endswith(
        "SELECT lower("
    )
    browser.type("textarea", "CREATE QUERY y AS SELECT COUNT(*) AS n FROM s WHERE v > 999")
    standing = hub.get("/v1/summary")["queries"]["live"]
    browser.until_text(f"{standing} queries", "[aria-label='Work of y']")
    assert hub.curl("/v1/queries/y")[0] == 404
    assert browser.text(".marks mark") == ""


PAGES = ("", "queries", "queries/total", "network", "performance", "editor")


@pytest.mark.skipif(
    AXE is None, reason="needs the package axe-core-python, which carries the accessibility checker axe"
)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_no_page_is_closed_to_keyboards_or_screen_readers(
    hub: Served, browser: Browser, page: str, theme: str
) -> None:
    assert AXE is not None
    browser.open(f"{hub.url}/#/{page}")
    browser.driver.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    ready = {"network": ".box", "queries": "tbody tr", "queries/total": ".box", "editor": "textarea"}
    browser.until_true(f"return document.querySelector('{ready.get(page, '.card')}') !== null")
    if page == "network":
        browser.pick("read", 0)
        browser.until_text("share it", ".panel")
    browser.driver.execute_script(AXE.read_text(encoding="utf-8"))
    found = browser.driver.execute_async_script(
        "const done = arguments[0]; axe.run(document).then((result) => done(result.violations.map((one) => [one.id, one.help, one.nodes.map((node) => node.target.join(' ')).slice(0, 5)])))"
    )
    assert found == []


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_draws_and_asks_for_is_bounded(hub: Served, browser: Browser, page: str) -> None:
    """However many queries there are: boxes and rows are drawn a page at a time, and one second asks a few times."""
    browser.open(f"{hub.url}/#/{page}")
    asked = "performance.getEntriesByType('resource').filter((one) => one.name.includes('/v1/')).length"
    browser.until_true(f"return {asked} >= {LEAST_REQUESTS.get(page, 1)}")
    browser.until_true("return performance.now() > 3000")  # what is asked for again is asked for
    seconds, requests = browser.driver.execute_script(f"return [performance.now() / 1000, {asked}]")
    assert requests <= 12 + 4 * seconds
    assert browser.count("*") < 1600


LEAST_REQUESTS = {"": 2, "queries/total": 4, "performance": 2}


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
