"""From a function of JAX to a step."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from popsr._host.arguments import read_int, read_text
from popsr._text.shown import shown
from popsr.bridge._builder import StepBuilder, Unsupported
from popsr.bridge._step import BridgedStep
from popsr.bridge.jax._arguments import (
    Leaf,
    assembled,
    inferred_updates,
    leaves_of,
    line_of,
    names_of,
    parts_of,
    read_roles,
    value_of,
)
from popsr.bridge.jax._framework import the_jax
from popsr.bridge.jax._importer import Importer, aval_of, closed
from popsr.bridge.jax._manual import meshes_of, require_axes, specs_of_arguments, spread_of
from popsr.bridge.jax._mesh import Spec, Spread
from popsr.bridge.jax._rules import Aval, NotSupportedError, Value, dtype_of
from popsr.bridge.jax._sharded import Sharded, sliced
from popsr.context import location
from popsr.errors import ArgumentTypeError, AttributeValueError, DTypeError, ReplicaError
from popsr.tensor import Tensor

__all__ = ["accepts", "from_jax"]

_WHERE = "from_jax"


def accepts(step: Any) -> bool:
    """True for functions, jitted or not."""
    if isinstance(step, (types.FunctionType, types.MethodType, functools.partial)):
        return True
    return type(step).__module__.partition(".")[0] in ("jax", "jaxlib")


def from_jax(
    f: Any,
    *args: Any,
    mesh: Any = None,
    in_specs: Any = None,
    out_specs: Any = None,
    check_vma: bool = True,
    replicas: int | None = None,
    axis_name: str | None = None,
    in_axes: Any = 0,
    names: Sequence[str] | None = None,
    roles: Mapping[str, str] | None = None,
    updates: Mapping[int, int] | None = None,
    unsupported: Unsupported = "error",
) -> BridgedStep:
    """A training step of JAX as a program, to be proved and run on simulated replicas.

    The step is traced, not run, and needs no devices. Replicas are the places of the mesh, row by row. Three forms
    are read: a function with ``mesh``, ``in_specs`` and ``out_specs`` of the ``shard_map`` that it is to run in; a
    function, jitted or not, that has its ``shard_map`` inside; and a function for each replica, as for ``pmap``, with
    ``replicas`` and ``axis_name``. What is outside of ``shard_map`` is computed on all replicas.

    Args:
        f: the function.
        args: what it is traced with: arrays, or ``jax.ShapeDtypeStruct``. Arrays are initial states and the default
            of data.
        mesh: a mesh of JAX, abstract or of devices, or sizes by name: ``{"data": 4}``.
        in_specs: as for ``jax.shard_map``.
        out_specs: as for ``jax.shard_map``.
        check_vma: as for ``jax.shard_map``. True lets JAX add sums of gradients, and refuse results that vary.
        replicas: their number; with a mesh its size.
        axis_name: name of the axis of replicas, for a function for each replica.
        in_axes: with ``axis_name``, as for ``jax.pmap``: 0 for arguments with a row for each replica, None for equal.
        names: a name for each argument. Default: of the function's parameters.
        roles: "state", "data" or "constant" by name. Default: states are what the step returns anew; others are data.
        updates: which result is the new value of which argument, by position. Default: the first result with the
            tree, shapes and dtypes of the argument.
        unsupported: "error" refuses primitives that popsr lacks and names all of them; "conservative" proves around
            them.
    Returns:
        The step. Paths of arrays are names with keys, such as ``params['w']``; results are ``result[1]``.
    Raises:
        UnsupportedOpsError: the step has primitives that popsr lacks.
        ReplicaError: the number of replicas is not the mesh's, or meshes differ.
        ShapeError: a dimension that is not a number.
        AttributeValueError: roles, names or updates that do not fit.
        ImportError: JAX is not installed.
    Example:
        >>> import jax.numpy as jnp  # doctest: +SKIP
        >>> def step(w, x):
        ...     return w - 0.1 * jax.lax.pmean(w * x.sum(), "data")
        >>> popsr.bridge.jax.from_jax(step, w, x, replicas=4, axis_name="data", in_axes=(None, 0))  # doctest: +SKIP
    """
    traced = _Traced(f, args, mesh, in_specs, out_specs, check_vma, replicas, axis_name, in_axes)
    leaves = leaves_of(f, args, names)
    return _read(traced, leaves, names, roles, updates, unsupported)


class _Traced:
    """A jaxpr with the mesh of its replicas.

    Attributes:
        jaxpr: closed.
        spread: how replicas lie in the mesh.
        outputs: shapes and dtypes of the results, as a tree.
        specs: how arguments are cut, in the order of the jaxpr.
        per_replica: which arguments have a row for each replica; None where a mesh cuts them.
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
    ) -> None:
        """Trace a function."""
        jax = the_jax()

        if not callable(f):
            raise ArgumentTypeError(
                f"{_WHERE}: f is not a function, got {shown(f)}, expected a function of JAX"
            )
        count = None if replicas is None else read_int(f"{_WHERE}: replicas", replicas, 1)
        self.f, self.args = f, args
        self.per_replica: list[bool] | None = None
        axes: list[tuple[str, int]] = []
        if (in_specs is None) != (out_specs is None):
            raise AttributeValueError(
                f"{_WHERE}: one of in_specs and out_specs, got the other as None, expected both"
            )
        if in_specs is not None:
            mesh = _read_mesh(mesh)
            f = jax.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=check_vma)
        elif axis_name is not None:
            if count is None:
                raise AttributeValueError(
                    f"{_WHERE}: axis_name without replicas, got {shown(axis_name)}, expected both"
                )
            axes = [(read_text(f"{_WHERE}: axis_name", axis_name), count)]
            args = self._rows(args, in_axes, count)
        self.jaxpr, self.outputs = jax.make_jaxpr(f, axis_env=axes, return_shape=True)(*args)
        found = Spread(dict(axes)) if axes else spread_of(self.jaxpr.jaxpr)
        if found is None and mesh is not None:
            found = Spread({str(name): int(size) for name, size in _read_mesh(mesh).shape.items()})
        if found is None:
            found = Spread({"replicas": count or 1})
        if count is not None and count != found.replicas:
            raise ReplicaError(
                f"{_WHERE}: replicas are not the mesh's, got {count}, expected {found.replicas} of "
                f"{dict(found.sizes)}"
            )
        self.spread = found
        for each in meshes_of(self.jaxpr.jaxpr):
            require_axes(found, each)
        self.avals = [_checked(var.aval) for var in self.jaxpr.jaxpr.invars]
        self.specs: list[Spec] = (
            [((),) * aval.rank for aval in self.avals]
            if axes
            else specs_of_arguments(self.jaxpr.jaxpr, self.avals)
        )

    def _rows(self, args: tuple[Any, ...], in_axes: Any, count: int) -> tuple[Any, ...]:
        """Arguments of one replica, as shapes and dtypes."""
        jax = the_jax()

        axes = tuple(in_axes) if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
        if len(axes) != len(args):
            raise AttributeValueError(
                f"{_WHERE}: not one of in_axes for each argument, got {len(axes)}, expected {len(args)}"
            )
        self.per_replica = []
        inner = []
        for number, (argument, of) in enumerate(zip(args, axes, strict=True)):
            leaves, tree = jax.tree.flatten(argument)
            kinds = jax.tree.leaves(of, is_leaf=lambda each: each is None)
            kinds = kinds * len(leaves) if len(kinds) == 1 else kinds
            if len(kinds) != len(leaves) or any(kind not in (0, None) for kind in kinds):
                raise AttributeValueError(
                    f"{_WHERE}: in_axes of argument {number}, got {shown(of)}, expected 0 or None, or a tree of them"
                )
            self.per_replica += [kind == 0 for kind in kinds]
            inner.append(
                tree.unflatten([_row(leaf, kind, count) for leaf, kind in zip(leaves, kinds, strict=True)])
            )
        return tuple(inner)

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
            f"{_WHERE}: not a row for each replica, got shape {list(shape)}, expected {count} rows: in_axes=None gives "
            "all replicas the same"
        )
    return jax.ShapeDtypeStruct(shape[1:], dtype)


