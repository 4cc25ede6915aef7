"""The API reference: pages of public modules and names, written from the package itself when the site is built.

A name that several modules export, as ``popsr.ops.add`` and ``popsr.ops.math.elementwise.add``, is described once,
under its shortest path, on the page of the module that defines it. Modules of the program have pages under PopXL's
names.
"""

from __future__ import annotations

import importlib
import inspect
import io
import pkgutil
import re
from collections.abc import Collection, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from written import write_files

import popsr
from popsr._program.popxl_modules import POPXL_MODULES

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

__all__ = ["Entry", "Page", "pages", "public_names", "setup"]

FOLDER = "reference/generated"
# Modules whose names are grouped on the index, by the first of these prefixes that fits.
SECTIONS = (
    ("popsr.addons", "Modules, layers and optimisers: `popsr.addons`"),
    ("popsr.ops", "Ops: `popsr.ops`"),
    ("popsr.sr", "Stochastic rounding of arrays: `popsr.sr`"),
    ("popsr.sr._adder", "Stochastic rounding of arrays: `popsr.sr`"),
    ("popsr.compat", "PopXL's and PopART's names: `popsr.compat`"),
    ("popsr.testing", "For tests: `popsr.testing`"),
    ("popsr.analysis", "Proofs, sessions, files"),
    ("popsr.bridge", "Proofs, sessions, files"),
    ("popsr.guard", "Proofs, sessions, files"),
    ("popsr.io", "Proofs, sessions, files"),
    ("popsr._session.session", "Proofs, sessions, files"),
    ("popsr._program.streams", "Proofs, sessions, files"),
    ("popsr.errors", "Proofs, sessions, files"),
    ("popsr._support.settings", "Proofs, sessions, files"),
    ("popsr", "Programs: `popsr`"),
)
ORDER = (SECTIONS[-1], SECTIONS[6], *SECTIONS[:6])
# Sections whose functions and classes have a page each; of the others, modules have, which are not in the menu.
SINGLE = (
    "Programs: `popsr`",
    "Proofs, sessions, files",
    "Stochastic rounding of arrays: `popsr.sr`",
    "For tests: `popsr.testing`",
)
# Modules that import an optional package.
NEEDS = {
    "popsr.guard.lightning": "lightning",
    "popsr.guard.transformers": "transformers",
    "popsr.sr.jax": "jax",
    "popsr.sr.optax": "optax",
    "popsr.sr.torch": "torch",
}

# Modules with bases of a public class that are described with it: the methods of a session.
PARTS = ("popsr._session.variable_methods", "popsr._session.views")

# Pages of modules that users do not import, by module.
PAGES = {
    "popsr._program.options.options": "popsr.options",
    "popsr._support.settings": "popsr.settings",
    "popsr.sr._adder": "popsr.stochastic_adder",
    **{module: f"popsr.{name}" for name, module in POPXL_MODULES.items() if module != "popsr.replicas"},
}

INDEX = """# Reference

Every public name, from the docstrings of the package. The names of a page are listed at its top.
[The table of ops](ops.md) has dtypes, gradient, replica facts and in-place form of each op.

```{{toctree}}
:hidden:

ops
{modules}
```
"""


@dataclass(frozen=True)
class Entry:
    """A public name under the path by which it is described."""

    path: str
    value: Any

    @property
    def kind(self) -> str:
        """The directive of autodoc, or ``data`` for constants."""
        if inspect.isclass(self.value) and self.value.__name__ == self.path.rpartition(".")[2]:
            return "class"
        return "function" if inspect.isroutine(self.value) else "data"


@dataclass
class Page:
    """A page of the reference: the names that one module defines."""

    module: str
    summary: str
    entries: list[Entry] = field(default_factory=list)


def public_modules() -> Iterator[tuple[str, ModuleType]]:
    """Modules by the names of their pages, without those whose optional package is not installed."""
    yield "popsr", popsr
    for module, name in PAGES.items():
        yield name, importlib.import_module(module)
    for found in pkgutil.walk_packages(popsr.__path__, "popsr."):
        private = any(part.startswith(("_", "popsr_kernels")) for part in found.name.split("."))
        if private or found.name.startswith("popsr.demo"):
            continue
        try:
            yield _page_of(found.name), importlib.import_module(found.name)
        except ImportError:
            if found.name not in NEEDS:
                raise


def public_names() -> Iterator[tuple[str, str, Any]]:
    """Module, name and value of everything in ``__all__`` of a public module; submodules have pages of their own."""
    for page, module in public_modules():
        base = page if module.__name__ in PAGES else module.__name__  # where users find it
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if not inspect.ismodule(value):
                yield base, name, value


def _page_of(module: str) -> str:
    """``popsr.ops.elementwise`` of ``popsr.ops.math.elementwise``: folders of ops are not part of a page's name."""
    parts = module.split(".")
    is_op = parts[:2] == ["popsr", "ops"] and len(parts) == 4
    return PAGES.get(module, ".".join([*parts[:2], *parts[3:]] if is_op else parts))


def pages() -> dict[str, Page]:
    """The pages by module, each name on one of them."""
    paths: dict[tuple[str, int], list[str]] = {}
    values: dict[str, Any] = {}
    for module, name, value in public_names():
        path = f"{module}.{name}"
        values[path] = value
        paths.setdefault(_identity(path, name, value), []).append(path)
    result: dict[str, Page] = {}
    modules = dict(public_modules())
    for aliases in paths.values():
        path = min(aliases, key=lambda each: (each.count("."), len(each), each))
        home = _home(values[path], path)
        if home not in result:
            result[home] = Page(home, (modules[home].__doc__ or "").strip())
        result[home].entries.append(Entry(path, values[path]))
    return dict(sorted(result.items()))


