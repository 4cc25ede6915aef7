"""Arrays of a tree by name, and the words for what is found in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from popsr._support.host.frameworks import framework
from popsr._support.text.differences import bits_text
from popsr._support.text.shown import shown
from popsr.errors import ArgumentTypeError

__all__ = ["Value", "value_text", "values_of"]


@dataclass(frozen=True, slots=True)
class Value:
    """An array of a tree.

    Attributes:
        name: its path in the tree.
        array: the array; None of one that is only described.
        shape: its shape.
        dtype: of NumPy, also of those that ``ml_dtypes`` has.
    """

    name: str
    array: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def units(self) -> int:
        """Items of ``flat_bits`` of an element."""
        size = self.dtype.itemsize
        return size // 4 if size > 4 else 1

    def plain(self) -> Value:
        """The description alone."""
        return Value(self.name, None, self.shape, self.dtype)


def values_of(where: str, tree: Any) -> tuple[list[Value], list[str]]:
    """The arrays of a tree, and the names of what is none; keys of random numbers are their data.

    Raises:
        ArgumentTypeError: it is not a tree.
    """
    jax = framework(where, "jax")
    try:
        leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    except Exception:  # of the keys of a mapping, or of a class of the user
        raise ArgumentTypeError(
            f"{where}: not a tree, got {shown(tree)}, expected arrays of JAX in one"
        ) from None
    found, others = [], []
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path) or "value"
        if not isinstance(leaf, jax.Array):
            others.append(name)
            continue
        if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        found.append(Value(name, leaf, tuple(leaf.shape), np.dtype(leaf.dtype)))
    return found, others


def value_text(value: Value, units: Sequence[int]) -> str:
    """Bits and value of an element of these units of ``flat_bits``."""
    size = value.dtype.itemsize
    data = b"".join(each.to_bytes(min(size, 4), "little") for each in units)
    return bits_text(data, np.frombuffer(data, value.dtype)[0])
