"""Directives of the site: cards of notebooks, programs, rows of a table elsewhere; and downloads of the notebooks."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cards import introduction, picture, program_sentence
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

__all__ = ["last_rows", "setup"]


def last_rows(text: str, marker: str, count: int) -> list[str]:
    """Head and last rows of the table between two comments, without columns that are empty in these rows."""
    table = text.partition(f"<!-- {marker} -->")[2].partition(f"<!-- end of {marker} -->")[0].split("\n")
    rows = [line for line in table if line.startswith("|")]
    assert len(rows) >= 2 + count, f"expected a table of {marker}"
    cells = [row.strip()[1:-1].split("|") for row in rows[:2] + rows[-count:]]
    kept = [i for i in range(len(cells[0])) if any(row[i].strip() for row in cells[2:])]
    return ["|" + "|".join(row[i] for i in kept) + "|" for row in cells]


class _LastRows(SphinxDirective):
    """``{last-rows} PAGE COUNT MARKER``: head and last rows of a table."""

    required_arguments = 3
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        page, count, marker = self.arguments
        file = self.env.doc2path(page)
        self.env.note_dependency(file)
        with open(file) as source:
            return self.parse_text_to_nodes("\n".join(last_rows(source.read(), marker, int(count))))


class _Cards(nodes.General, nodes.Element):
    """Cards of the pages below a page; they become HTML when all notebooks have run."""


class _Gallery(SphinxDirective):
    """``{gallery}``: cards of the notebooks that the page's table of contents lists."""

    def run(self) -> list[nodes.Node]:
        return [_Cards()]


class _Programs(SphinxDirective):
    """``{programs} FOLDER``: each program of the folder, to download, with what its docstring says first."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        folder = self.arguments[0]
        files = sorted((Path(self.env.doc2path(self.env.docname)).parent / folder).glob("*.py"))
        lines = [
            f"- {{download}}`{file.name} <{folder}/{file.name}>`: {program_sentence(file.read_text())}"
            for file in files
        ]
        return self.parse_text_to_nodes("\n".join(lines))


def _outputs(file: Path) -> Iterator[dict[str, Any]]:
    cells = json.loads(file.read_text())["cells"] if file.exists() else []
    for cell in cells:
        yield from cell.get("outputs", [])


def _card(app: Sphinx, page: str, shown_on: str) -> str:
    found = introduction(Path(app.env.doc2path(page)).read_text())
    if found is None:
        return ""
    title, sentence = (re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text)) for text in found)
    drawn = picture(list(_outputs(Path(app.outdir).parent / "jupyter_execute" / f"{page}.ipynb")))
    address = app.builder.get_relative_uri(shown_on, page)
    return f'<a class="card" href="{address}"><div class="drawn">{drawn}</div><h3>{title}</h3><p>{sentence}</p></a>'


def _draw(app: Sphinx, doctree: nodes.document, page: str) -> None:
    for node in list(doctree.findall(_Cards)):
        cards = "".join(_card(app, each, page) for each in app.env.toctree_includes.get(page, []))
        node.replace_self(nodes.raw("", f'<div class="gallery">{cards}</div>', format="html"))


def _offer(app: Sphinx, page: str, source: list[str]) -> None:
    """Put a link to the notebook, as it ran, below the title of its page."""
    if introduction(source[0]) is not None:
        name = page.rpartition("/")[2]
        link = f"{{nb-download}}`Download this notebook <{name}.ipynb>`"
        source[0] = re.sub(r"(?m)^(# .+)$", rf"\1\n\n{link}, with its outputs.", source[0], count=1)


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx's entry point."""
    app.add_node(_Cards)
    app.add_directive("gallery", _Gallery)
    app.add_directive("programs", _Programs)
    app.add_directive("last-rows", _LastRows)
    app.connect("source-read", _offer)
    app.connect("doctree-resolved", _draw)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
