"""Initial values of states that are known by their shape alone: zeros that take no memory."""

from __future__ import annotations

import mmap
import sys
from typing import Any

import numpy as np

from popsr._program.building.location import current_location
from popsr._program.context import _context
from popsr._program.ir import Ir
from popsr._program.tensor import Variable
from popsr.bridge._step.arguments import Array
from popsr.dtypes import dtype
from popsr.replicas import ReplicaGrouping

__all__ = ["is_reserved", "reserved_variable", "zeros_of"]

_LEAST = 1 << 24
"""Bytes from which zeros are reserved only."""
_WITHOUT_MEMORY = 0x4000  # MAP_NORESERVE, which the module lacks before Python 3.12


class _Pages(mmap.mmap):
    """Pages of zeros."""


def zeros_of(shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
    """Zeros; of a large shape pages that the system has not got until they are touched."""
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if size < _LEAST or not sys.platform.startswith("linux"):
        return np.zeros(shape, kind)
    pages = _Pages(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _WITHOUT_MEMORY)
    return np.frombuffer(pages, kind).reshape(shape)


def is_reserved(array: Any) -> bool:
    """True for zeros that take no memory."""
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(getattr(array, "obj", array), _Pages)


def reserved_variable(ir: Ir, name: str, zeros: Array, kind: dtype, grouping: ReplicaGrouping) -> Variable:
    """A variable that begins as such zeros, which nobody reads to make it."""
    shape = zeros.shape if grouping.num_groups == 1 else zeros.shape[1:]
    id_ = ir._core.add_variable(
        _context.scoped(name), kind.name, list(shape), zeros, grouping, True, True, current_location(ir)
    )
    made = ir._tensor(id_)
    assert isinstance(made, Variable)
    return made
