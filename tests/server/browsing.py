"""A real browser for tests: Chromium, driven over WebDriver. `.ci/run` installs both from the system's packages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.common.exceptions import TimeoutException
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="needs chromium and chromedriver, which this machine does not have",
)
PATIENCE = 60


class Browser:
    """One window."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        self.driver.get("about:blank")  # a page whose address differs after # only is not loaded again
        self.driver.get(url)

    def text(self, selector: str = "main") -> str:
        return str(
            self.driver.execute_script(
                "return document.querySelector(arguments[0])?.innerText ?? ''", selector
            )
        )

    def until_text(self, wanted: str, selector: str = "main") -> None:
        try:
            WebDriverWait(self.driver, PATIENCE).until(lambda _: wanted in self.text(selector))
        except TimeoutException:
            pytest.fail(f"no '{wanted}' in {selector}, which has: {self.text(selector)}")

    def type(self, selector: str, text: str) -> None:
        field = self.driver.find_element(By.CSS_SELECTOR, selector)
        field.clear()
        field.send_keys(text)

    def click(self, words: str) -> None:
        """Click the button or link of these words, as soon as there is one; pages replace their elements all the time."""
        script = """const found = [...document.querySelectorAll('button, a')].find((one) => one.textContent.trim() === arguments[0]);
                    found?.click(); return found !== undefined;"""
        WebDriverWait(self.driver, PATIENCE).until(lambda driver: driver.execute_script(script, words))

    def until_true(self, script: str) -> None:
        """Wait until a script returns something true."""
        try:
            WebDriverWait(self.driver, PATIENCE, poll_frequency=0.05).until(
                lambda driver: driver.execute_script(script)
            )
        except TimeoutException:
            pytest.fail(f"never true: {script}; the page has: {self.text('body')}")

    def count(self, selector: str) -> int:
        """How many elements match."""
        return int(
            self.driver.execute_script("return document.querySelectorAll(arguments[0]).length", selector)
        )

    def attribute(self, selector: str, name: str) -> str:
        """An attribute of the first element that matches."""
        return str(self.driver.find_element(By.CSS_SELECTOR, selector).get_dom_attribute(name))

    def focused(self, name: str) -> str:
        """An attribute of the element that has the focus."""
        return str(
            self.driver.execute_script("return document.activeElement.getAttribute(arguments[0])", name)
        )

    def set_range(self, selector: str, value: int) -> None:
        """Move a slider, as soon as it can be moved."""
        self.until_true(f"return document.querySelector({selector!r})?.disabled === false")
        self.driver.execute_script(
            """const slider = document.querySelector(arguments[0]); slider.value = arguments[1];
               slider.dispatchEvent(new Event('input', { bubbles: true }));""",
            selector,
            value,
        )

    def scroll_to(self, selector: str) -> None:
        """Bring an element into the middle of the window."""
        self.driver.execute_script(
            "document.querySelector(arguments[0]).scrollIntoView({ block: 'center' })", selector
        )

    def pick(self, kind: str, index: int) -> str:
        """Choose a box of the network; its name."""
        script = """const found = document.querySelectorAll(`.box.${arguments[0]}`)[arguments[1]];
                    found?.dispatchEvent(new MouseEvent('click', { bubbles: true })); return found?.dataset.box;"""
        return str(
            WebDriverWait(self.driver, PATIENCE).until(
                lambda driver: driver.execute_script(script, kind, index)
            )
        )

    def complaints(self) -> list[str]:
        """What the page has logged as errors."""
        return [line["message"] for line in self.driver.get_log("browser") if line["level"] == "SEVERE"]


@contextmanager
def browsing(profile: Path, *, width: int = 1360, height: int = 900) -> Iterator[Browser]:
    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
        *(f"--window-size={width},{height}", f"--user-data-dir={profile}"),
    ):
        options.add_argument(argument)
    driver = Chrome(options, ChromeService(str(DRIVER)))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
