"""The order of search results: the function of that name first, then pages whose titles have the word, then the rest.

Sphinx's search gives each name of the reference the points of its level, which ``scorer.js`` lists: of two
names with one last part, the shorter path is first, and a function before a class. Where a browser is installed, the
build asks the finished site for some words.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from sphinx.domains.python import PythonDomain
from sphinx.util import logging

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

__all__ = ["FIRST", "MEMBER", "OLD", "RankedDomain", "level", "setup"]

MEMBER, OLD = 10, 11  # methods and attributes; names of PopXL and PopART

# Words, and the first result that the search has for each.
FIRST = {
    "prove": "popsr.prove",
    "guard": "popsr.guard.torch.guard",
    "audit": "popsr.bridge.audit.audit",
    "drift": "popsr.bridge.audit.Drift",
    "cast": "popsr.ops.cast",
    "AdamW": "popsr.sr.torch.AdamW",
}
SECONDS = 60  # that a search may take on a loaded machine


def level(path: str, kind: str) -> int:
    """The level of a name; ``kind`` is Sphinx's type of object."""
    if kind not in ("function", "class", "exception", "data"):
        return MEMBER
    return (
        OLD
        if path.startswith("popsr.compat.")
        else min(2 * path.count(".") + (kind != "function"), MEMBER - 1)
    )


class RankedDomain(PythonDomain):
    """Python's domain, with levels as priorities."""

    def get_objects(self) -> Iterator[tuple[str, str, str, str, str, int]]:
        """Names with the levels of those that the search shows."""
        for path, shown, kind, page, anchor, priority in super().get_objects():
            yield path, shown, kind, page, anchor, level(path, kind) if priority >= 0 else priority


def _check(app: Sphinx, error: Exception | None) -> None:
    """A word that has another first result than it should is a warning, which fails the build."""
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if (
        error is not None
        or app.builder.name != "html"
        or None in programs
        or not importlib.util.find_spec("selenium")
    ):
        return
    for word, expected in FIRST.items():
        found = _first_result(f"{(Path(app.outdir) / 'search.html').as_uri()}?q={word}", *programs)
        if found != expected:
            logging.getLogger(__name__).warning(
                "search for %s: got %s first, expected %s", word, found, expected
            )


def _first_result(address: str, chromium: str, driver: str) -> str:
    from selenium import webdriver
    from selenium.webdriver.support.ui import WebDriverWait

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for each in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(each)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        browser.get(address)
        results = WebDriverWait(browser, SECONDS).until(
            lambda b: b.find_elements("css selector", "ul.search li a")
        )
        return str(results[0].text)
    finally:
        browser.quit()


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx's entry point."""
    app.setup_extension("sphinx.domains.python")
    app.add_domain(RankedDomain, override=True)
    app.connect("build-finished", _check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
