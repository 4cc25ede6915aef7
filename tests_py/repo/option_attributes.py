"""Types of the session options for type checkers: ``python tests_py/repo/option_attributes.py`` writes them.

``popsr/_program/options/attributes.pyi`` follows from the table of options; ``test_types.py`` compares the two.
"""

from __future__ import annotations

from pathlib import Path

import popsr
from popsr._program.options import enums, settings
from popsr._program.options.table import ALIASES, OPTIONS

FILE = Path(popsr.__file__).parent / "_program/options/attributes.pyi"

_WORDS = {"partials": "str", "int from 0": "int", "int from 1": "int"}
_LOCATIONS = ("ReplicatedTensorSharding", "TensorStorage", "TileSet")


def _annotation(kind: str) -> str:
    """The Python type of a kind of option."""
    if kind.endswith(" or None"):
        return f"{_annotation(kind.removesuffix(' or None'))} | None"
    container, of, item = kind.partition(" of ")
    if of:
        key = "str, " if container == "dict" else ""
        return f"{container}[{key}{_annotation(item)}]"
    return _WORDS.get(kind, kind)


def _written(kind: str) -> str:
    """Types that an option of the kind can be set to, where they are more than it is read as."""
    container, of, item = kind.removesuffix(" or None").partition(" of ")
    if of and container in ("list", "set"):
        return f"Iterable[{_annotation(item)}]{' | None' * kind.endswith(' or None')}"
    if of:
        return f"Mapping[str, {_written(item)}]"
    return "TensorLocation | Location" if kind == "TensorLocation" else _annotation(kind)


def _lines(name: str, kind: str) -> list[str]:
    read, written = _annotation(kind), _written(kind)
    if read == written:
        return [f"    {name}: {read}"]
    return [
        "    @property",
        f"    def {name}(self) -> {read}: ...",
        f"    @{name}.setter",
        f"    def {name}(self, value: {written}) -> None: ...",
    ]


def _imports(module: str, names: set[str]) -> list[str]:
    if not names:
        return []
    line = f"from {module} import {', '.join(sorted(names))}"
    if len(line) <= 110:
        return [line]
    return [f"from {module} import (", *(f"    {name}," for name in sorted(names)), ")"]


def text() -> str:
    """The file."""
    rows = {row.name: row for row in OPTIONS if not row.name.startswith("_")}
    kinds = {name: row.kind for name, row in rows.items()}
    kinds |= {row.own_name: row.kind for row in rows.values() if row.own_name}
    kinds |= {alias: rows[name].kind for alias, name in ALIASES.items()}
    used = set(" ".join(kinds.values()).split())
    lines = [
        '"""Types of the session options. Written by tests_py/repo/option_attributes.py from the table of options."""',
        "",
        "# ruff: noqa: N802, N815 - PopART's names",
        "",
        "from collections.abc import Iterable, Mapping",
        "",
        *_imports("popsr._program.options.enums", used.intersection(enums.__all__)),
        "from popsr._program.options.record import Record",
        *_imports("popsr._program.options.settings", used.intersection(settings.__all__)),
        *_imports("popsr.tensorlocation", used.intersection(_LOCATIONS)),
        "from popsr.tensorlocation import TensorLocation as Location",
        "",
        "class OptionAttributes(Record):",
    ]
    for name, kind in sorted(kinds.items()):
        lines += _lines(name, kind)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
