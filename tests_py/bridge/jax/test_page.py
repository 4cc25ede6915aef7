"""The page of the bridge names the primitives that have rules, and those that are analysed by their operands."""

import collections
import re

from popsr.bridge.jax import primitives
from popsr.bridge.jax._opaque import LOCAL
from tests_py import ROOT

PAGE = ROOT / "docs" / "bridge_jax.md"
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


def rows() -> str:
    """The table of the page; ``python -m tests_py.bridge.jax.test_page`` prints it."""
    kinds = collections.defaultdict(list)
    for name, kind in primitives().items():
        kinds[kind].append(f"`{name}`")
    analysed = [f"`{name}`" for name in sorted(LOCAL - {*primitives()})]
    lines = ["| kind | primitives |", "| --- | --- |"]
    lines += [f"| {title} | {' '.join(kinds[kind])} |" for kind, title in TITLES.items()]
    return "\n".join([*lines, f"| analysed only, by their operands | {' '.join(analysed)} |"])


def test_the_table_is_the_rules() -> None:
    table = re.search(r"^\| kind \|.*?(?=\n\n)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert table is not None
    assert table[0] == rows()


def test_the_count_is_right() -> None:
    assert f"{len(primitives())} primitives have a rule" in PAGE.read_text()


if __name__ == "__main__":
    print(rows())
