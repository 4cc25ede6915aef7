"""The page in Chromium: search, links, scopes, themes, escapes, no network; also with 10,000 ops."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import popsr
from tests_py.report import programs
from tests_py.support.browser import Page, browser

LAYERS = {300: 37, 10_000: 1250}  # by number of ops
LIMITS = {300: 1_000_000, 10_000: 5_000_000}  # bytes


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module", params=LAYERS)
def report(request: Any, tmp_path_factory: Any) -> tuple[Path, popsr.Ir]:
    ir = programs.layers(LAYERS[request.param], drifting=True)
    path = tmp_path_factory.mktemp("report") / "run.html"
    with pytest.warns(popsr.ReplicaWarning):
        popsr.Session(ir).report(path)
    assert path.stat().st_size <= LIMITS[request.param]
    return path, ir


def test_every_op_is_found_by_its_number(driver: Any, report: tuple[Path, popsr.Ir]) -> None:
    page, ops = Page(driver, report[0]), report[1].main_graph.ops
    assert page.search("") == f"{len(ops)} ops"
    ids = page.js(
        "const s = document.getElementById('search'), found = [];"
        "for (const id of arguments[0]) { s.value = `op-${id}`; s.dispatchEvent(new Event('input'));"
        "found.push([...document.querySelectorAll('#rows .row')].map(r => r.id).join()); } return found",
        [op.id for op in ops[:: max(1, len(ops) // 200)]],
    )
    assert ids == [f"op-{op.id}" for op in ops[:: max(1, len(ops) // 200)]]


def test_search_by_kind_scope_and_line(driver: Any, report: tuple[Path, popsr.Ir]) -> None:
    page, ops = Page(driver, report[0]), report[1].main_graph.ops
    kinds = sum("gelu" in repr(op).partition("  # ")[0] for op in ops)
    assert page.search("gelu") == f"{kinds} of {len(ops)} ops"
    assert page.search("block0/layer3 GELU(").startswith("1 of ")
    assert page.search("no such op") == f"0 of {len(ops)} ops"
    assert page.rows() == []


@pytest.mark.parametrize("share", [0.0, 0.37, 0.999])
def test_a_link_to_an_op_opens_its_scopes(driver: Any, report: tuple[Path, popsr.Ir], share: float) -> None:
    ops = report[1].main_graph.ops
    op = ops[int(share * len(ops))]
    page = Page(driver, report[0], f"#op-{op.id}")
    row = page.wait(lambda: page.find(f"#op-{op.id}"))
    assert "chosen" in row.get_attribute("class")
    assert row.is_displayed()
    assert f"op-{op.id} in main graph" in page.find("#detail").text
    assert op.kind in page.find("#detail").text


def test_a_lint_leads_to_its_op(driver: Any, report: tuple[Path, popsr.Ir]) -> None:
    page = Page(driver, report[0])
    link = page.find("#lints a[href^='#op-']")
    target = link.get_attribute("href").partition("#")[2]
    for _ in range(2):  # also when it was followed before
        page.js("arguments[0].click()", link)
        classes = page.wait(
            lambda: page.js("return document.getElementById(arguments[0])?.className", target)
        )
        assert "chosen" in classes.split()
        page.click("#close")


def test_scopes_open_and_close(driver: Any, report: tuple[Path, popsr.Ir]) -> None:
    page = Page(driver, report[0])
    page.click("#close")
    assert len(page.rows()) == 1
    page.click("#rows .row.scope")
    before = len(page.rows())
    assert before > 1
    page.js(
        "[...document.querySelectorAll('#rows .row.scope')].find(r => r.innerText.includes('block0')).click()"
    )
    assert any("layer0" in row for row in page.rows())
    page.click("#close")
    assert len(page.rows()) == 1


def test_rows_are_made_for_what_is_seen(driver: Any, report: tuple[Path, popsr.Ir]) -> None:
    page = Page(driver, report[0])
    page.search("block")
    assert len(page.rows()) < 120
    page.js("document.getElementById('rows').scrollTop = 1e9")
    last = page.wait(lambda: (page.rows() or [""])[-1])
    assert last


def test_themes(driver: Any, report: tuple[Path, popsr.Ir]) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    seen = {}
    for scheme in ("light", "dark"):
        driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        )
        page = Page(driver, report[0])
        seen[scheme] = page.js(ground)
        page.click("#theme")
        seen[f"{scheme}, switched"] = page.js(ground)
    assert seen["light"] == seen["dark, switched"] != seen["dark"] == seen["light, switched"]


def test_a_page_asks_for_nothing_and_logs_nothing(driver: Any, report: tuple[Path, popsr.Ir]) -> None:
    driver.get_log("performance")
    driver.get_log("browser")
    Page(driver, report[0])
    messages = [json.loads(each["message"])["message"] for each in driver.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert {url for url in asked if not url.startswith(("file:", "about:", "data:"))} == set()
    assert driver.get_log("browser") == []


def test_names_of_the_user_are_text(driver: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    with pytest.warns(popsr.ReplicaWarning):
        session = popsr.Session(programs.hostile())
    session.report(path)
    page = Page(driver, path)
    assert page.js("return document.querySelectorAll('b').length") == 0
    assert page.search("</script><b>").startswith("2 of ")
    assert "</script>" in page.find("#variables").text
    assert driver.get_log("browser") == []


def test_without_javascript(report: tuple[Path, popsr.Ir]) -> None:
    with browser("--blink-settings=scriptEnabled=false") as driver:
        driver.get(report[0].as_uri())
        for name in ("summary", "lints", "variables", "memory", "collectives", "graph"):
            section = driver.find_element("id", name)
            assert section.is_displayed()
            assert len(section.text) > 40, name
        assert "needs JavaScript" in driver.find_element("id", "graph").text
