"""One program for ``check``, and what it finds there."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

__all__ = ["Case", "dataclass_default", "program"]


@dataclass(frozen=True)
class Case:
    """Files by name, the first is given to ``check``; findings as "file:line:column kind text; suggestion"."""

    files: dict[str, str]
    expected: tuple[str, ...] = ()


def program(text: str, *expected: str, files: dict[str, str] | None = None) -> Case:
    """``main.py`` and other files; findings without a file are of ``main.py``."""
    texts = {"main.py": text} | (files or {})
    found = tuple(f"main.py:{each}" if each[0].isdigit() else each for each in expected)
    return Case({name: textwrap.dedent(each).removeprefix("\n") for name, each in texts.items()}, found)


def dataclass_default(place: str, field: str, made_of: str) -> str:
    return (
        f"{place} dataclass field {field} of C defaults to an instance of {made_of}, which Python 3.11 refuses: "
        "python -m popsr run and popsr.compat.install() let it default to a copy"
    )
