"""From a function of JAX to a step."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from popsr._text.shown import shown
from popsr.analysis._axes import ReplicaAxes
from popsr.bridge._advice import Variant, is_whole_loss
from popsr.bridge._builder import StepBuilder, Unsupported
from popsr.bridge._step import BridgedStep
from popsr.bridge.jax._arguments import (
    Leaf,
    inferred_updates,
    leaves_of,
    line_of,
    names_of,
    only_row,
    parts_of,
    read_replicated,
    read_roles,
    value_of,
)
from popsr.bridge.jax._compiled import compiler_keeps
from popsr.bridge.jax._contracts import Contracts
from popsr.bridge.jax._framework import the_jax
from popsr.bridge.jax._importer import Importer, aval_of, closed, has_dtype
from popsr.bridge.jax._libraries import Form, is_of_library, plain_form
from popsr.bridge.jax._mesh import Spec
from popsr.bridge.jax._rules import Value, stand_in_dtype
from popsr.bridge.jax._sharded import Sharded, sliced
from popsr.bridge.jax._traced import WHERE, Traced
from popsr.context import location
from popsr.errors import AttributeValueError
from popsr.tensor import Tensor

__all__ = ["accepts", "from_jax"]


def accepts(step: Any) -> bool:
    """True for functions, jitted or not, also by libraries on top of JAX."""
    if isinstance(step, (types.FunctionType, types.MethodType, functools.partial)):
        return True
    return is_of_library(step) or type(step).__module__.partition(".")[0] in ("jax", "jaxlib")


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
    replicated: Sequence[str] = (),
    unsupported: Unsupported = "error",
    opaque: Mapping[str, str] | None = None,
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
        replicated: names of states of which each replica has a row of its own, all of them equal, as ``pmap`` keeps
            parameters: they are declared to stay equal.
        unsupported: "error" refuses primitives of which nothing is known and names all of them; "conservative"
            proves around them.
        opaque: contracts of such primitives: by name of a callback's function, of a Pallas kernel, of the target of a
            foreign call or of a primitive, "deterministic" (equal operands give equal results) or "equal over data"
            (replicas that differ in that axis alone have equal results, whatever the operands). The proof shows them.
    Returns:
        The step. Paths of arrays are names with keys, such as ``params['w']``; results are ``result[1]``.
    Raises:
        UnsupportedOpsError: the step has primitives of which nothing is known.
        UnknownNameError: ``opaque`` names no such primitive of the step.
        ReplicaError: the number of replicas is not the mesh's, or meshes differ.
        ShapeError: a dimension that is not a number.
        AttributeValueError: roles, names or updates that do not fit.
        MissingPackageError: JAX is not installed, or too old.
    Example:
        >>> import jax.numpy as jnp  # doctest: +SKIP
        >>> def step(w, x):
        ...     return w - 0.1 * jax.lax.pmean(w * x.sum(), "data")
        >>> popsr.bridge.jax.from_jax(step, w, x, replicas=4, axis_name="data", in_axes=(None, 0))  # doctest: +SKIP
    """
    form = plain_form(Form(f, args, in_specs, out_specs, updates))
    f, args, in_specs, out_specs, updates = form.f, form.args, form.in_specs, form.out_specs, form.updates
    traced = Traced(f, args, mesh, in_specs, out_specs, check_vma, replicas, axis_name, in_axes)
    leaves = leaves_of(f, args, names)
    contracts = Contracts(opaque, traced.spread)
    step = _read(traced, leaves, names, roles, updates, replicated, unsupported, contracts)
    if check_vma or mesh is None:
        return step

    def checked(proof: Any) -> BridgedStep | None:
        if not is_whole_loss(proof):
            return None
        again = Traced(f, args, mesh, in_specs, out_specs, True, replicas, axis_name, in_axes)
        found = Contracts(opaque, again.spread)
        return _read(again, leaves, names, roles, updates, replicated, unsupported, found)

    text = "let JAX add the sums of gradients over axes and check what varies: check_vma=True"
    return dataclasses.replace(step, variants=(Variant(text, checked),))


