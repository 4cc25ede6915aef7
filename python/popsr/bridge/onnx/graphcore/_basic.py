"""Rules of ai.graphcore: arithmetic, shapes, indices, order and collectives."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.context import gcg
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._folding import reshaped_extents
from popsr.bridge.onnx._node import Node, Value, cast
from popsr.bridge.onnx._rules import NotSupportedError, add_rule, axis_in, find_rule, rule
from popsr.bridge.onnx._types import dtype_of
from popsr.ops.collectives import replicated_all_reduce, replicated_reduce_scatter
from popsr.replicas import CommGroup, CommGroupType, ReplicaGrouping

__all__ = ["DOMAIN", "reuse"]

DOMAIN = "ai.graphcore"
_graphcore = functools.partial(rule, domain=DOMAIN)


def _same(t: Tensor) -> Tensor:
    return ops.identity(t)


_PLAIN: dict[str, Callable[..., Any]] = {
    "Atan2": ops.atan2,
    "BitwiseAnd": ops.bitwise_and,
    "BitwiseNot": ops.bitwise_not,
    "BitwiseOr": ops.bitwise_or,
    "BitwiseXor": ops.bitwise_xor,
    "BitwiseXnor": lambda a, b: ops.bitwise_not(ops.bitwise_xor(a, b)),
    "CopyVarUpdate": lambda _, value: ops.identity(value),  # the session writes it to the variable
    "Detach": ops.detach,
    "Expm1": ops.expm1,
    "Fmod": ops.fmod,
    "Gelu": ops.gelu,
    "GeluErf": ops.geluerf,
    "Log1p": ops.log1p,
    "NearbyInt": ops.round,
    "Nop": _same,
    "Round": lambda t: ops.round(t, half="away"),
    "Swish": ops.swish,
    "TensorRemap": _same,
}
for _name, _function in _PLAIN.items():
    add_rule(_name, _function, 1, "plain", DOMAIN, __name__)


def reuse(op_type: str, opset: int, node: Node, *operands: Value) -> Any:
    """The results of ONNX's rule of an op, with the node's attributes."""
    found = find_rule("", op_type, opset)
    assert found is not None
    return found.function(node, *operands)


@_graphcore("Remainder")
def _remainder(node: Node, a: Tensor, b: Tensor) -> Tensor:
    """Remainder with the sign of the divisor."""
    rest = ops.fmod(a, b)
    zero = node.like(0, rest)
    other = ops.logical_xor(ops.less(rest, zero), ops.less(b, node.like(0, b)))
    wrong = ops.logical_and(ops.not_equal(rest, zero), other)
    return ops.where(wrong, ops.add(rest, b), rest)


@_graphcore("Scale")
def _scale(node: Node, t: Tensor) -> Tensor:
    return ops.mul(t, node.like(node.number("scale"), t))


@_graphcore("ScaledAdd")
def _scaled_add(node: Node, a: Tensor, b: Tensor, x: Tensor | None = None, y: Tensor | None = None) -> Tensor:
    first: Any = node.number("scale0", 1.0) if x is None else x
    second: Any = node.number("scale1", 1.0) if y is None else y
    return ops.scaled_add(a, b, first, second)


@_graphcore("IncrementMod")
def _increment_mod(node: Node, t: Tensor) -> Tensor:
    return ops.increment_mod(t, node.number("increment"), node.number("modulus"))


@_graphcore("NormalizeImage")
def _normalize_image(node: Node, t: Tensor, offsets: Tensor, scales: Tensor) -> Tensor:
    """The last axis has channels; three of them become four, the last of zeros."""
    made = cast(t, offsets.dtype)
    made = ops.mul(ops.sub(ops.mul(made, node.like(node.number("scale", 1.0), made)), offsets), scales)
    if made.shape[-1] != 3:
        return made
    return ops.concat([made, ops.init((*made.shape[:-1], 1), made.dtype)], made.rank - 1)


# Shapes


@_graphcore("Reshape")
def _reshape(node: Node, t: Tensor) -> Tensor:
    return ops.reshape(t, reshaped_extents(t.shape, node.ints("shape"), False))


@_graphcore("Reverse")
def _reverse(node: Node, t: Tensor) -> Tensor:
    return ops.reverse(t, [axis_in(axis, t.rank) for axis in node.ints("dimensions")])


@_graphcore("Slice")
def _slice(node: Node, t: Tensor) -> Tensor:
    return reuse("Slice", 1, node, t)  # type: ignore[no-any-return]


@_graphcore("Subsample")
def _subsample(node: Node, t: Tensor) -> Tensor:
    return ops.subsample(t, node.ints("strides"))


@_graphcore("DepthToSpace")
def _depth_to_space(node: Node, t: Tensor) -> Tensor:
    return reuse("DepthToSpace", 11, node, t)  # type: ignore[no-any-return]


@_graphcore("Init")
def _init(node: Node) -> Tensor:
    kind: Any = "undef" if node.word("init_type", ("NoInit", "Zero")) == "NoInit" else "zero"
    return ops.init(node.ints("shape"), dtype_of(node.integer("data_type")), init_type=kind)


@_graphcore("PrintTensor")
def _print_tensor(node: Node, t: Tensor) -> Tensor:
    words = ("auto", "fixed", "scientific", "none")
    return ops.print_tensor(
        t,
        node.text("title", "") or node.proto.input[0],
        print_gradient=bool(node.integer("print_gradient", 1)),
        summarise_threshold=node.integer("summariseThreshold", 1000),
        edge_items=node.integer("edgeItems", 3),
        max_line_width=node.integer("maxLineWidth", 75),
        digits=node.integer("digits", 8),
        float_format=words[node.integer("floatFormat", 0)],  # type: ignore[arg-type]
        separator=node.text("separator", " "),
        open_bracket=node.text("openBracket", "["),
        close_bracket=node.text("closeBracket", "]"),
    )


@_graphcore("Call", kind="raw")
def _call(node: Node, *operands: Value) -> list[Value]:
    found = node.reader.subgraph(node.graph("callee"), node.scope, operands)
    if len(found) != len(node.proto.output):
        raise ValueError(f"{len(node.proto.output)} results of a graph with {len(found)}")
    return found


# Indices


def _slices(node: Node) -> tuple[list[int], list[int], bool]:
    return list(node.ints("axes")), list(node.ints("sizes")), bool(node.integer("noOverlap", 0))


@_graphcore("DynamicSlice")
def _dynamic_slice(node: Node, t: Tensor, index: Tensor, into: Tensor | None = None) -> Tensor:
    """The slice, which a device would write into the third operand."""
    made = ops.dynamic_slice(t, index, *_slices(node))
    if into is not None and (into.shape, into.dtype) != (made.shape, made.dtype):
        raise ValueError(f"a slice of {list(made.shape)} into {list(into.shape)}")
    return made


@_graphcore("ArgMax", "ArgMin")
def _arg_extreme(node: Node, t: Tensor) -> Tensor:
    """ONNX's op, with places as int32, as programs of a Builder have them."""
    return cast(reuse(node.proto.op_type, 11, node, t), dtypes.int32)


