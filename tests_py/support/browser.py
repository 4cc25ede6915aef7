"""Headless Chromium, driven by Selenium, with pages of reports."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSER, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
SECONDS = 60  # that a condition may take on a loaded machine


@contextmanager
def browser(*arguments: str) -> Iterator[Any]:
    """A driver; the test is skipped where browser, driver or Selenium is not installed."""
    webdriver = pytest.importorskip("selenium.webdriver")
    if BROWSER is None or DRIVER is None:
        pytest.skip("chromium or chromedriver is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for each in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--window-size=1280,900",
        *arguments,
    ):
        options.add_argument(each)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


class Page:
    """A report that is open."""

    def __init__(self, driver: Any, path: Path, anchor: str = "") -> None:
        self.driver = driver
        driver.get("about:blank")  # another anchor alone would not load it again
        driver.get(f"{path.as_uri()}{anchor}")
        self.wait(lambda: self.js("return document.documentElement.dataset.ready") == "yes")

    def wait(self, condition: Callable[[], Any]) -> Any:
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, SECONDS, 0.02).until(lambda _: condition())

    def js(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def click(self, selector: str) -> None:
        self.js("document.querySelector(arguments[0]).click()", selector)

    def rows(self) -> list[str]:
        """Texts of the rows of the graph that are made."""
        return list(self.js("return [...document.querySelectorAll('#rows .row')].map(r => r.innerText)"))

    def search(self, text: str) -> str:
        """Type into the search; returns what it says it found."""
        self.js(
            "const s = document.getElementById('search'); s.value = arguments[0];"
            "s.dispatchEvent(new Event('input'))",
            text,
        )
        return str(self.find("#count").text)
