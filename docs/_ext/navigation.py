"""The menu of each page, made once for a folder.

Sphinx resolves the whole table of contents for each page, which took half of the time of a build. Pages of one folder
have the same menu, but for the marks of the page itself and of what is above it. A page that is in no table of contents
has the marks of the page named ``index`` beside it.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from sphinx.application import Sphinx

__all__ = ["marked", "plain", "setup"]

TAG = re.compile(r'<(/?)(ul|li)\b([^>]*)>|<a class="reference internal" href="([^"]*)">')


def plain(menu: str, own: str) -> str:
    """The menu of a page without its marks; `own` is the page's address from its folder."""
    menu = re.sub(r'(<li class="toctree-l\d+) current">', r'\1">', menu).replace(
        '<ul class="current">', "<ul>"
    )
    return menu.replace(
        '<a class="current reference internal" href="#">', f'<a class="reference internal" href="{own}">'
    )


def marked(menu: str, own: str) -> str:
    """A plain menu with marks of the page at that address."""
    above: list[re.Match[str]] = []
    changes: dict[int, tuple[int, str]] = {}
    for tag in TAG.finditer(menu):
        end, _kind, _attributes, href = tag.groups()
        if href is None:
            above = above[:-1] if end else [*above, tag]
        elif href == own:
            changes[tag.start()] = tag.end(), '<a class="current reference internal" href="#">'
            for each in above:
                text = '<ul class="current">' if each[2] == "ul" else each[0].replace('">', ' current">')
                changes[each.start()] = each.end(), text
    for start, (end, text) in sorted(changes.items(), reverse=True):
        menu = f"{menu[:start]}{text}{menu[end:]}"
    return menu


def _provide(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    original = context.get("toctree")
    if original is not None:
        context["toctree"] = _shared(app, page, original)


def _shared(app: Sphinx, page: str, original: Callable[..., str]) -> Callable[..., str]:
    menus: dict[Any, str] = app.__dict__.setdefault("popsr_menus", {})
    folder, name = posixpath.split(page)

    def toctree(**options: Any) -> str:
        key = folder, tuple(sorted(options.items()))
        if key not in menus:
            menus[key] = plain(original(**options), f"{name}.html")
        menu = marked(menus[key], f"{name}.html")
        return menu if menu != menus[key] else marked(menu, "index.html")

    return toctree


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx's entry point."""
    app.connect("html-page-context", _provide, priority=400)  # before the theme's
    return {"parallel_read_safe": True, "parallel_write_safe": True}
