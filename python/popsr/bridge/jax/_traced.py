"""Tracing a step: its jaxpr, the mesh of its replicas, and how arguments are cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from popsr._support.host.arguments import read_int, read_text
from popsr._support.text.shown import shown
from popsr.bridge.jax._arguments import assembled
from popsr.bridge.jax._compiled import layouts_of, mesh_of_shardings
from popsr.bridge.jax._framework import the_jax
from popsr.bridge.jax._importer import aval_of
from popsr.bridge.jax._manual import meshes_of, require_axes, specs_of_arguments, spread_of
from popsr.bridge.jax._mesh import Spec, Spread
from popsr.bridge.jax._refs import with_values
from popsr.bridge.jax._rules.table import Aval, NotSupportedError
from popsr.bridge.jax._second_trace import traced_once, traced_twice
from popsr.bridge.jax._versions import abstract_mesh, shard_map
from popsr.errors import ArgumentTypeError, AttributeValueError, DTypeError, ReplicaError, UnsupportedError

__all__ = ["WHERE", "Traced"]

WHERE = "from_jax"


class Traced:
    """A jaxpr with the mesh of its replicas.

    Attributes:
        jaxpr: closed.
        spread: how replicas lie in the mesh.
        outputs: shapes and dtypes of the results, as a tree.
        refs: arguments that are references, in the order of the jaxpr: its last results are their new values.
        specs: how arguments are cut, in the order of the jaxpr.
        gathered: which arguments are cut by the compiler alone: the step sees the whole of them.
        compiled: True if values outside of ``shard_map`` are those of one program for all replicas.
        per_replica: which arguments have a row for each replica; None where a mesh cuts them.
        has_axes: True if axes of replicas have names of the user.
    """

    def __init__(
        self,
        f: Any,
        args: tuple[Any, ...],
        mesh: Any,
        in_specs: Any,
        out_specs: Any,
        check_vma: bool,
        replicas: int | None,
        axis_name: str | None,
        in_axes: Any,
        alone: bool = False,
        once: bool = False,
    ) -> None:
        """Trace a function; ``alone`` on meshes of ones, ``once`` where it is known that it keeps nothing."""
        jax = the_jax()

        if not callable(f):
            raise ArgumentTypeError(
                f"{WHERE}: f is not a function, got {shown(f)}, expected a function of JAX"
            )
        count = None if replicas is None else read_int(f"{WHERE}: replicas", replicas, 1)
        self.f, self.args = f, args
        self.per_replica: list[bool] | None = None
        axes: list[tuple[str, int]] = []
        if (in_specs is None) != (out_specs is None):
            raise AttributeValueError(
                f"{WHERE}: one of in_specs and out_specs, got the other as None, expected both"
            )
        if in_specs is not None:
            mesh = _read_mesh(mesh, alone)
            for name, specs in (("in_specs", in_specs), ("out_specs", out_specs)):
                _check_specs(name, specs, mesh)
            f = shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=check_vma)
        elif axis_name is not None:
            if count is None:
                raise AttributeValueError(
                    f"{WHERE}: axis_name without replicas, got {shown(axis_name)}, expected both"
                )
            axes = [(read_text(f"{WHERE}: axis_name", axis_name), count)]
            args = self._rows(args, in_axes, count)
        traced, self.outputs, devices = (traced_once if once else traced_twice)(f, axes, args)
        self.jaxpr, self.refs = with_values(traced)
        found = Spread(dict(axes)) if axes else spread_of(self.jaxpr.jaxpr)
        leaves = jax.tree.leaves(args)
        sharded = None if axes or in_specs is not None else mesh_of_shardings(self.jaxpr.jaxpr, leaves)
        if found is None and (mesh is not None or sharded is not None):
            mesh = sharded if mesh is None else _read_mesh(mesh)
            found = Spread({str(name): 1 if alone else int(size) for name, size in mesh.shape.items()})
        self.has_axes = found is not None
        if found is None:
            found = Spread({"replicas": count or 1})
        if count is not None and count != found.replicas:
            raise ReplicaError(
                f"{WHERE}: replicas are not the mesh's, got {count}, expected {found.replicas} of "
                f"{dict(found.sizes)}"
            )
        self.spread = found
        if devices and jax.device_count() != found.replicas:
            raise UnsupportedError(
                f"{WHERE}: the step lists the devices of the machine that traces it, got {devices}, of which there are "
                f"{jax.device_count()}, expected as many as replicas, {found.replicas}, or a mesh that is made before"
            )
        for each in meshes_of(self.jaxpr.jaxpr):
            require_axes(found, each)
        self.avals = [_checked(var.aval) for var in self.jaxpr.jaxpr.invars]
        self.specs: list[Spec] = (
            [((),) * aval.rank for aval in self.avals]
            if axes
            else specs_of_arguments(self.jaxpr.jaxpr, self.avals)
        )
        self.compiled = sharded is not None
        self.gathered = [False] * len(self.specs)
        if self.compiled:
            for number, spec in enumerate(layouts_of(self.jaxpr.jaxpr, leaves, self.avals, found)):
                if any(spec) and not any(self.specs[number]):
                    self.specs[number], self.gathered[number] = spec, True

    def _rows(self, args: tuple[Any, ...], in_axes: Any, count: int) -> tuple[Any, ...]:
        """Arguments of one replica, as shapes and dtypes."""
        jax = the_jax()

        axes = tuple(in_axes) if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
        if len(axes) != len(args):
            raise AttributeValueError(
                f"{WHERE}: not one of in_axes for each argument, got {len(axes)}, expected {len(args)}"
            )
        self.per_replica = []
        inner = []
        for number, (argument, of) in enumerate(zip(args, axes, strict=True)):
            leaves, tree = jax.tree.flatten(argument)
            kinds = jax.tree.leaves(of, is_leaf=lambda each: each is None)
            kinds = kinds * len(leaves) if len(kinds) == 1 else kinds
            if len(kinds) != len(leaves) or any(kind not in (0, None) for kind in kinds):
                raise AttributeValueError(
                    f"{WHERE}: in_axes of argument {number}, got {shown(of)}, expected 0 or None, or a tree of them"
                )
            self.per_replica += [kind == 0 for kind in kinds]
            inner.append(
                tree.unflatten([_row(leaf, kind, count) for leaf, kind in zip(leaves, kinds, strict=True)])
            )
        return tuple(inner)

    @property
    def parts(self) -> list[Any]:
        """Results of the function, one by one."""
        found = self.outputs
        return list(found) if type(found) in (tuple, list) else [found]

    def joined(self, spec: Spec, aval: Aval) -> Any:
        """A function from a row for each replica to the user's array."""
        if self.per_replica is not None:
            return None
        shape = [extent // self.spread.size(axes) for extent, axes in zip(aval.shape, spec, strict=True)]
        return lambda rows: assembled(rows.reshape(self.spread.replicas, *shape), spec, self.spread, aval)


def _row(leaf: Any, axis: int | None, count: int) -> Any:
    """Shape and dtype of what one replica is given."""
    jax = the_jax()

    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        dtype = jax.numpy.asarray(leaf).dtype
    shape = tuple(np.shape(leaf))
    if axis is None:
        return jax.ShapeDtypeStruct(shape, dtype)
    if not shape or shape[0] != count:
        raise ReplicaError(
            f"{WHERE}: not a row for each replica, got shape {list(shape)}, expected {count} rows: in_axes=None gives "
            "all replicas the same"
        )
    return jax.ShapeDtypeStruct(shape[1:], dtype)


def _read_mesh(mesh: Any, alone: bool = False) -> Any:
    """A mesh of JAX, from sizes by name too; ``alone`` with ones as sizes."""
    jax = the_jax()

    if isinstance(mesh, Mapping):
        sizes = {
            read_text(f"{WHERE}: name of an axis", name): read_int(f"{WHERE}: size of axis {name}", size, 1)
            for name, size in mesh.items()
        }
        if not sizes:
            raise AttributeValueError(
                f"{WHERE}: a mesh without axes, got {shown(dict(mesh))}, expected sizes by name"
            )
        return abstract_mesh(dict.fromkeys(sizes, 1) if alone else sizes)
    if not isinstance(mesh, (jax.sharding.Mesh, jax.sharding.AbstractMesh)):
        raise ArgumentTypeError(
            f"{WHERE}: mesh is not a mesh, got {shown(mesh)}, expected a Mesh of JAX or sizes by name"
        )
    sizes = dict.fromkeys(mesh.shape, 1) if alone else mesh.shape
    return abstract_mesh(sizes)  # without devices or axis types


def _check_specs(name: str, specs: Any, mesh: Any) -> None:
    """Check that specs are a tree of specs, of axes of the mesh."""
    jax = the_jax()

    kind = jax.sharding.PartitionSpec
    for spec in jax.tree.leaves(specs, is_leaf=lambda each: isinstance(each, kind)):
        if not isinstance(spec, kind):
            raise ArgumentTypeError(
                f"{WHERE}: {name} is not a tree of specs, got {shown(spec)}, expected PartitionSpec"
            )
        for entry in spec:
            for axis in entry if isinstance(entry, (tuple, list)) else [entry]:
                if axis is not None and axis not in mesh.shape:
                    raise AttributeValueError(
                        f"{WHERE}: {name} of an axis that the mesh lacks, got {shown(axis)}, expected one of "
                        f"{shown(list(mesh.shape))}"
                    )


def _checked(aval: Any) -> Aval:
    """An argument as stored.

    Raises:
        DTypeError: it is not an array.
    """
    try:
        return aval_of(aval)
    except NotSupportedError as error:
        raise DTypeError(f"{WHERE}: argument that is not an array, got {error}") from None
