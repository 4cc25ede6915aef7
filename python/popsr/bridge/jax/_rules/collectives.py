"""Collectives along axes of the mesh."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr._support.text.shown import shown
from popsr.bridge._step.opaque import opaque
from popsr.bridge.jax._known.per_replica import PerReplica, known_rows
from popsr.bridge.jax._mesh import as_axes
from popsr.bridge.jax._rules.shape import moved
from popsr.bridge.jax._rules.table import ANALYSED, Equation, NotSupportedError, Result, rule
from popsr.replicas import ReplicaGrouping

__all__: list[str] = []

_REDUCTIONS = {"psum": "add", "psum_invariant": "add", "pmax": "max", "pmin": "min"}


def _axes(equation: Equation, parameter: str = "axis_name") -> tuple[str, ...]:
    """Names of the axes, which must be of the mesh."""
    axes = equation.params[parameter]
    if any(isinstance(axis, int) for axis in (axes if isinstance(axes, (tuple, list)) else [axes])):
        raise NotSupportedError("a dimension of the array as an axis")
    names = as_axes(axes)
    for name in names:
        if name not in equation.importer.spread.sizes:
            raise NotSupportedError(f"axis {shown(name)}, which is not of the mesh")
    return names


def _group(equation: Equation, axes: Sequence[str]) -> ReplicaGrouping:
    """The groups along axes, or the parts of them that the equation names."""
    parts = equation.params.get("axis_index_groups")
    spread = equation.importer.spread
    if parts is None:
        return spread.group(axes)
    if any(list(part) != sorted(part) for part in parts):
        raise NotSupportedError("axis_index_groups whose members do not ascend")
    return spread.parts(axes, parts)


@rule(*_REDUCTIONS)
def _reduce(equation: Equation, *operands: Tensor) -> Result:
    axes = _axes(equation, "axes")
    if not axes:
        return list(operands)
    group = _group(equation, axes)
    op = _REDUCTIONS[equation.primitive]
    return [ops.collectives.replicated_all_reduce(t, op, group) for t in operands]  # type: ignore[arg-type]


@rule("all_gather", "all_gather_invariant")
def _all_gather(equation: Equation, t: Tensor) -> Result:
    axes, axis = _axes(equation), int(equation.params["all_gather_dimension"])
    group = _group(equation, axes)
    stacked = ops.collectives.replicated_all_gather(t, axis, group, "new_axis")
    stacked = _reordered(equation, stacked, axis, axes, of_members=False)
    return ops.reshape(stacked, equation.shape)


@rule("reduce_scatter")
def _reduce_scatter(equation: Equation, t: Tensor) -> Result:
    """Chunks of the flattened tensor, whose first dimension is the one that is cut."""
    axes, axis = _axes(equation), int(equation.params["scatter_dimension"])
    t = _reordered(equation, t, axis, axes, of_members=True)
    first = moved(t, (axis, *(each for each in range(t.rank) if each != axis)))
    part = ops.collectives.replicated_reduce_scatter(first, "add", _group(equation, axes))
    if not equation.params["tiled"]:
        return ops.reshape(part, equation.shape)
    rows = (t.shape[axis] // int(equation.params["axis_size"]), *first.shape[1:])
    back = tuple(each + 1 if each < axis else 0 if each == axis else each for each in range(t.rank))
    return moved(ops.reshape(part, rows), back)


@rule("all_to_all")
def _all_to_all(equation: Equation, t: Tensor) -> Result:
    """Parts received lie along the dimension that was cut; that of their senders moves to where they are joined."""
    axes = _axes(equation)
    cut, join = int(equation.params["split_axis"]), int(equation.params["concat_axis"])
    group = _group(equation, axes)
    members = group.group_size
    sent = _reordered(equation, t, cut, axes, of_members=True)
    got = ops.collectives.replicated_all_to_all(sent, cut, group)
    got = _reordered(equation, got, cut, axes, of_members=False)
    if not equation.params["tiled"]:
        rest = [axis for axis in range(t.rank) if axis != cut]
        rest.insert(join, cut)
        return moved(got, tuple(rest))
    if cut == join:
        return got
    shape = (*t.shape[:cut], members, t.shape[cut] // members, *t.shape[cut + 1 :])
    sender, axes_left = cut, [axis for axis in range(len(shape)) if axis != cut]
    place = axes_left.index(join + 1 if join > cut else join)
    axes_left.insert(place, sender)
    return ops.reshape(moved(ops.reshape(got, shape), tuple(axes_left)), equation.shape)


def _reordered(equation: Equation, t: Tensor, axis: int, axes: Sequence[str], *, of_members: bool) -> Tensor:
    """Parts along a dimension: from the order of indices along the axes to that of members of a group, or back.

    The orders differ where axes are given in another order than the mesh's.
    """
    spread = equation.importer.spread
    if spread.in_order(axes):
        return t
    order = np.asarray(spread.member_order(axes), np.int32)
    if of_members:
        order = np.argsort(order).astype(np.int32)
    extent = t.shape[axis]
    parts = ops.reshape(t, (*t.shape[:axis], order.size, extent // order.size, *t.shape[axis + 1 :]))
    return ops.reshape(ops.gather(parts, equation.constant(order, dtypes.int32), axis), t.shape)


@rule("ppermute")
def _ppermute(equation: Equation, t: Tensor) -> Result:
    """Pairs of indices along the axes as pairs of replicas; JAX counts along the mesh, in whatever order axes stand."""
    spread = equation.importer.spread
    axes = sorted(_axes(equation), key=[*spread.sizes].index)
    index = spread.index(axes)
    others = spread.index([axis for axis in spread.sizes if axis not in axes])
    at = {(other, number): replica for replica, (other, number) in enumerate(zip(others, index, strict=True))}
    destinations = {
        at[other, int(source)]: at[other, int(destination)]
        for other in sorted(set(others))
        for source, destination in equation.params["perm"]
    }
    return ops.collectives.replicated_permute(t, [destinations.get(r) for r in range(spread.replicas)])


@rule("axis_index", raw=True)
def _axis_index(equation: Equation) -> Result:
    """A value that is known for each replica, and the op where it is used as it is."""
    axes, spread = _axes(equation), equation.importer.spread
    index = spread.index(axes)
    found = known_rows([np.asarray(number, np.int32) for number in index], range(len(index)))
    if isinstance(found, PerReplica) and spread.in_order(axes):
        return [dataclasses.replace(found, index=spread.group(axes))]
    return [found]


def _ragged_all_to_all(equation: Equation) -> list[Tensor]:
    """Values that the result follows from: all that the group sends, the place among them, and what the replica has."""
    importer = equation.importer
    group = _group(equation, _axes(equation))
    operands = [importer.stand_in(value) for value in equation.values]
    place = ops.replica_index(group, dtype=dtypes.int32)
    [sent] = opaque([*operands, place], [((), dtypes.float32)], False)
    return [ops.collectives.replicated_all_gather(sent, 0, group, "new_axis"), *operands, place]


ANALYSED["ragged_all_to_all"] = _ragged_all_to_all
