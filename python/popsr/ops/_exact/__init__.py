"""Exact meanings of ops, which ``popsr._exact`` runs programs with."""

from popsr.ops._exact import (
    collectives,
    elementwise,
    functions,
    indexing,
    linalg,
    losses,
    moves,
    noise,
    norms,
    order,
    reduce,
    scans,
    softmax,
    updates,
    windows,
)
from popsr.ops._exact.registry import COLLECTIVES, MEANINGS, Exact, Value
from popsr.ops._exact.without import WITHOUT

__all__ = [
    "COLLECTIVES",
    "MEANINGS",
    "WITHOUT",
    "Exact",
    "Value",
    "collectives",
    "elementwise",
    "functions",
    "indexing",
    "linalg",
    "losses",
    "moves",
    "noise",
    "norms",
    "order",
    "reduce",
    "scans",
    "softmax",
    "updates",
    "windows",
]
