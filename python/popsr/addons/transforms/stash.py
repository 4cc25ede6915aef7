"""A buffer between two points of a program that takes values in and gives them back in the same order."""

from __future__ import annotations

from functools import partial

import numpy as np

from popsr import dtypes, ops
from popsr._program.context import in_sequence
from popsr._program.tensor import Tensor, TensorByRef
from popsr._support.host.arguments import read_a, read_int
from popsr._support.text.entry_points import public
from popsr.addons.module import Module

__all__ = ["Restore", "Stash"]


@public
class Stash(Module):
    """Puts a value into a buffer of several; the variables are ``stash`` and ``counter``, the next place."""

    def build(self, t: Tensor, stash_size: int) -> None:
        """Store ``t`` at the next place of the buffer, which begins again after the last one.

        Args:
            t: the value.
            stash_size: values that the buffer holds.
        Raises:
            AttributeValueError: ``stash_size`` is not an int from 1 on.
        """
        read_a("Stash: t", t, Tensor)
        size = read_int("Stash: stash_size", stash_size, 1)
        stash = self.add_variable_input(
            "stash", partial(np.zeros, (size, *t.shape), t.dtype.as_numpy()), t.dtype, by_ref=True
        )
        counter = _counter(self)
        with in_sequence(True):
            ops.dynamic_update_(stash, counter, t.reshape((1, *t.shape)), [0], [1], True)
            ops.increment_mod_(counter, 1, size)


@public
class Restore(Module):
    """Takes values out of the buffer of a ``Stash``, in the order in which they came; it has its own ``counter``."""

    def build(self, stash: TensorByRef) -> Tensor:
        """The next value.

        Args:
            stash: the buffer, ``stash`` of the other module.
        Returns:
            Tensor of the shape and dtype that were put in.
        """
        read_a("Restore: stash", stash, Tensor)
        counter = _counter(self)
        with in_sequence(True):
            value = ops.dynamic_slice(stash, counter, [0], [1], True)
            ops.increment_mod_(counter, 1, stash.shape[0])
        return value.reshape(stash.shape[1:])


def _counter(module: Module) -> Tensor:
    return module.add_variable_input(
        "counter", partial(np.zeros, (1,), np.uint32), dtypes.uint32, by_ref=True
    )
