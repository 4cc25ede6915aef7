"""Writes the table of planted bugs into docs/bridge.md: ``python -m tests_py.bridge.planted.table``."""

from __future__ import annotations

import re

from tests_py import ROOT
from tests_py.bridge.planted.run import table

__all__ = ["PAGE", "written"]

PAGE = ROOT / "docs" / "bridge.md"
_TABLE = re.compile(r"(?<=<!-- planted bugs -->\n\n).*?(?=\n\n<!-- end of planted bugs -->)", re.DOTALL)


def written() -> str:
    """The table on the page."""
    found = _TABLE.search(PAGE.read_text())
    return found[0] if found else ""


if __name__ == "__main__":
    new = table()
    PAGE.write_text(_TABLE.sub(lambda _: new, PAGE.read_text()))
