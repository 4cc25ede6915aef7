"""The chain of prime fields: the size of each divides that of the next less one, so exp leads from one to the next."""

from __future__ import annotations

import itertools

from popsr._core import fields

__all__ = ["CHAIN", "PRIMES", "TOP"]

PRIMES = (
    84748684859,
    169497369719,
    338994739439,
    6779894788781,
    13559789577563,
    27119579155127,
    216956633241017,
    3037392865374239,
    6074785730748479,
    121495714614969581,
    242991429229939163,
    485982858459878327,
)


def _root(order: int, prime: int) -> int:
    """An element of that order in the field of that size."""
    return next(root for base in range(2, 99) if (root := pow(base, (prime - 1) // order, prime)) != 1)


CHAIN = fields.Chain(PRIMES, (0, *(_root(order, prime) for order, prime in itertools.pairwise(PRIMES))))
TOP = len(PRIMES) - 1
