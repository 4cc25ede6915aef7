"""The site's extensions: cards of notebooks, the menu, excerpts of tables, and the order of search results."""

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests_py import ROOT
from tests_py.support.browser import browser, wait

DOCS = ROOT / "docs"


@pytest.fixture(autouse=True)
def extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))


def extension(name: str) -> Any:
    return importlib.import_module(name)


# Notebooks


def test_each_notebook_has_a_title_and_a_sentence() -> None:
    gallery = extension("gallery")
    index = (DOCS / "tutorials/index.md").read_text()
    pages = re.findall(r"```\{toctree\}\n:hidden:\n\n(.*?)```", index, re.DOTALL)[0].split()
    for name in pages:
        title, sentence = gallery.introduction((DOCS / f"tutorials/{name}.md").read_text())
        assert "\n" not in title, name
        assert sentence.endswith((".", "?")), name
    assert gallery.introduction((DOCS / "bridge.md").read_text()) is None


@pytest.mark.parametrize(
    ("paragraph", "sentence"),
    [
        ("One of two. Another.", "One of two."),
        ("It fails:\n", "It fails."),
        ("A sum\nof 0.5 is kept. And so on", "A sum of 0.5 is kept."),
    ],
)
def test_first_sentences(paragraph: str, sentence: str) -> None:
    assert extension("gallery").first_sentence(paragraph) == sentence


def test_pictures_show_the_first_figure_verdict_or_partition() -> None:
    picture = extension("gallery").picture
    figure = {"data": {"image/png": "iVBO\nRw==", "text/plain": "<Figure>"}}
    printed = {"text": ["not ok: 3 states on 4 replicas, 1 drifts\n", "w {0,1}{2,3}"]}
    assert 'src="data:image/png;base64,iVBORw=="' in picture([printed, figure])
    states = picture([printed])
    assert states.count("<rect") == 12
    assert (
        len(set(re.findall(r'fill="([^"]*)"', states))) == 5
    )  # one colour of what is equal, four of what drifts
    assert "{0,2}{1,3}" in picture([{"text": "{0,1} w: {0,2}{1,3}"}])
    assert picture([{"text": "no replicas"}]) == ""


def test_programs_say_what_they_are() -> None:
    for file in (ROOT / "examples").glob("*.py"):
        assert len(extension("gallery").program_sentence(file.read_text())) > 10, file.name


# Menu


MENU = (
    '<p class="caption">Learn</p>'
    '<ul{0}><li class="toctree-l1"><a class="reference internal" href="../a.html">A</a></li>'
    '<li class="toctree-l1{1}"><a class="reference internal" href="index.html">B</a><ul{0}>'
    '<li class="toctree-l2{1}"><a class="{2}reference internal" href="{3}">C</a></li></ul></li></ul>'
)


def test_menus_of_a_folder_differ_in_their_marks_alone() -> None:
    navigation = extension("navigation")
    of_another, of_c = (
        MENU.format("", "", "", "c.html"),
        MENU.format(' class="current"', " current", "current ", "#"),
    )
    assert navigation.plain(of_c, "c.html") == of_another
    assert navigation.marked(of_another, "c.html") == of_c
    assert navigation.marked(of_another, "d.html") == of_another


# Tables


def test_last_rows_have_the_head_of_their_table() -> None:
    rows = extension("excerpts").last_rows((DOCS / "bridge.md").read_text(), "planted bugs", 2)
    assert [row.split("|")[1].split(",")[0].strip() for row in rows] == [
        "bug",
        "---",
        "found",
        "alarms about 61 right steps",
    ]


# Search


WORDS = {
    "prove": "popsr.prove",
    "guard": "popsr.guard.torch.guard",
    "audit": "popsr.bridge.audit.audit",
    "cast": "popsr.ops.cast",
    "AdamW": "popsr.sr.torch.AdamW",
    "drift": "popsr.bridge.audit.Drift",
}
TITLES = (
    "L2: a variable drifts",
    "Proving an FSDP step",
    "Guard of a running job",
    "Audit of real jobs",
    "Casts",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A small site with all public names and some guides, made with the site's settings of the search."""
    application = pytest.importorskip("sphinx.application")
    pytest.importorskip("onnx")
    folder = tmp_path_factory.mktemp("site")
    sys.path.insert(0, str(DOCS / "_ext"))
    try:
        names = [entry for page in extension("reference").pages().values() for entry in page.entries]
        lines = [f".. py:{entry.kind}:: {entry.path}\n" for entry in names]
        lines += [
            "   .. py:attribute:: drift\n" for _ in range(1) if names
        ]  # of a class, below the last name
        pages = {"names": ["Names", "=====", "", *lines]}
        for number, title in enumerate(TITLES):
            pages[f"page{number}"] = [
                title,
                "=" * len(title),
                "",
                "On to drift, guard, prove, audit and cast.",
            ]
        toc = ["Site", "====", "", ".. toctree::", "", *(f"   {name}" for name in pages)]
        for name, text in {"index": toc, **pages}.items():
            (folder / f"{name}.rst").write_text("\n".join(text) + "\n")
        settings = {
            "extensions": ["ranking"],
            "html_search_scorer": str(DOCS / "_ext/scorer.js"),
            "html_theme": "basic",
        }
        made = folder / "made"
        application.Sphinx(
            folder, None, made, made / "trees", "html", settings, status=None, warning=None
        ).build()
        yield made
    finally:
        sys.path.remove(str(DOCS / "_ext"))


def test_search_finds_the_function_of_that_name_first(site: Path) -> None:
    with browser() as driver:
        for word, expected in WORDS.items():
            driver.get(f"{(site / 'search.html').as_uri()}?q={word}")
            found = wait(driver, lambda: driver.find_elements("css selector", "ul.search li a"))
            assert found[0].text == expected, word
