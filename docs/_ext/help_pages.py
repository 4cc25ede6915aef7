"""The pages of errors and lints, which `python -m popsr help` prints too, with an index of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from written import write_files

from popsr import errors
from popsr._tools import help as _help

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["index", "setup"]

FIRST = ("Error", "ReplicaWarning")  # the bases
ERRORS = (*FIRST, *(name for name in errors.__all__ if name not in FIRST))

INDEX = """# Errors and lints

`python -m popsr help NAME` prints these pages in a terminal: `help ShapeError`, `help L2`.

## Lints

A lint is something suspicious about replicas or order in a program that runs all the same. `facts.warnings` lists them,
each with what it costs. Sessions warn of L1, L2 and L3 with [ReplicaWarning](errors/ReplicaWarning.md), whose text
begins with the code of the lint; with `Session(strict=True)` they are errors.

| lint | meaning |
| --- | --- |
{lints}

## Errors

Each error is a class of `popsr.errors` and the builtin class that fits, so `except ValueError` works, too. A call that
raises has changed nothing in the program.

| error | meaning |
| --- | --- |
{errors}

```{{toctree}}
:hidden:

{pages}
```
"""


def index() -> str:
    """The page that lists all others."""
    pages = [*(f"lints/{name}" for name in _help.LINTS), *(f"errors/{name}" for name in ERRORS)]
    return INDEX.format(
        lints="\n".join(f"| [{name}](lints/{name}.md) | {_title(name)} |" for name in _help.LINTS),
        errors="\n".join(f"| [{name}](errors/{name}.md) | {_summary(name)} |" for name in ERRORS),
        pages="\n".join(pages),
    )


def _text(name: str) -> str:
    text = _help.page(name)
    assert text is not None, name
    return text


def _title(name: str) -> str:
    """The text after the code in the heading of a lint."""
    return _text(name).split("\n", 1)[0].partition(": ")[2]


def _summary(name: str) -> str:
    """The first sentence of an error, without its examples."""
    paragraph = " ".join(_text(name).split("\n\n")[1].split())
    return re.split(r"(?<=\w)[.:](?: |$)", paragraph, maxsplit=1)[0] + "."


def _generate(app: Sphinx) -> None:
    kinds = (("lints", _help.LINTS), ("errors", ERRORS))
    texts = {f"{kind}/{name}.md": _text(name) for kind, names in kinds for name in names}
    write_files(Path(app.srcdir) / "help", {**texts, "index.md": index()})


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx's entry point."""
    app.connect("builder-inited", _generate)
    return {"parallel_read_safe": True}
