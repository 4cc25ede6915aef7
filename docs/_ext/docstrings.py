"""Docstrings of properties are sentences: a colon in the first one does not begin a type, as napoleon reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sphinx.ext.napoleon import GoogleDocstring

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def _as_of_a_method(self: GoogleDocstring) -> list[str]:
    self._what = "method"
    self._parse()
    return self._parsed_lines


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx's entry point."""
    app.setup_extension("sphinx.ext.napoleon")
    GoogleDocstring._parse_attribute_docstring = _as_of_a_method
    return {"parallel_read_safe": True}
