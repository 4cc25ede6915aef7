"""Kinds of primitives by what they do to elements."""

from __future__ import annotations

__all__ = ["CURVES", "EXCHANGES", "MOVES"]

MOVES = frozenset([
    "broadcast_in_dim", "reshape", "transpose", "squeeze", "expand_dims", "slice", "concatenate", "rev", "copy",
    "convert_element_type", "select_n", "pvary", "optimization_barrier",
])  # fmt: skip
"""Primitives whose elements are those of operands, elsewhere or as another type."""

EXCHANGES = frozenset(["psum", "psum_invariant", "all_gather", "all_to_all", "ppermute"])
"""Primitives that move elements between replicas, or sum them over replicas."""

CURVES = frozenset([
    "exp", "exp2", "expm1", "log", "log1p", "pow", "integer_pow", "sqrt", "rsqrt", "cbrt", "sin", "cos", "tan",
    "tanh", "logistic", "erf",
])  # fmt: skip
"""Functions of an element that are not linear."""
