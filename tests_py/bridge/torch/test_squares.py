"""Squares of square roots in a graph are written without the roots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from popsr.bridge.torch._tracing.squares import squares_without_roots  # noqa: E402

norm = torch.linalg.vector_norm

ROOTS: dict[str, tuple[Callable[..., Any], int]] = {
    "norm of norms": (lambda x, y: norm(torch.stack([norm(x), norm(y)])), 1),
    "squares that are summed": (lambda x, y: (norm(x).unsqueeze(0) ** 2 + norm(y) * 2).sqrt(), 2),
    "a norm along a dimension": (lambda x, y: norm(x, dim=1, keepdim=True).square() + norm(x, dim=0) ** 2, 0),
    "roots": (lambda x, y: torch.sqrt(x * x + 1) ** 2 + (y * y).pow(0.5).pow(2).sum(), 0),
    "a root of what may be negative": (lambda x, y: torch.sqrt(x) ** 2 + (y.sum() - 1).sqrt() ** 2, 2),
    "another norm": (lambda x, y: norm(x, 1) ** 2 + norm(y, 3) ** 2, 2),
    "a root that is not squared": (lambda x, y: norm(x) * norm(y), 2),
}
"""Functions of two matrices, and how many roots and norms are left."""


@pytest.mark.parametrize("name", ROOTS)
def test_roots(name: str) -> None:
    function, left = ROOTS[name]
    x, y = torch.randn(3, 4, dtype=torch.float64), torch.randn(2, 2, dtype=torch.float64)
    module = make_fx(function, tracing_mode="fake")(x, y)
    before = str(module.graph)
    made = squares_without_roots(module)
    assert str(module.graph) == before
    assert torch.allclose(made(x, y), function(x, y), rtol=1e-12, equal_nan=True)
    words = [str(node.target) for node in made.graph.nodes if node.op == "call_function"]
    assert sum("norm" in word or "sqrt" in word for word in words) == left
