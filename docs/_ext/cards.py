"""Cards of the notebooks and of the example programs, from what these say themselves.

A card of a notebook has its title, its first sentence, and a picture of what its cells printed when they ran: a
figure, the verdict of a proof, or a partition. A program has the first sentence of its docstring, and its file.
"""

from __future__ import annotations

import ast
import re
from html import escape
from typing import Any

__all__ = ["first_sentence", "introduction", "picture", "program_sentence", "states_picture"]

NOTEBOOK = re.compile(r"\A---\n.*?^---\n+# ([^\n]+)\n+((?:[^\n]+\n)+)", re.MULTILINE | re.DOTALL)
VERDICT = re.compile(r"(\d+) states? on (\d+) replicas?, (none|\d+) drifts?")
PARTITION = re.compile(r"(?:\{\d+(?:,\d+)*\}){2,}")
# Cards show the same colours as strips of partitions do.
BLUE, OTHERS = "hsl(215 45% 50%)", (95, 155, 275, 35)
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
