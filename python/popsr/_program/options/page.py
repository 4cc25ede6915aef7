"""The table of session options that ``python -m popsr options`` prints, made of what ``options`` reads."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from popsr._program.options.kinds import class_of
from popsr._program.options.table import ALIASES, OPTIONS, SETTINGS, Row
from popsr._support.host.tables import markdown_table, table_to_string

__all__ = ["main", "option_rows"]

_HEADER = ("option", "values", "default", "effect")
_HEADER_UNUSED = (*_HEADER[:3], "reason")

_INTRODUCTION = """# Session options

Written by `python -m popsr options --markdown`; do not edit.

`ir.options`, `ir._pb_ir.getSessionOptions()` and `popart.SessionOptions()` have PopART's session options, with its
defaults except for `enableLoadAndOffloadRNGState`, which is False there. A value of another type or out of range is
an error where it is set; an unknown name is an `AttributeError` with the nearest one. Enumerations and settings are
classes of `popart`. All values can be read back, and `repr(ir.options)` shows the ones that were set.
"""

_USED = """## With an effect

Options in parentheses are popsr's own names. `stochastic_rounding_mode` and `seed` are options of popsr alone; see
`help(popsr.options.Options)`.
"""

_UNUSED = """## Without an effect

When a session is made, a line of the logger `popsr` (level INFO) names the ones that were set.
"""

_SETTINGS = """## Settings

Attributes of the settings above. They have no effect either.
"""


def main(argv: Sequence[str]) -> int:
    """Print the table; returns the exit status."""
    parser = argparse.ArgumentParser(
        "python -m popsr options", description="Print a table of all session options."
    )
    parser.add_argument(
        "--markdown", action="store_true", help="as a page of Markdown: docs/session_options.md"
    )
    if parser.parse_args(argv).markdown:
        print(_page())
    else:
        print(table_to_string([_HEADER, *(_shown(row) for row in option_rows())]))
    return 0


def option_rows() -> list[Row]:
    """All options: the ones with an effect first, attributes of settings last as ``Class.name``."""
    attributes = [
        row._replace(name=f"{name}.{row.name}") for name, rows in sorted(SETTINGS.items()) for row in rows
    ]
    used = [row for row in OPTIONS if row.is_used]
    return [*used, *sorted(row for row in OPTIONS if not row.is_used), *attributes]


def _page() -> str:
    rows = option_rows()
    parts = (
        (_USED, [row for row in rows if row.is_used]),
        (_UNUSED, [row for row in rows if not row.is_used and "." not in row.name]),
        (_SETTINGS, [row for row in rows if "." in row.name]),
    )
    heads = (_HEADER, _HEADER_UNUSED, _HEADER_UNUSED)
    tables = (
        f"{text}\n{markdown_table([head, *map(_marked, part)])}"
        for head, (text, part) in zip(heads, parts, strict=True)
    )
    return "\n\n".join([_INTRODUCTION.rstrip(), *tables])


def _shown(row: Row) -> tuple[str, ...]:
    effect = row.effect.replace("`", "")
    return (
        _names(row, ""),
        _values(row.kind, ""),
        _default(row),
        effect if row.is_used else f"none: {effect}",
    )


def _marked(row: Row) -> tuple[str, ...]:
    """As Markdown has it."""
    default = _default(row)
    return (_names(row, "`"), _values(row.kind, "`"), f"`{default}`" if default else "", row.effect)


def _names(row: Row, mark: str) -> str:
    aliases = [alias for alias, name in ALIASES.items() if name == row.name]
    names = [
        *([f"({mark}{row.own_name}{mark})"] if row.own_name else []),
        *(f"{mark}{a}{mark}" for a in aliases),
    ]
    return " ".join([f"{mark}{row.name}{mark}", *names])


def _values(kind: str, mark: str) -> str:
    """A kind, with the members of enumerations."""
    if kind == "partials":
        return f'{mark}""{mark}, {mark}"float"{mark}, {mark}"half"{mark} in any case'
    if not kind[0].isupper() or kind in SETTINGS or " " in kind:
        return kind
    members = ", ".join(class_of(kind).__members__)
    return f"{mark}{kind}{mark}: {members}"


def _default(row: Row) -> str:
    value: Any = row.default
    if row.kind.startswith(("dict", "list", "set")) and " or None" not in row.kind:
        return _items(value) if value else {"dict": "{}", "list": "[]", "set": "set()"}[row.kind.split()[0]]
    if value is None:
        return "" if row.kind in SETTINGS else "None"
    return str(value) if row.kind[0].isupper() else repr(value)


def _items(values: Iterable[Any]) -> str:
    return f"{{{', '.join(map(str, values))}}}"
