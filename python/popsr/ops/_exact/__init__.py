"""Exact meanings of ops, which ``popsr._exact`` runs programs with."""

from popsr.ops._exact import collectives, elementwise, functions, indexing, linalg, moves, reduce, updates
from popsr.ops._exact.registry import COLLECTIVES, MEANINGS, Exact, Value

__all__ = [
    "COLLECTIVES",
    "MEANINGS",
    "Exact",
    "Value",
    "collectives",
    "elementwise",
    "functions",
    "indexing",
    "linalg",
    "moves",
    "reduce",
    "updates",
]
