"""Exact meanings of ops, which ``popsr.bridge._exact`` runs programs with."""

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
from popsr.ops._exact.registry import COLLECTIVES, MEANINGS, OF_ALL, Exact, Value
from popsr.ops._exact.without import WITHOUT

__all__ = [
    "COLLECTIVES",
    "MEANINGS",
    "OF_ALL",
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