@_graphcore("DynamicUpdate")
def _dynamic_update(node: Node, t: Tensor, index: Tensor, part: Tensor) -> Tensor:
    return ops.dynamic_update(t, index, part, *_slices(node))


@_graphcore("DynamicAdd")
def _dynamic_add(node: Node, t: Tensor, index: Tensor, part: Tensor) -> Tensor:
    slices = _slices(node)
    return ops.dynamic_update(t, index, ops.add(ops.dynamic_slice(t, index, *slices), part), *slices)


@_graphcore("DynamicZero")
def _dynamic_zero(node: Node, t: Tensor, index: Tensor) -> Tensor:
    axes, sizes, _ = _slices(node)
    shape = list(t.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis_in(axis, t.rank)] = size
    return ops.dynamic_update(t, index, ops.init(shape, t.dtype), axes, sizes, False)


@_graphcore("GroupedGather")
def _grouped_gather(node: Node, t: Tensor, indices: Tensor) -> Tensor:
    return ops.groupedgather(t, indices, node.integer("axis", 0), node.integer("group_size", 1))


@_graphcore("ScatterReduce")
def _scatter_reduce(node: Node, t: Tensor, indices: Tensor, initial: Tensor | None = None) -> Tensor:
    return ops.scatter_reduce(t, indices, _reduction(node), initial, *_scattered(node, t))


@_graphcore("GroupedScatterReduce")
def _grouped_scatter(node: Node, t: Tensor, indices: Tensor, initial: Tensor | None = None) -> Tensor:
    axis, size, broadcast = _scattered(node, t)
    groups = node.integer("group_size", 1)
    return ops.grouped_scatter_reduce(t, indices, _reduction(node), initial, axis, size, groups, broadcast)


def _reduction(node: Node) -> Any:
    word = node.text("reduction", "Sum").lower().rstrip("_")
    if word not in ("sum", "max", "min", "none"):
        raise NotSupportedError(f"with reduction {word}")
    return word


def _scattered(node: Node, t: Tensor) -> tuple[int, int, bool]:
    return (
        node.axis("axis", t.rank, -1),
        node.integer("axis_size"),
        bool(node.integer("enable_index_broadcast", 1)),
    )


