"""Arguments and results of a step: from arrays of the user to tensors, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from popsr._program.tensor import Tensor
from popsr.bridge._step.arguments import Placement, Whole
from popsr.bridge._step.builder import StepBuilder
from popsr.bridge._step.reserved import zeros_of
from popsr.bridge.jax._arguments import Leaf, only_row, parts_of, value_of
from popsr.bridge.jax._importer import Importer, aval_of, has_dtype
from popsr.bridge.jax._mesh import Spec
from popsr.bridge.jax._rules.table import Value, stand_in_dtype
from popsr.bridge.jax._sizes.sharded import Sharded, sliced
from popsr.bridge.jax._traced import Traced

__all__ = ["add_results", "argument_of"]


def argument_of(
    builder: StepBuilder, traced: Traced, leaf: Leaf, role: str, number: int, replicated: bool
) -> Value:
    """A variable, a stream or a constant, and its value as the jaxpr takes it."""
    aval, spec, spread = traced.avals[number], traced.specs[number], traced.spread
    own_row = traced.per_replica is not None and traced.per_replica[number]
    whole = (
        _whole_of_rows(aval.shape, role, replicated, spread.replicas)
        if own_row
        else Whole(aval.shape, spread.place(spec, aval.shape))
    )
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
        initial = _as_stored(zeros_of(rows, aval.dtype), aval.dtype) if value is None else feed(value)
        if replicated and grouping.num_groups > 1:
            grouping, initial = builder.all(), only_row(leaf.path, initial)
        elif own_row and value is not None and grouping.num_groups == 1:
            initial = initial[0]
        made: Tensor = builder.state(
            leaf.path, initial, grouping, dtype=dtype, sharded=any(spec), placement=Placement(whole=whole)
        )
    else:
        made = builder.data(
            leaf.path,
            shape,
            dtype,
            grouping,
            example=value,
            feed=feed,
            sharded=any(spec),
            placement=Placement(whole=whole),
        )
    return Sharded(made, spec) if any(spec) else made


def _whole_of_rows(shape: tuple[int, ...], role: str, replicated: bool, replicas: int) -> Whole | None:
    """The array of one device of which replicas have rows: equal ones, or parts along its first dimension."""
    if role == "state" and replicated:
        return Whole(shape, lambda _: ())
    if role != "data" or not shape:
        return None
    length = shape[0]
    return Whole((replicas * length, *shape[1:]), lambda r: (slice(r * length, (r + 1) * length),))


def _as_stored(array: Any, dtype: np.dtype[Any]) -> Any:
    """An array of an element type, or the real parts that stand in for one that tensors cannot have."""
    return array.astype(dtype, copy=False) if has_dtype(dtype) else array.real.astype(np.float32)


def add_results(
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
            of = None if declared is None else Whole(aval.shape, traced.spread.place(spec, aval.shape))
            builder.result(
                name, t, grouping=declared, join=traced.joined(spec, aval), sharded=any(spec), whole=of
            )
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
