"""Generators and keys of random numbers, by names."""

from __future__ import annotations

import functools
import hashlib

import numpy as np

__all__ = ["generator_of", "key_of"]


def generator_of(*key: object) -> np.random.Generator:
    """Random numbers of a key, which are others than those of another."""
    return np.random.Generator(np.random.Philox(key=_digest(*key)))


@functools.cache
def key_of(name: str) -> int:
    """The number of a random function."""
    return _digest(name) >> 64


def _digest(*key: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=16).digest(), "big")
