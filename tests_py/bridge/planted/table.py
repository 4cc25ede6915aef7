"""Writes the table of planted bugs into docs/bridge.md: ``python -m tests_py.bridge.planted.table``."""

from __future__ import annotations

from tests_py import ROOT
from tests_py.bridge.page_table import PageTable
from tests_py.bridge.planted.run import table

__all__ = ["ON_PAGE"]

ON_PAGE = PageTable(ROOT / "docs" / "bridge.md", "planted bugs")

if __name__ == "__main__":
    ON_PAGE.write(table())