def _read_mesh(mesh: Any) -> Any:
    """A mesh of JAX, from sizes by name too."""
    jax = the_jax()

    if isinstance(mesh, Mapping):
        sizes = {
            read_text(f"{_WHERE}: name of an axis", name): read_int(f"{_WHERE}: size of axis {name}", size, 1)
            for name, size in mesh.items()
        }
        return jax.sharding.AbstractMesh(tuple(sizes.values()), tuple(sizes))
    if not isinstance(mesh, (jax.sharding.Mesh, jax.sharding.AbstractMesh)):
        raise ArgumentTypeError(
            f"{_WHERE}: mesh is not a mesh, got {shown(mesh)}, expected a Mesh of JAX or sizes by name"
        )
    return jax.sharding.AbstractMesh(
        tuple(mesh.shape.values()), tuple(mesh.shape)
    )  # without devices or axis types


def _checked(aval: Any) -> Aval:
    """An argument as stored.

    Raises:
        DTypeError: tensors cannot have its dtype.
    """
    try:
        found = aval_of(aval)
        dtype_of(found.dtype)
    except NotSupportedError as error:
        raise DTypeError(f"{_WHERE}: argument of a dtype that tensors cannot have, got {error}") from None
    return found


def _read(
    traced: _Traced,
    leaves: Sequence[Leaf],
    names: Sequence[str] | None,
    roles: Mapping[str, str] | None,
    updates: Mapping[int, int] | None,
    unsupported: Unsupported,
) -> BridgedStep:
    jax = the_jax()

    outputs = traced.outputs
    parts = (
        list(outputs) if isinstance(outputs, (tuple, list)) and type(outputs) in (tuple, list) else [outputs]
    )
    if updates is None:
        inner = _seen_by_replica(traced)
        updates = inferred_updates(inner, parts)
    _check_updates(updates, traced.args, parts)
    arguments = names_of(traced.f, len(traced.args), names)
    kinds = read_roles(arguments, roles, updates)
    updates = {position: number for position, number in updates.items() if kinds[position] == "state"}
    builder = StepBuilder(traced.spread.replicas, where=_WHERE, unsupported=unsupported)
    place = line_of(traced.f)
    with builder:
        importer = Importer(builder, traced.spread)
        jaxpr, consts = closed(traced.jaxpr)
        with location(*place) if place else contextlib.nullcontext():
            values = [
                _argument(builder, traced, leaf, kinds[leaf.argument], number)
                for number, leaf in enumerate(leaves)
            ]
            found = importer.run(jaxpr, values, consts)
            _results(importer, traced, leaves, parts, found, updates, jax.tree_util)
            return builder.finish()