def _identity(path: str, name: str, value: Any) -> tuple[str, int]:
    """Equal for paths of one thing; constants other than dtypes, as numbers, may be equal by chance."""
    if inspect.isclass(value):
        return "", id(value)
    return (name, id(value)) if inspect.isroutine(value) or isinstance(value, popsr.dtype) else (path, 0)


def _home(value: Any, path: str) -> str:
    """The public module that defines the value; else the one that it is described under."""
    listed = path.rpartition(".")[0]
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return _page_of(listed)
    module = _page_of(str(getattr(value, "__module__", "")))
    return module if module.startswith(f"{listed}.") and "._" not in module else _page_of(listed)


def write(folder: Path) -> None:
    """Write all pages, and the index of them."""
    texts: dict[str, str] = {}
    sections: dict[str, list[Page]] = {title: [] for _, title in ORDER}
    found = pages()
    for page in found.values():
        texts |= {f"{name}.rst": text for name, text in _texts(page, found).items()}
        sections[section_of(page.module)].append(page)
    texts["index.md"] = _index(sections)
    table = io.StringIO()
    with redirect_stdout(table):
        importlib.import_module("popsr.__main__").main(["ops", "--markdown"])
    write_files(folder, {**texts, "ops.md": table.getvalue()})


def section_of(module: str) -> str:
    """The title of the section of the index that a module is in."""
    return next(title for prefix, title in SECTIONS if f"{module}.".startswith(f"{prefix}."))


def _texts(page: Page, modules: Collection[str]) -> dict[str, str]:
    """Pages of a module and of its names, by their names; a name that a module has, too, is on the module's."""
    single = section_of(page.module) in SINGLE
    own = [entry for entry in page.entries if single and entry.kind != "data" and entry.path not in modules]
    texts = {page.module: ("" if single else ":orphan:\n\n") + _text(page, own)}
    for entry in own:
        back = f"Of :doc:`{page.module}`."
        texts[entry.path] = "\n".join(
            [":orphan:", "", *_heading(entry.path), back, "", *_directive(entry), ""]
        )
    return texts


def _heading(name: str) -> list[str]:
    title = name.replace("_", r"\_")
    return [title, "=" * len(title), ""]


def _text(page: Page, elsewhere: Collection[Entry] = ()) -> str:
    lines = [*_heading(page.module), page.summary, ""]
    if page.module == "popsr.errors":
        lines += [":doc:`/help/index` has a page for each, with an example and what helps.", ""]
    lines += [".. list-table::", "   :class: names", "   :widths: auto", ""]
    entries = sorted(page.entries, key=lambda each: each.path.lower())
    for entry in entries:
        role = {"class": "class", "function": "func", "data": "data"}[entry.kind]
        lines += [f"   * - :py:{role}:`{entry.path}`", f"     - {_first_sentence(entry)}"]
    for entry in entries:
        lines += ["", *_directive(entry)] if entry not in elsewhere else []
    return "\n".join(lines) + "\n"


def _first_sentence(entry: Entry) -> str:
    if entry.kind == "data":
        return ""
    text = (inspect.getdoc(entry.value) or "").split("\n\n")[0]
    return " ".join(text.split()) if "::" not in text else text.split("\n")[0]


def _directive(entry: Entry) -> list[str]:
    if entry.kind == "data":
        value = repr(entry.value)
        short = len(value) < 100 and "\n" not in value and " at 0x" not in value
        return [f".. py:data:: {entry.path}", *([f"   :value: {value}"] if short else [])]
    options = ["   :members:"] if entry.kind == "class" else []
    if options and any(base.__module__ in PARTS for base in entry.value.__bases__):
        options.append("   :inherited-members: object")
    return [f".. auto{entry.kind}:: {entry.path}{_shared_signature(entry.value)}", *options]


def _shared_signature(value: Any) -> str:
    """The signature of a function that has keywords of another, which autodoc would look for in its source."""
    if "__signature__" not in getattr(inspect.unwrap(value), "__dict__", {}):
        return ""
    text = str(inspect.signature(value)).replace("<required>", "REQUIRED")
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)  # annotations, without their quotes


def _index(sections: dict[str, list[Page]]) -> str:
    modules = "\n".join(page.module for title in SINGLE for page in sections[title])
    lines = [INDEX.format(modules=modules)]
    for title, found in sections.items():
        lines += [f"## {title}", "", "| module | contents | names |", "| --- | --- | --- |"]
        for page in found:
            first = " ".join(page.summary.split("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")
            shown = page.module.replace(".", ".\u200b")  # long paths may break at their dots
            lines += [f"| [{shown}]({page.module}.rst) | {first} | {len(page.entries)} |"]
        lines += [""]
    return "\n".join(lines)


def _generate(app: Sphinx) -> None:
    write(Path(app.srcdir) / FOLDER)


def _check(app: Sphinx, env: BuildEnvironment) -> None:
    """A public name without a description is a warning, which fails the build."""
    from sphinx.util import logging

    described = {name for name, *_ in env.get_domain("py").get_objects()}
    for page in pages().values():
        for entry in page.entries:
            if entry.path not in described:
                logging.getLogger(__name__).warning("public name without a description: %s", entry.path)


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx's entry point."""
    app.connect("builder-inited", _generate)
    app.connect("env-check-consistency", _check)
    return {"parallel_read_safe": True}
