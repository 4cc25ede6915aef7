"""Cards of the notebooks and of the example programs, from what these say themselves, and downloads of the notebooks.

A card of a notebook has its title, its first sentence, and a picture of what its cells printed when they ran: a
figure, the verdict of a proof, or a partition. A program has the first sentence of its docstring, and its file.
"""

from __future__ import annotations

import ast
import json
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

__all__ = ["first_sentence", "introduction", "picture", "program_sentence", "setup", "states_picture"]

NOTEBOOK = re.compile(r"\A---\n.*?^---\n+# ([^\n]+)\n+((?:[^\n]+\n)+)", re.MULTILINE | re.DOTALL)
VERDICT = re.compile(r"(\d+) states? on (\d+) replicas?, (none|\d+) drifts?")
PARTITION = re.compile(r"(?:\{\d+(?:,\d+)*\}){2,}")
# Cards show the same colours as strips of partitions do.
BLUE, GREY, OTHERS = "hsl(215 45% 50%)", "hsl(215 8% 60%)", (95, 155, 275, 35)
MOST = 8  # rows and columns of a picture


def introduction(text: str) -> tuple[str, str] | None:
    """Title and first sentence of a notebook's source; nothing of another page."""
    found = NOTEBOOK.match(text)
    return (found[1], first_sentence(found[2])) if found and "{code-cell}" in text else None


def first_sentence(paragraph: str) -> str:
    """The first sentence, with a full stop in the place of a colon."""
    sentence = re.split(r"(?<=[.:?])\s", paragraph.strip(), maxsplit=1)[0]
    return re.sub(r":$", ".", " ".join(sentence.split()))


def program_sentence(text: str) -> str:
    """The first sentence of a program's docstring."""
    return first_sentence((ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].replace("``", "`"))


def states_picture(states: int, replicas: int, drifting: int) -> str:
    """A row for each state and a column for each replica: one colour is one value."""
    rows, columns = min(states, MOST), min(replicas, MOST)
    bad = min(drifting, rows - (drifting < states))
    width, height = 240 // columns, 96 // rows
    body = []
    for row in range(rows):
        for column in range(columns):
            differs = row >= rows - bad
            fill = (
                f"hsl({OTHERS[column % len(OTHERS)]} 45% {50 + 6 * (column // len(OTHERS))}%)"
                if differs
                else BLUE
            )
            corner = f'x="{column * width}" y="{row * height}"'
            body.append(f'<rect {corner} width="{width - 2}" height="{height - 2}" fill="{fill}"/>')
    label = f"{states} states on {replicas} replicas, {drifting or 'none'} {'drifts' if drifting < 2 else 'drift'}"
    return _svg(label, "".join(body))


def _svg(label: str, body: str) -> str:
    head = f'<svg viewBox="0 0 240 96" role="img" aria-label="{escape(label)}"><title>{escape(label)}</title>'
    return f"{head}{body}</svg>"


def _partition_picture(text: str) -> str:
    from popsr._support.text.strip import STRIP_HEIGHT, strip_parts
    from popsr.replicas import Partition

    blocks = [block.split(",") for block in text.strip("{}").split("}{")]
    labels = {int(replica): label for label, block in enumerate(blocks) for replica in block}
    parts = strip_parts(Partition.from_labels([labels[each] for each in sorted(labels)]), 240)
    return _svg(text, f'<g transform="scale(1 {96 / STRIP_HEIGHT})">{parts}</g>')


def picture(outputs: list[dict[str, Any]]) -> str:
    """HTML of the first picture among outputs of cells; nothing if they have none."""
    text = "".join(
        "".join(each.get("text") or each.get("data", {}).get("text/plain", "")) for each in outputs
    )
    for each in outputs:
        if png := each.get("data", {}).get("image/png"):
            return f'<img src="data:image/png;base64,{"".join(png.split())}" alt="">'
    if found := VERDICT.search(text):
        return states_picture(int(found[1]), int(found[2]), 0 if found[3] == "none" else int(found[3]))
    shown = max(PARTITION.findall(text), key=len, default="")
    return _partition_picture(shown) if shown else ""


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
        link = f"{{nb-download}}`This notebook <{name}.ipynb>`"
        source[0] = re.sub(r"(?m)^(# .+)$", rf"\1\n\n{link}, with its outputs.", source[0], count=1)


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx's entry point."""
    app.add_node(_Cards)
    app.add_directive("gallery", _Gallery)
    app.add_directive("programs", _Programs)
    app.connect("source-read", _offer)
    app.connect("doctree-resolved", _draw)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
