"""The pictures of docs/guide/console.md: `make pictures` serves a home with bids, opens the console in a browser, and saves
what it shows.

    python -m tests.server.pictures [FOLDER]
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.server.browsing import Browser, browsing
from tests.server.serving import Served, served

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
STATEMENTS = """
CREATE STREAM bids (auction BIGINT, bidder BIGINT, price DOUBLE, at TIMESTAMP)
  USING push TIMESTAMP BY at SLACK INTERVAL 1 SECOND;
CREATE STREAM people (bidder BIGINT, city STRING, at TIMESTAMP) USING push TIMESTAMP BY at SLACK INTERVAL 1 SECOND;
CREATE QUERY dear AS
  SELECT auction, COUNT(*) AS n, MAX(price) AS top
  FROM bids [RANGE 10 SECONDS SLIDE 1 SECOND] WHERE price > 100 GROUP BY auction;
CREATE QUERY total AS SELECT COUNT(*) AS n, AVG(price) AS mean FROM bids [RANGE 2 SECONDS SLIDE 1 SECOND];
CREATE QUERY busiest AS SELECT auction, SUM(n) AS n FROM dear [RANGE 1 MINUTE SLIDE 10 SECONDS] GROUP BY auction;
CREATE QUERY cities AS
  SELECT p.city, COUNT(*) AS n FROM bids b [RANGE 10 SECONDS SLIDE 5 SECONDS]
  JOIN people p [RANGE 10 SECONDS SLIDE 5 SECONDS] ON b.bidder = p.bidder GROUP BY p.city;
"""
ALERT = "SELECT COUNT(*) AS n FROM bids [RANGE 1 MINUTE SLIDE 10 SECONDS] WHERE auction = {} AND price > {}"
NEW = """CREATE QUERY top AS
  SELECT auction, MAX(price) AS top
  FROM bids [RANGE 10 SECONDS SLIDE 1 SECOND]
  WHERE price > 500 GROUP BY auction;"""


@contextmanager
def bidding(hub: Served, alerts: int = 300) -> Iterator[None]:
    """A home with queries, and bids that keep arriving."""
    hub.post("/v1/statements", STATEMENTS)
    for tag, queries in (("alerts", range(alerts)), ("watched", range(alerts, alerts + 12))):
        selects = {f"alert_{n:03d}": ALERT.format(n % 40, 50 + n) for n in queries}
        body = json.dumps({"queries": selects, "tags": [tag], "owner": "ann"})
        hub.post("/v1/queries", body, "-H", "Content-Type: application/json")
    stop, chance = threading.Event(), random.Random(7)

    def push() -> None:
        while not stop.wait(0.15):
            now = datetime.now(UTC).isoformat()
            bids = [
                {
                    "auction": chance.randrange(8),
                    "bidder": chance.randrange(60),
                    "price": round(chance.lognormvariate(4.4, 0.5), 2),
                    "at": now,
                }
                for _ in range(200)
            ]
            people = [
                {"bidder": chance.randrange(60), "city": chance.choice(CITIES), "at": now} for _ in range(9)
            ]
            for stream, rows in (("bids", bids), ("people", people)):
                hub.post(f"/v1/streams/{stream}/rows", "".join(f"{json.dumps(row)}\n" for row in rows))

    pushing = threading.Thread(target=push)
    pushing.start()
    try:
        yield
    finally:
        stop.set()
        pushing.join()


CITIES = ("Leipzig", "Pune", "Quito", "Oslo")


def pages(browser: Browser, hub: Served) -> Iterator[str]:
    """Each page as a reader has it after a moment, by the name of its picture."""

    def opened(page: str, *words: str) -> None:
        browser.open(f"{hub.url}/#/{page}")
        for each in words:
            browser.until_text(each)

    def until(script: str) -> None:
        browser.until_true(f"return {script}")

    opened("", "bids")
    until("document.querySelector('.figure')?.textContent > 60")
    yield "console-overview"
    opened("queries?sort=nanoseconds", "dear", "ms")
    yield "console-queries"
    opened("queries/dear", "The newest rows", "rows from")
    browser.set_range("input[type=range]", 600)
    until("document.querySelectorAll('.box').length >= 4")
    newest = "document.querySelector('[aria-label=\"The newest rows\"] tbody td')?.textContent"
    until(f"(window.seen ??= new Set()).add({newest}).size > 6")  # a chart of several epochs
    yield "console-query"
    browser.scroll_to("input[type=range]")
    yield "console-history"
    opened("network")
    until("document.querySelectorAll('.box').length > 20")
    browser.type(".finder input", "match conditions")
    browser.driver.find_element(By.CSS_SELECTOR, ".finder input").send_keys(Keys.ENTER)
    browser.until_text("queries share it", ".panel")
    yield "console-box"
    opened("performance", "Costliest queries", "dear")
    until("document.querySelectorAll('.chart canvas').length >= 4")
    browser.click("Pause epochs")
    browser.until_text("rows wait")
    while not hub.get("/v1/summary")["streams"]["bids"]["waiting"]:
        pass
    browser.click("Step")
    browser.until_text("Epoch ")
    yield "console-performance"
    browser.click("Run")
    opened("editor")
    browser.type("textarea", NEW)
    browser.until_text("would add about")
    yield "console-editor"


def take(folder: Path, then: Callable[[Browser, str], None] = lambda *_: None) -> None:
    """Save the picture of each page, in light colours, and of the network in dark ones; `then` is called at each page."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        with served(place / "home") as hub, browsing(place / "profile", height=1000) as browser, bidding(hub):
            for name in pages(browser, hub):
                browser.driver.save_screenshot(str(folder / f"{name}.png"))
                then(browser, name)
            browser.open(f"{hub.url}/#/network")
            browser.driver.execute_script("document.getElementById('theme').click()")
            browser.until_true("return document.querySelectorAll('.box').length > 20")
            browser.driver.save_screenshot(str(folder / "console-dark.png"))
            then(browser, "console-dark")


if __name__ == "__main__":
    take(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES)
