"""The site's extensions: cards of notebooks, and the menu."""

import importlib
import re
from typing import Any

import pytest

from tests_py import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(autouse=True)
def extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))


def extension(name: str) -> Any:
    return importlib.import_module(name)


# Notebooks


def test_each_notebook_has_a_title_and_a_sentence() -> None:
    cards = extension("cards")
    index = (DOCS / "tutorials/index.md").read_text()
    pages = re.findall(r"```\{toctree\}\n:hidden:\n\n(.*?)```", index, re.DOTALL)[0].split()
    for name in pages:
        title, sentence = cards.introduction((DOCS / f"tutorials/{name}.md").read_text())
        assert "\n" not in title, name
        assert sentence.endswith((".", "?")), name
    assert cards.introduction((DOCS / "bridge.md").read_text()) is None


@pytest.mark.parametrize(
    ("paragraph", "sentence"),
    [
        ("One of two. Another.", "One of two."),
        ("It fails:\n", "It fails."),
        ("Two halves: one\nand two. Three.", "Two halves: one and two."),
        ("A sum\nof 0.5 is kept. And so on", "A sum of 0.5 is kept."),
    ],
)
def test_first_sentences(paragraph: str, sentence: str) -> None:
    assert extension("cards").first_sentence(paragraph) == sentence


def test_pictures_show_a_figure_the_worst_verdict_or_a_partition() -> None:
    picture = extension("cards").picture
    figure = {"data": {"image/png": "iVBO\nRw==", "text/plain": "<Figure>"}}
    printed = {"text": ["not ok: 3 states on 4 replicas, 1 drifts\n", "w {0,1}{2,3}"]}
    assert 'src="data:image/png;base64,iVBORw=="' in picture([printed, figure])
    states = picture([printed])
    assert states.count("<rect") == 12
    assert (
        len(set(re.findall(r'fill="([^"]*)"', states))) == 5
    )  # one colour of what is equal, four of what drifts
    assert picture([{"text": ["ok: 3 states on 4 replicas, none drifts\n", *printed["text"]]}]) == states
    groups = picture([{"text": "{0,1} w: {0,2}{1,3}"}])
    assert "{0,2}{1,3}" in groups
    assert len(set(re.findall(r'fill="([^"]*)"', groups))) == 2
    assert picture([{"text": "no replicas"}]) == ""


def test_programs_say_what_they_are() -> None:
    for file in (ROOT / "examples").glob("*.py"):
        assert len(extension("cards").program_sentence(file.read_text())) > 10, file.name


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
