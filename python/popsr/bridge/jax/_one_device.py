"""A step on one device: its meshes have one place along each axis, and arguments are whole."""

from __future__ import annotations

import contextlib
import importlib
import math
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from popsr._support.text.shown import shown
from popsr.bridge._step.replaced import replaced
from popsr.bridge.jax._arguments import is_shape
from popsr.bridge.jax._framework import the_jax
from popsr.bridge.jax._importer import is_key
from popsr.bridge.jax._second_trace import anew
from popsr.errors import UnsupportedError

__all__ = ["first_row", "joined_rows", "meshes_of_ones"]

_READ = ("shape", "shape_tuple", "axis_sizes", "size", "devices")
"""Attributes of a mesh that say how many devices it has."""

_INSIDE = frozenset(["jax", "jaxlib", "popsr"])
"""Packages that see meshes as they are."""


@contextlib.contextmanager
def meshes_of_ones() -> Iterator[None]:
    """Inside, ``shard_map`` maps over meshes of ones, and the user's code reads such sizes of every mesh.

    JAX's own code sees meshes as they are, as it keeps what it finds out about them.

    Raises:
        UnsupportedError: of a version of JAX whose ``shard_map`` cannot be bound to another mesh.
    """
    jax = the_jax()
    primitive = _shard_map_primitive()
    bind = getattr(primitive, "bind_with_trace", None)
    if bind is None:
        raise UnsupportedError(
            f"prove: like='one device' with this JAX, got {jax.__version__}, expected a newer one, or a step for one "
            "device as like="
        )

    def bound(self: Any, *given: Any) -> Any:
        params = given[-1]
        with _current_mesh_of_ones():
            return bind(self, *given[:-1], {**params, "mesh": _of_ones(params["mesh"])})

    thread = threading.get_ident()
    kinds = (jax.sharding.Mesh, jax.sharding.AbstractMesh)
    reads = ((kind, name, _ReadOfSize(kind, name, thread)) for kind in kinds for name in _READ)
    with anew(), replaced([(primitive, "bind_with_trace", bound), *reads]):
        yield


@contextlib.contextmanager
def _current_mesh_of_ones() -> Iterator[None]:
    """Inside, the mesh that ``jax.set_mesh`` set, if there is one, is a mesh of ones."""
    setting = getattr(importlib.import_module("jax._src.config"), "abstract_mesh_context_manager", None)
    current = getattr(setting, "value", None)
    if setting is None or current is None or not current.axis_names:
        yield
        return
    before = setting.swap_local(_of_ones(current))
    try:
        yield
    finally:
        setting.set_local(before)


def _shard_map_primitive() -> Any:
    """The class of the primitive."""
    for name in ("jax._src.shard_map", "jax.experimental.shard_map"):
        try:
            return type(importlib.import_module(name).shard_map_p)
        except (ImportError, AttributeError):
            continue
    return None


def _of_ones(mesh: Any) -> Any:
    """The mesh without devices, with one place along each axis."""
    abstract = getattr(mesh, "abstract_mesh", mesh)
    return abstract.update(axis_sizes=(1,) * len(abstract.axis_names))


class _ReadOfSize:
    """A descriptor in place of an attribute of meshes: the user's code reads what a mesh of ones has.

    Args:
        kind: the class of meshes.
        name: the attribute.
        thread: the thread that reads the step.
    """

    def __init__(self, kind: Any, name: str, thread: int) -> None:
        """With what the class has."""
        self._name, self._thread = name, thread
        self._known: Any = vars(kind).get(name)

    def __get__(self, mesh: Any, kind: Any = None) -> Any:
        if mesh is None:
            return self
        frame = sys._getframe(1)
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        names = mesh.__dict__.get("axis_names", ())
        if package in _INSIDE or threading.get_ident() != self._thread or not names:
            return self._as_it_is(mesh, kind)
        if self._name == "size":
            return 1
        if self._name == "axis_sizes":
            return (1,) * len(names)
        if self._name == "devices":
            return self._as_it_is(mesh, kind)[(slice(1),) * len(names)]
        return tuple((n, 1) for n in names) if self._name == "shape_tuple" else OrderedDict.fromkeys(names, 1)

    def __set__(self, mesh: Any, value: Any) -> None:
        mesh.__dict__[self._name] = value

    def _as_it_is(self, mesh: Any, kind: Any) -> Any:
        if self._name in mesh.__dict__:
            return mesh.__dict__[self._name]
        get: Callable[..., Any] | None = getattr(self._known, "__get__", None)
        if get is None:
            raise AttributeError(self._name)
        return get(mesh, kind)


def joined_rows(path: str, leaf: Any, role: str, replicated: bool) -> Any:
    """One row in place of one for each replica.

    Rows of data are parts of one batch, one after another along their first dimension.

    Args:
        path: of the argument.
        leaf: the rows, or their shape and dtype.
        role: of the argument.
        replicated: True for a state whose rows are equal.
    Raises:
        UnsupportedError: of rows that are no parts of one array.
    """
    jax = the_jax()
    shape: Sequence[int] = np.shape(leaf)
    if role == "state" and replicated:
        whole = (1, *shape[1:])
    elif role != "data" or len(shape) < 2 or is_key(leaf):
        what = "state that has" if role == "state" else "data of which each replica has"
        raise UnsupportedError(
            f"prove: {what} a row for each replica, got {shown(path)} {list(shape)}, expected rows that are joined to "
            f"the array of one device: {'replicated=' if role == 'state' else 'in_axes=None'} says that they are equal"
        )
    else:
        whole = (1, math.prod(shape[:2]), *shape[2:])
    if is_shape(leaf):
        return jax.ShapeDtypeStruct(whole, leaf.dtype)
    return leaf[:1] if role == "state" else leaf.reshape(whole)


def first_row(leaf: Any, has_rows: bool) -> Any:
    """The only row of an array that has one; other arrays as they are."""
    if not has_rows:
        return leaf
    if is_shape(leaf):
        return the_jax().ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)
    return leaf[0]