def _seen_by_replica(traced: _Traced) -> tuple[Any, ...]:
    """Arguments with the shapes that the jaxpr takes."""
    jax = the_jax()

    leaves = iter(traced.jaxpr.jaxpr.invars)
    return tuple(
        jax.tree.map(lambda _: jax.ShapeDtypeStruct((aval := next(leaves).aval).shape, aval.dtype), argument)
        for argument in traced.args
    )


def _check_updates(updates: Mapping[int, int], args: Sequence[Any], outputs: Sequence[Any]) -> None:
    jax = the_jax()

    for position, number in updates.items():
        if not 0 <= position < len(args) or not 0 <= number < len(outputs):
            raise AttributeValueError(
                f"{_WHERE}: updates of an argument or result that is not there, got {{{position}: {number}}}, expected "
                f"0 to {len(args) - 1} and 0 to {len(outputs) - 1}"
            )
        if jax.tree.structure(args[position]) != jax.tree.structure(outputs[number]):
            raise AttributeValueError(
                f"{_WHERE}: updates argument {position} by a result of another tree, got result {number}, expected "
                f"{shown(str(jax.tree.structure(args[position])))}"
            )


def _argument(builder: StepBuilder, traced: _Traced, leaf: Leaf, role: str, number: int) -> Value:
    """A variable, a stream or a constant, and its value as the jaxpr takes it."""
    aval, spec, spread = traced.avals[number], traced.specs[number], traced.spread
    own_row = traced.per_replica is not None and traced.per_replica[number]
    grouping = builder.each() if own_row else spread.shards(spec)
    shape = tuple(extent // spread.size(axes) for extent, axes in zip(aval.shape, spec, strict=True))
    dtype = dtype_of(aval.dtype)
    value = value_of(leaf.value)

    def feed(given: Any) -> Any:
        array = value_of(given)
        assert array is not None
        array = array.astype(aval.dtype, copy=False)
        return array if own_row else parts_of(array, spec, spread)

    if role == "constant" and value is not None and not any(spec) and not own_row:
        return builder.constant(leaf.path, value.astype(aval.dtype, copy=False), dtype)
    if role == "state":
        rows = (grouping.num_groups, *shape) if grouping.num_groups > 1 else shape
        initial = np.zeros(rows, aval.dtype) if value is None else feed(value)
        made: Tensor = builder.state(leaf.path, initial, grouping, dtype=dtype)
    else:
        made = builder.data(leaf.path, shape, dtype, grouping, example=value, feed=feed)
    return Sharded(made, spec) if any(spec) else made


def _results(
    importer: Importer,
    traced: _Traced,
    leaves: Sequence[Leaf],
    outputs: Sequence[Any],
    found: list[Value],
    updates: Mapping[int, int],
    tree_util: Any,
) -> None:
    """New values of states, and results by their place in what the step returns."""
    builder = importer.builder
    of_argument: dict[int, list[int]] = {}
    for number, leaf in enumerate(leaves):
        of_argument.setdefault(leaf.argument, []).append(number)
    new_of = {number: position for position, number in updates.items()}
    whole = type(traced.outputs) not in (tuple, list)
    values = iter(zip(found, traced.jaxpr.jaxpr.outvars, strict=True))
    for number, output in enumerate(outputs):
        states = iter(of_argument.get(new_of[number], [])) if number in new_of else None
        for path, _ in tree_util.tree_flatten_with_path(output)[0]:
            value, var = next(values)
            if states is not None:
                index = next(states)
                builder.update(leaves[index].path, _as_cut(importer, value, traced.specs[index]))
                continue
            name = "result" + ("" if whole else f"[{number}]") + tree_util.keystr(path)
            aval = aval_of(var.aval)
            spec = value.spec if isinstance(value, Sharded) else ((),) * aval.rank
            t = value.part if isinstance(value, Sharded) else importer.tensor(value)
            declared = None if traced.per_replica is not None else traced.spread.shards(spec)
            builder.result(name, t, grouping=declared, join=traced.joined(spec, aval))


def _as_cut(importer: Importer, value: Value, spec: Spec) -> Tensor:
    """A value in the parts that a state is kept in."""
    if isinstance(value, Sharded):
        if value.spec == spec:
            return value.part
        value = value.whole(importer.spread)
    t = importer.tensor(value)
    return sliced(t, spec, importer.spread) if any(spec) else t