@_graphcore("SequenceSlice")
def _sequence_slice(node: Node, source: Tensor, target: Tensor, *entries: Tensor) -> Tensor:
    """Rows of the source at rows of the target: entry i copies ``n[i]`` rows from ``begin[i]`` to ``place[i]``."""
    if len({each.shape for each in entries}) != 1 or entries[0].rank != 1:
        raise ValueError(f"entries of shapes {[list(each.shape) for each in entries]}, expected one length")
    n, begin, place = (cast(each, dtypes.int32) for each in entries)
    row = node.constant(np.arange(target.shape[0]).reshape(-1, 1), dtypes.int32)
    inside = ops.logical_and(ops.greater_equal(row, place), ops.less(row, ops.add(place, n)))
    wanted = ops.mul(cast(inside, dtypes.int32), ops.add(begin, ops.sub(row, place)))
    found = ops.gather(source, ops.sum(wanted, 1), 0)
    written = ops.greater(ops.sum(cast(inside, dtypes.int32), 1), node.constant(0, dtypes.int32))
    written = ops.reshape(written, (target.shape[0], *(1,) * (target.rank - 1)))
    rest = ops.init(target.shape, target.dtype) if node.integer("zeroUnused", 0) else target
    return ops.where(written, found, rest)


# Order


@_graphcore("Bucketize")
def _bucketize(node: Node, t: Tensor, boundaries: Tensor) -> Tensor:
    """The number of boundaries below, or with ``right`` not above, each element."""
    if boundaries.rank != 1:
        raise ValueError(f"boundaries of shape {list(boundaries.shape)}, expected one axis")
    compare = ops.less_equal if node.integer("right", 0) else ops.less
    below = compare(boundaries, ops.reshape(t, (*t.shape, 1)))
    return ops.sum(cast(below, dtypes.int32), t.rank)


@_graphcore("Sort")
def _sort(node: Node, t: Tensor) -> list[Tensor]:
    axis = node.axis("axis", t.rank, -1)
    return list(_ordered(node, t, axis, bool(node.integer("descending", 0))))


def _ordered(node: Node, t: Tensor, axis: int, descending: bool) -> tuple[Tensor, ...]:
    places = np.arange(t.shape[axis]).reshape(-1, *(1,) * (t.rank - 1 - axis))
    indices = node.constant(np.ascontiguousarray(np.broadcast_to(places, t.shape)), dtypes.int32)
    return ops.sort(t, indices, axis=axis, descending=descending)


@_graphcore("ReduceMedian")
def _reduce_median(node: Node, t: Tensor) -> list[Tensor]:
    """The element in the middle, or before it; and its place among those reduced."""
    axes = sorted({axis_in(axis, t.rank) for axis in node.ints("axes", tuple(range(t.rank)))})
    others = [axis for axis in range(t.rank) if axis not in axes]
    kept = tuple(t.shape[axis] for axis in others)
    count = math.prod(t.shape[axis] for axis in axes)
    rows = ops.reshape(ops.transpose(t, (*others, *axes)), (math.prod(kept), count))
    shape = (
        tuple(1 if i in axes else n for i, n in enumerate(t.shape)) if node.integer("keepdims", 1) else kept
    )
    middle = (count - 1) // 2
    found = _ordered(node, rows, 1, False)
    return [ops.reshape(ops.slice(each, [middle], [middle + 1], axis=[1]), shape) for each in found]


# Replicas


def _groups(node: Node) -> ReplicaGrouping:
    kind, size = node.ints("commGroup", (0, 0))
    return CommGroup(CommGroupType(kind), size).to_replica_grouping(gcg().ir.replication_factor)


_OPERATORS = {
    "Add": "add",
    "Mean": "mean",
    "Mul": "mul",
    "Min": "min",
    "Max": "max",
    "LogicalAnd": "and",
    "LogicalOr": "or",
    "SquareAdd": "square_add",
    "Local": None,
}


def _operator(node: Node) -> Any:
    return _OPERATORS[node.text("collectiveOperator", "Add")]


@_graphcore("ReplicatedAllReduce")
def _all_reduce(node: Node, t: Tensor) -> Tensor:
    operator = _operator(node)
    return _same(t) if operator is None else replicated_all_reduce(t, operator, _groups(node))


@_graphcore("ReplicatedReduceScatter")
def _reduce_scatter(node: Node, t: Tensor) -> Tensor:
    operator = _operator(node)
    if operator is None:
        raise NotSupportedError("with operator Local")
    return replicated_reduce_scatter(t, operator, _groups(node))
