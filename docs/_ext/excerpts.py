"""Rows of a table of another page, so that figures have one home."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

__all__ = ["last_rows", "setup"]


def last_rows(text: str, marker: str, count: int) -> list[str]:
    """Head and last rows of the table between the comments ``<!-- marker -->`` and ``<!-- end of marker -->``."""
    table = text.partition(f"<!-- {marker} -->")[2].partition(f"<!-- end of {marker} -->")[0].split("\n")
    rows = [line for line in table if line.startswith("|")]
    assert len(rows) >= 2 + count, f"expected a table of {marker}"
    return rows[:2] + rows[-count:]


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


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx's entry point."""
    app.add_directive("last-rows", _LastRows)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
