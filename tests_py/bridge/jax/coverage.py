"""Primitives of the installed JAX by what becomes of them: the table in docs/bridge_jax.md.

``python -m tests_py.bridge.jax.coverage`` writes it.
"""

from __future__ import annotations

import collections
import re
import subprocess
import sys

from popsr.bridge.jax import primitives
from popsr.bridge.jax._rules.opaque import LOCAL, RUNS_OTHERS, SILENT
from popsr.bridge.jax._rules.table import ANALYSED
from tests_py import ROOT
from tests_py.bridge.page_table import PageTable

__all__ = ["ON_PAGE", "is_older", "registry", "table"]

ON_PAGE = PageTable(ROOT / "docs" / "bridge_jax.md", "primitives")
TITLES = {
    "elementwise": "element-wise",
    "bits": "bits",
    "shape": "shapes and slices",
    "reduce": "reductions and scans",
    "windows": "windows",
    "linear": "products and convolutions",
    "indexing": "computed indices, sorting",
    "collectives": "collectives",
    "control": "calls, branches, loops",
    "manual": "mapping",
    "random": "random bits",
}
# Every primitive that a function of JAX can have in its jaxpr is an object that lives as long as its module.
_LIST = """
import gc, jax, jax.numpy, jax.random, jax.scipy, jax.nn, jax.export, jax.experimental.layout
from jax.extend.core import Primitive
print(jax.__version__, *sorted({each.name for each in gc.get_objects() if isinstance(each, Primitive)}))
"""


def registry() -> tuple[str, list[str]]:
    """The version of JAX, and the names of its primitives."""
    found = subprocess.run([sys.executable, "-c", _LIST], capture_output=True, text=True, check=True)
    version, *names = found.stdout.split()
    return version, names


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version."""
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def is_older() -> bool:
    """True of a JAX older than the one that the table is written for: it has other primitives."""
    import jax

    page = re.search(r"primitives of JAX ([\d.]+)", ON_PAGE.written())
    return page is not None and release(jax.__version__) < release(page[1])


def table() -> str:
    """The rows by kind, and the counts."""
    version, names = registry()
    kinds = collections.defaultdict(list)
    for name in names:
        kinds[_kind(name)].append(f"`{name}`")
    analysed, silent, unknown = kinds["analysed"], kinds["silent"], kinds["unknown"]
    executed = len(names) - len(analysed) - len(silent) - len(unknown)
    lines = [
        f"Of the {len(names)} primitives of JAX {version}, {executed} are executed, {len(analysed)} are analysed by "
        f"their operands, {len(silent)} change no value and are left out, and {len(unknown)} are unknown.",
        "",
        "| kind | count | primitives |",
        "| --- | --- | --- |",
    ]
    rows = [(title, kinds[kind]) for kind, title in TITLES.items()]
    rows += [("analysed only, by their operands", analysed), ("left out", silent), ("unknown", unknown)]
    return "\n".join([*lines, *(f"| {title} | {len(each)} | {' '.join(each)} |" for title, each in rows)])


def _kind(name: str) -> str:
    rules = primitives()
    if name in rules:
        return rules[name]
    return (
        "analysed"
        if name in LOCAL or name in RUNS_OTHERS or name in ANALYSED
        else "silent"
        if name in SILENT
        else "unknown"
    )


if __name__ == "__main__":
    ON_PAGE.write(table())
