"""Cards of the notebooks and of the example programs, from what these say themselves.

A card of a notebook has its title, its first sentence, and a picture of what its cells printed when they ran: a
figure, the verdict of a proof, or a partition. A program has the first sentence of its docstring, and its file.
"""

from __future__ import annotations

import ast
import re
from html import escape
from typing import Any

__all__ = [
    "first_sentence",
    "introduction",
    "partition_picture",
    "picture",
    "program_sentence",
    "states_picture",
]

NOTEBOOK = re.compile(r"\A---\n.*?^---\n+# ([^\n]+)\n+((?:[^\n]+\n)+)", re.MULTILINE | re.DOTALL)
VERDICT = re.compile(r"(\d+) states? on (\d+) replicas?, (none|\d+) drifts?")
PARTITION = re.compile(r"(?:\{\d+(?:,\d+)*\}){2,}")
MOST = 8  # rows and columns of a picture


def introduction(text: str) -> tuple[str, str] | None:
    """Title and first sentence of a notebook's source; nothing of another page."""
    found = NOTEBOOK.match(text)
    return (found[1], first_sentence(found[2])) if found and "{code-cell}" in text else None


def first_sentence(paragraph: str) -> str:
    """The first sentence, with a full stop in the place of a colon at its end."""
    sentence = re.split(r"(?<=[.?])\s", paragraph.strip(), maxsplit=1)[0]
    return re.sub(r":$", ".", " ".join(sentence.split()))


def program_sentence(text: str) -> str:
    """The first sentence of a program's docstring."""
    return first_sentence((ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].replace("``", "`"))


def states_picture(states: int, replicas: int, drifting: int) -> str:
    """A row for each state and a column for each replica: one colour is one value."""
    rows, columns = min(states, MOST), min(replicas, MOST)
    bad = min(drifting, rows - (drifting < states))
    label = f"{states} states on {replicas} replicas, {drifting or 'none'} {'drifts' if drifting < 2 else 'drift'}"
    return _grid(label, [[0] * columns] * (rows - bad) + [[*range(1, columns + 1)]] * bad)


def partition_picture(text: str) -> str:
    """A column for each replica: one colour is one value."""
    blocks = [block.split(",") for block in text.strip("{}").split("}{")]
    labels = {int(replica): label for label, block in enumerate(blocks) for replica in block}
    return _grid(text, [[labels[replica] for replica in sorted(labels)]])


def _grid(label: str, rows: list[list[int]]) -> str:
    """Equal numbers have one colour, that of the block in strips of partitions."""
    from popsr._support.text.strip import block_fill

    blocks = 1 + max(map(max, rows))
    width, height = 240 / len(rows[0]), 96 / len(rows)
    body = ""
    for y, row in enumerate(rows):
        for x, value in enumerate(row):
            place = (
                f'x="{x * width:.4g}" y="{y * height:.4g}" width="{width - 2:.4g}" height="{height - 2:.4g}"'
            )
            body += f"<rect {place} {block_fill(value, blocks)}/>"
    head = f'<svg viewBox="0 0 240 96" role="img" aria-label="{escape(label)}"><title>{escape(label)}</title>'
    return f"{head}{body}</svg>"


def picture(outputs: list[dict[str, Any]]) -> str:
    """HTML of the first picture among outputs of cells; nothing if they have none."""
    text = "".join(
        "".join(each.get("text") or each.get("data", {}).get("text/plain", "")) for each in outputs
    )
    for each in outputs:
        if png := each.get("data", {}).get("image/png"):
            return f'<img src="data:image/png;base64,{"".join(png.split())}" alt="">'
    proofs = [
        (int(s), int(n), 0 if drifts == "none" else int(drifts)) for s, n, drifts in VERDICT.findall(text)
    ]
    if proofs:
        return states_picture(*max(proofs, key=lambda proof: proof[2]))
    shown = max(PARTITION.findall(text), key=len, default="")
    return partition_picture(shown) if shown else ""
