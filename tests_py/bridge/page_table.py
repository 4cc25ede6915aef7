"""A table of a page of docs that a test compares, and a program writes anew."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["PageTable"]


class PageTable:
    """The lines of a page between the comments ``<!-- name -->`` and ``<!-- end of name -->``."""

    def __init__(self, page: Path, name: str) -> None:
        """Of a page that has the comments."""
        self._page = page
        self._lines = re.compile(rf"(?<=<!-- {name} -->\n\n).*?(?=\n\n<!-- end of {name} -->)", re.DOTALL)

    def written(self) -> str:
        """The table on the page; empty where it has none."""
        found = self._lines.search(self._page.read_text())
        return found[0] if found else ""

    def write(self, table: str) -> None:
        """Put a table in its place."""
        self._page.write_text(self._lines.sub(lambda _: table, self._page.read_text()))
