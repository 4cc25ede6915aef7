"""The tables of docs/what_is_read.md."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests_py import ROOT
from tests_py.bridge.page_table import PageTable
from tests_py.bridge.torch.matrix.cells import CELLS, COVERING, PUBLISHED, Cell
from tests_py.bridge.torch.matrix.models import MODELS
from tests_py.bridge.torch.matrix.optimizers import OPTIMIZERS
from tests_py.bridge.torch.matrix.parallel import PARALLEL

__all__ = ["ON_PAGE", "REFUSED", "entry", "state_of", "table"]

ON_PAGE = PageTable(ROOT / "docs/what_is_read.md", "matrix")
LETTERS = dict(zip(MODELS, "MGDCEL", strict=True))
REFUSED = "refused"
MARKS = {"": " ?", "ok": "", "drift": "\\*", "suspicious": " †", REFUSED: " –"}
"""Marks by what became of a cell."""


def state_of(text: str) -> str:
    """ "ok", "drift", "suspicious" or "refused", of the text of an outcome; empty if it was not run."""
    return text if text in MARKS else REFUSED


def entry(cell: Cell, state: str) -> str:
    """A cell of the table."""
    return LETTERS[cell.model] + MARKS[state]


def _message(text: str) -> str:
    """A refusal without the lines of a cell."""
    text = re.sub(r"\S*/(\w+\.py):\d+", "LINE", text.partition(": ")[2])
    return re.sub(r"\{[^}]*\}", "{…}", text)[:300].replace("|", "\\|")


def table(texts: Sequence[str]) -> str:
    """The tables.

    Args:
        texts: an outcome for each of ``CELLS``, empty for those that were not run.
    """
    found = dict(zip(CELLS, texts, strict=True))
    head = ["", *OPTIMIZERS]
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join(['---'] * len(head))} |"]
    cells = iter(COVERING)
    for parallel in PARALLEL:
        row = [next(cells) for _ in OPTIMIZERS]
        lines.append(f"| {parallel} | {' | '.join(entry(cell, state_of(found[cell])) for cell in row)} |")
    read = [state_of(text) != REFUSED for text in texts if text]
    lines += ["", f"{len(read)} cells, {sum(read)} read ({100 * sum(read) / len(read):.0f} %), of them "]
    lines[-1] += f"{sum(text in ('drift', 'suspicious') for text in texts)} not ok."
    published = [
        f"{cell.model}; {cell.parallel}; {cell.optimizer}: {state_of(found[cell]) or '?'}"
        for cell in PUBLISHED
    ]
    lines += ["", "Set-ups of published recipes:", "", *(f"- {line}" for line in published)]
    texts_of: dict[str, int] = {}
    for text in texts:
        if state_of(text) == REFUSED:
            texts_of[_message(text)] = texts_of.get(_message(text), 0) + 1
    if texts_of:
        lines += ["", "Refusals:", "", *(f"- {count} cells: `{text}`" for text, count in texts_of.items())]
    return "\n".join(lines)