def _read(
    traced: Traced,
    leaves: Sequence[Leaf],
    names: Sequence[str] | None,
    roles: Mapping[str, str] | None,
    updates: Mapping[int, int] | None,
    replicated: Sequence[str],
    unsupported: Unsupported,
    contracts: Contracts,
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
    equal = read_replicated(arguments, kinds, replicated)
    builder = StepBuilder(traced.spread.replicas, where=WHERE, unsupported=unsupported)
    if traced.has_axes:
        builder.axes = ReplicaAxes.of_sizes(traced.spread.sizes)
    place = line_of(traced.f)
    with builder:
        importer = Importer(builder, traced.spread, contracts)
        jaxpr, consts = closed(traced.jaxpr)
        with location(*place) if place else contextlib.nullcontext():
            values = [
                _argument(
                    builder,
                    traced,
                    leaf,
                    "state" if number in traced.refs else kinds[leaf.argument],
                    number,
                    leaf.argument in equal,
                )
                for number, leaf in enumerate(leaves)
            ]
            for number, (leaf, value) in enumerate(zip(leaves, values, strict=True)):
                if isinstance(value, Sharded) and traced.gathered[number]:
                    values[number] = value.whole(traced.spread)
                elif isinstance(value, Sharded) and kinds[leaf.argument] == "state":
                    importer.cuts.add(value.part, value.spec)
            if traced.compiled:
                builder.note(compiler_keeps(traced.spread))
            found = importer.run(jaxpr, values, consts)
            contracts.require_used()
            _results(importer, traced, leaves, parts, found, updates, jax.tree_util)
            return builder.finish()


def _seen_by_replica(traced: Traced) -> tuple[Any, ...]:
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
                f"{WHERE}: updates of an argument or result that is not there, got {{{position}: {number}}}, expected "
                f"0 to {len(args) - 1} and 0 to {len(outputs) - 1}"
            )
        if jax.tree.structure(args[position]) != jax.tree.structure(outputs[number]):
            raise AttributeValueError(
                f"{WHERE}: updates argument {position} by a result of another tree, got result {number}, expected "
                f"{shown(str(jax.tree.structure(args[position])))}"
            )


def _argument(
    builder: StepBuilder, traced: Traced, leaf: Leaf, role: str, number: int, replicated: bool
) -> Value:
    """A variable, a stream or a constant, and its value as the jaxpr takes it."""
    aval, spec, spread = traced.avals[number], traced.specs[number], traced.spread
    own_row = traced.per_replica is not None and traced.per_replica[number]
    grouping = builder.each() if own_row else spread.shards(spec)
    shape = tuple(extent // spread.size(axes) for extent, axes in zip(aval.shape, spec, strict=True))
    dtype = stand_in_dtype(aval.dtype)
    value = value_of(leaf.value)
    if not has_dtype(aval.dtype):
        builder.unsupported(f"argument {leaf.path} (dtype {aval.dtype})", (), (), exact=True)

    def feed(given: Any) -> Any:
        array = value_of(given)
        assert array is not None
        array = _as_stored(array, aval.dtype)
        return array if own_row else parts_of(array, spec, spread)

    if role == "constant" and value is not None and not any(spec) and not own_row:
        return builder.constant(leaf.path, _as_stored(value, aval.dtype), dtype)
    if role == "state":
        rows = (grouping.num_groups, *shape) if grouping.num_groups > 1 else shape
        initial = _as_stored(np.zeros(rows, aval.dtype), aval.dtype) if value is None else feed(value)
        if replicated and grouping.num_groups > 1:
            grouping, initial = builder.all(), only_row(leaf.path, initial)
        made: Tensor = builder.state(leaf.path, initial, grouping, dtype=dtype, sharded=any(spec))
    else:
        made = builder.data(leaf.path, shape, dtype, grouping, example=value, feed=feed, sharded=any(spec))
    return Sharded(made, spec) if any(spec) else made


def _as_stored(array: Any, dtype: np.dtype[Any]) -> Any:
    """An array of an element type, or the real parts that stand in for one that tensors cannot have."""
    return array.astype(dtype, copy=False) if has_dtype(dtype) else array.real.astype(np.float32)


def _results(
    importer: Importer,
    traced: Traced,
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
            t = value.part if isinstance(value, Sharded) else importer.stand_in(value)
            if not has_dtype(aval.dtype):
                builder.unsupported(f"{name} (dtype {aval.dtype})", (), (), exact=True)
            declared = None if traced.per_replica is not None else traced.spread.shards(spec)
            builder.result(name, t, grouping=declared, join=traced.joined(spec, aval), sharded=any(spec))
    for index, (value, _) in zip(traced.refs, values, strict=True):
        builder.update(leaves[index].path, _as_cut(importer, value, traced.specs[index]))


def _as_cut(importer: Importer, value: Value, spec: Spec) -> Tensor:
    """A value in the parts that a state is kept in."""
    if isinstance(value, Sharded):
        if value.spec == spec:
            return value.part
        value = value.whole(importer.spread)
    t = importer.stand_in(value)
    return sliced(t, spec, importer.spread) if any(spec) else t
