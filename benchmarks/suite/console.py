"""The console in a browser, on a hub with ten thousand queries and a thousand operators while epochs run: first pictures and interactions.

A hundred streams have ten kinds of query each (grouping, DISTINCT, windows of rows, of partitions and of time), which share nothing across
kinds and streams: a thousand operators, with ten queries each. Ten times a second rows are pushed to one of the streams. Chromium without a
window opens each page new: its first picture is complete when data of the hub is in it, and its time begins with the navigation. An
interaction is what a person does on an open page (type, click, turn the wheel); its time begins with the event and ends with the frame
in which the page shows what was asked for. The median and the worst of all repetitions.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from selenium.webdriver import Chrome, ChromeOptions, ChromeService

from benchmarks.charts import Bar
from benchmarks.environments import NotHere
from benchmarks.report import Report
from benchmarks.served_hub import pushing, served
from benchmarks.thresholds import Ratio

STREAMS, ALIKE, REPEATED = 100, 10, 9
KINDS = {
    "counted": "SELECT COUNT(*) AS n FROM {stream} [RANGE 1 MINUTE SLIDE 10 SECONDS] WHERE auction = {n}",
    "by_auction": "SELECT auction, MAX(price) AS top FROM {stream} [RANGE 1 MINUTE SLIDE 10 SECONDS] WHERE price > 50{n} GROUP BY auction",
    "landmark": "SELECT SUM(price) AS total FROM {stream} [LANDMARK SLIDE 1 HOUR] WHERE auction = {n}",
    "all_time": "SELECT auction, COUNT(*) AS n FROM {stream} WHERE price > 50{n} GROUP BY auction",
    "distinct": "SELECT DISTINCT auction FROM {stream} [RANGE 10 SECONDS] WHERE price > 50{n}",
    "last_rows": "SELECT AVG(price) AS mean FROM {stream} [ROWS 10] WHERE auction = {n}",
    "last_of_each": "SELECT auction, price FROM {stream} [PARTITION BY auction ROWS 2] WHERE price > 50{n}",
    "now": "SELECT auction, price FROM {stream} [NOW] WHERE price > 50{n}",
    "recent": "SELECT auction, price FROM {stream} [RANGE 1 MINUTE] WHERE price > 50{n}",
    "plain": "SELECT auction, price AS dear FROM {stream} WHERE price > 50{n}",
}
OPERATORS = STREAMS * len(KINDS)
QUERIES = OPERATORS * ALIKE

_UNTIL = """
    const [act, until, done] = arguments;
    const begun = act ? performance.now() : 0, shown = new Function(until);
    if (act) new Function(act)();
    const look = () => shown() ? requestAnimationFrame(() => done(performance.now() - begun)) : requestAnimationFrame(look);
    look();
"""
_TYPED = """const field = [...document.querySelectorAll('label')].find((one) => one.textContent.startsWith({label!r})).querySelector('input')
        ?? document.getElementById([...document.querySelectorAll('label')].find((one) => one.textContent.startsWith({label!r})).htmlFor);
    field.value = {text!r}; field.dispatchEvent(new Event('input', {{ bubbles: true }}));"""
_CLICKED = "[...document.querySelectorAll('button, a')].find((one) => one.textContent.trim() === {words!r} && one.checkVisibility()).click();"


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the console, and what it has once it is drawn."""

    address: str
    drawn: str


@dataclass(frozen=True, slots=True)
class Interaction:
    """What a person does on a page, and what it has then; `before` makes the page ready for the next repetition."""

    page: str
    act: str
    shown: str
    before: str = ""


_OF_BOX = ".panel:not([hidden]) .soft + ul li"
_PREVIOUS = "[...document.querySelectorAll('.panel button')].find((one) => one.textContent === 'Previous')"
_FIRST_ROW = "document.querySelector('main tbody tr td')?.innerText"
PAGES: dict[str, Page] = {
    "overview": Page("", f"return document.querySelector('main')?.innerText.includes('{QUERIES:,}')"),
    "queries": Page("queries", "return document.querySelectorAll('main tbody tr').length === 50"),
    "network": Page("network", "return document.querySelectorAll('.box').length > 20"),
    "a box": Page("network?box=read%20bids", f"return document.querySelectorAll('{_OF_BOX}').length > 10"),
    "performance": Page("performance", "return document.querySelectorAll('main tbody tr').length > 5"),
    "one query": Page("queries/s7_last_rows_3", "return document.querySelectorAll('.box').length > 1"),
    "editor": Page("editor", "return document.querySelector('textarea') !== null"),
}
INTERACTIONS: dict[str, Interaction] = {
    "search a name": Interaction(
        "queries",
        _TYPED.format(label="Search", text="s42_distinct_7"),
        f"return {_FIRST_ROW} === 's42_distinct_7'",
        _TYPED.format(label="Search", text=""),
    ),
    "next page": Interaction(
        "queries",
        _CLICKED.format(words="Next"),
        "return document.querySelector('main').innerText.includes('51 to 100 of')",
        _CLICKED.format(words="Previous"),
    ),
    "sort by cost": Interaction(
        "queries",
        _CLICKED.format(words="cost an epoch"),
        "return document.querySelector('th[aria-sort]')?.innerText.includes('cost')",
        _CLICKED.format(words="query"),
    ),
    "zoom": Interaction(
        "network",
        "document.querySelector('.network').dispatchEvent(new WheelEvent('wheel', { deltaY: -100, clientX: 500, clientY: 400, cancelable: true }));",
        "return true",
    ),
    "go to a box": Interaction(
        "network",
        _TYPED.format(label="Go to", text="bids"),
        "return document.querySelectorAll('.hits button').length > 0",
        _TYPED.format(label="Go to", text=""),
    ),
    "open a box": Interaction(
        "network",
        "document.querySelector('.box.more, .box.read').dispatchEvent(new MouseEvent('click', { bubbles: true }));",
        f"return document.querySelectorAll('{_OF_BOX}').length > 10",
        _CLICKED.format(words="Close"),
    ),
    "queries of the next page of a box": Interaction(
        "a box",
        _CLICKED.format(words="Next"),
        f"return {_PREVIOUS}?.disabled === false",
        _CLICKED.format(words="Previous"),
    ),
    "other colours": Interaction(
        "performance",
        "window.colours = document.documentElement.dataset.theme; document.getElementById('theme').click();",
        "return document.documentElement.dataset.theme !== window.colours",
    ),
    "completion": Interaction(
        "editor",
        """const area = document.querySelector('textarea'); area.focus(); area.value = 'SELECT auction FROM s4';
            area.setSelectionRange(22, 22); area.dispatchEvent(new InputEvent('input', { bubbles: true }));""",
        "return document.querySelectorAll('.completions:not([hidden]) li').length > 3",
        "const area = document.querySelector('textarea'); area.value = ''; area.dispatchEvent(new InputEvent('input', { bubbles: true }));",
    ),
}


