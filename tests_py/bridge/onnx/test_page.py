"""The page of the bridge has the op types that have rules, and the node tests of ONNX that do not pass."""

import collections
import re

import pytest

from popsr.bridge.onnx import op_types, rule_files
from tests_py import ROOT

pytest.importorskip("onnx")

from tests_py.bridge.onnx.node_tests import outcome, table

PAGE = ROOT / "docs" / "bridge_onnx.md"
TITLES = {
    "elementwise": "element-wise and logic",
    "shape": "shapes",
    "indexing": "indices and order",
    "reduce": "reductions, scans, rows",
    "neural": "products, norms, losses",
    "convolutions": "convolutions and pools",
    "resize": "resized images",
    "samples": "samples of images",
    "recurrent": "recurrent layers",
    "quantise": "quantised numbers",
    "casts": "bits",
    "random": "random numbers",
    "classic": "`ai.onnx.ml`",
    "microsoft": "`com.microsoft`, of onnxruntime",
    "attention": "attention",
    "einsum": "Einstein sums",
    "signal": "Fourier transforms",
    "removed": "ops that ONNX has no more, of onnxruntime",
    "control": "branches and loops",
    "sequences": "sequences and optional values",
    "training": "`ai.onnx.preview.training`",
    "rules": "`ai.popsr`",
    "graphcore": "`ai.graphcore`, of PopART",
}


_DOMAINS = {"ai.graphcore.": "graphcore", "com.microsoft.": "microsoft", "ai.onnx.ml.": "classic"}


def rows() -> list[str]:
    """The table of op types; ``python -m tests_py.bridge.onnx.test_page`` prints it."""
    kinds = collections.defaultdict(list)
    for name, versions in op_types().items():
        first = f" {versions[0]}" if versions[0] > 1 else ""
        kind = next((file for start, file in _DOMAINS.items() if name.startswith(start)), rule_files()[name])
        kinds[kind].append(f"`{name.rpartition('.')[2]}`{first}")
    assert set(kinds) == set(TITLES)
    return [
        "| kind | op types |",
        "| --- | --- |",
        *(f"| {t} | {' '.join(kinds[kind])} |" for kind, t in TITLES.items()),
    ]


def part(begin: str) -> list[str]:
    """The lines of a table of the page."""
    found = re.search(rf"^{re.escape(begin)}.*?(?=\n\n|\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[0].rstrip("\n").split("\n")


def test_the_table_of_op_types_is_the_rules() -> None:
    assert part("| kind |") == rows()
    assert f"{len(op_types())} op types have a rule" in PAGE.read_text()


def test_the_node_tests_of_onnx_pass_but_those_of_the_table() -> None:
    found = outcome()
    assert len(found.passed) >= 1350
    assert part("| reason |") == table(found.by_reason())
    assert f"{len(found.passed):,} of its {found.count:,} node tests pass" in PAGE.read_text()


if __name__ == "__main__":
    print("\n".join(rows()))
