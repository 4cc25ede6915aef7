"""Values on the way to a claim are compared by type and bits: ``==`` takes 0.0 for -0.0, 2 for 2.0 and True for 1."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests_py import ROOT

BRIDGE = ROOT / "python/popsr/bridge"
FUNCTIONS = {"equal", "array_equal", "allclose", "isclose", "array_equiv", "assert_array_equal"}
VALUES = {*"value values constant constants literal number after old new a b x y".split()}  # noqa: SIM905
"""Names that hold values of a program; ``shape``, ``dtype`` and ``key`` of them are no values."""

# Comparisons that are allowed, and what they compare.
ALLOWED = {
    "audit/_differences.py: np.array_equal(x[:whole].view(np.uint64), y[:whole].view(np.uint64))": "bytes",
    "audit/_differences.py: np.array_equal(x[whole:], y[whole:])": "bytes",
    "audit/_differences.py: x != y": "bytes",
    "jax/_importer.py: number == MAX_ROWS": "a count of rows",
    "jax/_sizes/trip_counts.py: a != b": "the program's own comparison",
    "torch/_tracing/collective_calls.py: _group(group).rank() == values['root_rank']": "numbers of ranks",
    "torch/_dtypes.py: a == b": "element types",
    "torch/_wrappers/reducer.py: _switches(wrapper) != old": "switches of a wrapper",
    "torch/_rules/pools.py: values == []": "a list without elements",
    "torch/_states/same_graph.py: a[0] != b[0]": "keys of ops",
    "torch/_states/second_trace.py: a != b": "names of ops",
    "torch/_states/second_trace.py: before != after": "keys of values",
    "torch/_states/second_trace.py: value != start.get(name)": "keys of values",
}


def _name(node: ast.expr) -> str:
    """The word that says what an expression is: the last of ``a.b``, ``a[i]`` and ``a.get(key)``."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    return ""


def _compares_values(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in FUNCTIONS and _name(node.func.value) in ("torch", "np", "jnp", "testing")
    if not isinstance(node, ast.Compare) or not any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
        return False
    sides = [node.left, *node.comparators]
    fixed = any(isinstance(side, ast.Constant) or ast.unparse(side).startswith("dtypes.") for side in sides)
    return not fixed and any(_name(side) in VALUES for side in sides)


def compared(text: str) -> Iterator[str]:
    """Comparisons of values by ``==`` or by a function of arrays."""
    return (ast.unparse(node) for node in ast.walk(ast.parse(text)) if _compares_values(node))


def test_bridges_compare_bits() -> None:
    found = {
        f"{file.relative_to(BRIDGE)}: {text}"
        for file in sorted(BRIDGE.rglob("*.py"))
        if "onnx" not in file.parts  # programs of one process, in which no rank has a value of its own
        for text in compared(file.read_text())
    }
    assert found == ALLOWED.keys()


@pytest.mark.parametrize(
    "text",
    [
        "torch.equal(p, q)",
        "np.array_equal(p, q)",
        "value == other",
        "f(x) if values[0] != before[key] else g",
    ],
)
def test_the_rule_finds(text: str) -> None:
    assert list(compared(text))


def test_shapes_and_types_may_be_compared(tmp_path: Path) -> None:
    assert not list(compared("value.shape == shape and a.dtype == b.dtype and len(values) == len(old)"))