def console(rows: int, rounds: int) -> Report:
    """One run with as many repetitions as it takes for a median, whatever `rows` and `rounds` are."""
    del rows, rounds
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        raise NotHere("the console needs chromium and chromedriver")
    with served() as client, tempfile.TemporaryDirectory() as profile:
        _registered(client)
        with pushing(client), _browser(chromium, driver, Path(profile)) as browser:
            first = {name: _opened(browser, client, page) for name, page in PAGES.items()}
            then = {name: _repeated(browser, client, one) for name, one in INTERACTIONS.items()}
            epochs = client.get("/v1/epochs", params={"limit": 300}).json()["epochs"]
    assert len(epochs) > 20, f"epochs have to run, found {len(epochs)}"
    assert __doc__ is not None
    return Report(
        "console",
        "The console with ten thousand queries",
        [_row(f"first picture: {name}", times) for name, times in first.items()]
        + [_row(name, times) for name, times in then.items()],
        [
            Ratio(f"first picture of {name}, in 2 s", median(times) / 2000, 1, at_most=True)
            for name, times in first.items()
        ]
        + [Ratio(f"{name}, in 100 ms", median(times) / 100, 1, at_most=True) for name, times in then.items()],
        [Bar(name, median(times), "ours") for name, times in (*first.items(), *then.items())],
        "ms",
        [__doc__.strip(), f"{QUERIES:,} queries, {OPERATORS:,} operators."],
    )


def _row(what: str, times: list[float]) -> dict[str, Any]:
    return {"what": what, "median ms": round(median(times), 1), "worst ms": round(max(times), 1)}


def _registered(client: httpx.Client) -> None:
    streams = ["bids", *(f"s{n}" for n in range(1, STREAMS))]
    columns = "(auction BIGINT, price DOUBLE, at TIMESTAMP) USING push TIMESTAMP BY at;"
    client.post(
        "/v1/statements", content="".join(f"CREATE STREAM {name} {columns}" for name in streams)
    ).raise_for_status()
    for stream in streams:
        queries = {
            f"{stream}_{kind}_{n}": text.format(stream=stream, n=n)
            for kind, text in KINDS.items()
            for n in range(ALIKE)
        }
        client.post("/v1/queries", json={"queries": queries}).raise_for_status()


@contextmanager
def _browser(chromium: str, driver: str, profile: Path) -> Iterator[Chrome]:
    options = ChromeOptions()
    options.binary_location = chromium
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1360,900",
    ):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={profile}")
    browser = Chrome(options, ChromeService(driver))
    browser.set_script_timeout(60)
    try:
        yield browser
    finally:
        browser.quit()


def _opened(browser: Chrome, client: httpx.Client, page: Page) -> list[float]:
    """Milliseconds from the navigation to the first picture, of each repetition."""
    return [_open(browser, client, page) for _ in range(REPEATED)]


def _open(browser: Chrome, client: httpx.Client, page: Page) -> float:
    browser.get("about:blank")  # else a page whose address differs after # only is not loaded
    browser.get(f"{client.base_url}/#/{page.address}")
    return float(browser.execute_async_script(_UNTIL, "", page.drawn))


def _repeated(browser: Chrome, client: httpx.Client, interaction: Interaction) -> list[float]:
    """Milliseconds from the event to the frame that shows its effect, of each repetition."""
    _open(browser, client, PAGES[interaction.page])
    times = []
    for _ in range(REPEATED):
        times.append(float(browser.execute_async_script(_UNTIL, interaction.act, interaction.shown)))
        if interaction.before:
            browser.execute_script(interaction.before)
            browser.execute_async_script(_UNTIL, "", f"return !(() => {{ {interaction.shown} }})()")
    return times
