"""The table of exports: the node of ONNX for each kind of op, and the functions of popsr's own domain.

An op that ONNX has under another name is one node. One that ONNX lacks is a call of a function with popsr's domain: its
body, of ONNX's ops, is in the model for other readers, and popsr reads the call as the op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from popsr import dtypes, ops
from popsr._program.op import Op
from popsr.bridge.onnx._rules import NotSupportedError, add_rule
from popsr.bridge.onnx._types import code_of

__all__ = ["DOMAIN", "EXPORTS", "FUNCTIONS", "OPSET", "Writer"]

OPSET = 20
"""Version of ONNX's ops that models are written with."""
DOMAIN = "ai.popsr"
"""Domain of ops that ONNX lacks."""


class Writer(Protocol):
    """The model that is being written, as exports see it."""

    def node(
        self,
        op_type: str,
        inputs: Sequence[str],
        outputs: Sequence[str] | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> str:
        """A node. Default outputs: those of the op; else one new name. Returns the first."""

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """A constant."""

    def fresh(self) -> str:
        """A new name."""


Export = Callable[[Writer, Op, list[str]], Any]
EXPORTS: dict[str, Export] = {}
"""By kind of op."""

_SAME = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "add": "Add", "asin": "Asin", "asinh": "Asinh", "atan": "Atan",
    "atanh": "Atanh", "bitwise_and": "BitwiseAnd", "bitwise_not": "BitwiseNot", "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh", "detach": "Identity", "div": "Div",
    "equal": "Equal", "erf": "Erf", "exp": "Exp", "floor": "Floor", "greater": "Greater",
    "greater_equal": "GreaterOrEqual", "identity": "Identity", "isinf": "IsInf", "isnan": "IsNaN", "less": "Less",
    "less_equal": "LessOrEqual", "log": "Log", "logical_and": "And", "logical_not": "Not", "logical_or": "Or",
    "logical_xor": "Xor", "maximum": "Max", "minimum": "Min", "mul": "Mul", "negate": "Neg", "pow": "Pow",
    "reciprocal": "Reciprocal", "relu": "Relu", "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin", "sinh": "Sinh",
    "sqrt": "Sqrt", "sub": "Sub", "tan": "Tan", "tanh": "Tanh", "where": "Where",
}  # fmt: skip
"""Ops without attributes that are one node."""

_REDUCTIONS = {
    "l1": "ReduceL1",
    "l2": "ReduceL2",
    "logsum": "ReduceLogSum",
    "logsumexp": "ReduceLogSumExp",
    "max": "ReduceMax",
    "mean": "ReduceMean",
    "min": "ReduceMin",
    "prod": "ReduceProd",
    "sum": "ReduceSum",
    "sumsquare": "ReduceSumSquare",
}

FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "expm1": (
        ops.expm1,
        "(t) => (y) { e = Exp(t) one = Constant<value_float=1.0>() n = CastLike(one, t) y = Sub(e, n) }",
    ),
    "log1p": (
        ops.log1p,
        "(t) => (y) { one = Constant<value_float=1.0>() n = CastLike(one, t) s = Add(t, n) y = Log(s) }",
    ),
    "rsqrt": (ops.rsqrt, "(t) => (y) { root = Sqrt(t) y = Reciprocal(root) }"),
    "square": (ops.square, "(t) => (y) { y = Mul(t, t) }"),
    "swish": (ops.swish, "(t) => (y) { s = Sigmoid(t) y = Mul(t, s) }"),
    "exp2": (ops.exp2, "(t) => (y) { two = Constant<value_float=2.0>() n = CastLike(two, t) y = Pow(n, t) }"),
    "log2": (
        ops.log2,
        "(t) => (y) { l = Log(t) two = Constant<value_float=2.0>() n = CastLike(two, t) b = Log(n) y = Div(l, b) }",
    ),
    "isfinite": (ops.isfinite, "(t) => (y) { a = IsInf(t) b = IsNaN(t) c = Or(a, b) y = Not(c) }"),
}
"""Ops of one operand that ONNX lacks: the op, and the body of the function."""


def _export(*kinds: str) -> Callable[[Export], Export]:
    def register(function: Export) -> Export:
        EXPORTS.update(dict.fromkeys(kinds, function))
        return function

    return register


def _named(op_type: str, domain: str = "") -> Export:
    return lambda out, _op, inputs: out.node(op_type, inputs, domain=domain)


EXPORTS.update({kind: _named(op_type) for kind, op_type in _SAME.items()})
for _kind, (_function, _) in FUNCTIONS.items():
    EXPORTS[_kind] = _named(_kind, DOMAIN)
    add_rule(_kind, _function, 1, "plain", DOMAIN, __name__)


@_export(*_REDUCTIONS)
def _reduction(out: Writer, op: Op, inputs: list[str]) -> None:
    axes = op.attributes["axis"]
    given = [] if axes is None else [out.constant(list(axes))]
    out.node(_REDUCTIONS[op.kind], [*inputs, *given], keepdims=int(op.attributes["keepdims"]))


@_export("var")
def _var(out: Writer, op: Op, inputs: list[str]) -> None:
    """A function of axes; without a correction of their number."""
    if op.attributes["correction"]:
        raise NotSupportedError("with a correction")
    t = op.inputs[0]
    assert t is not None
    axes = range(t.rank) if op.attributes["axis"] is None else op.attributes["axis"]
    axes = [axis % t.rank for axis in axes]
    keep = out.node(
        "var", [*inputs, out.constant(axes)], [out.fresh()] if not op.attributes["keepdims"] else None, DOMAIN
    )
    if not op.attributes["keepdims"]:
        out.node("Squeeze", [keep, out.constant(axes)])


FUNCTIONS["var"] = (
    ops.var,
    "(t, axes) => (y) { m = ReduceMean<keepdims=1>(t, axes) d = Sub(t, m) s = Mul(d, d) "
    "y = ReduceMean<keepdims=1>(s, axes) }",
)


def _read_var(node: Any, value: Any, axes: Any) -> Any:
    return ops.var(node.tensor(value), list(node.known_ints(axes, "axes")), True, 0.0)


add_rule("var", _read_var, 1, "raw", DOMAIN, __name__)


@_export("argmax", "argmin")
def _arg_extreme(out: Writer, op: Op, inputs: list[str]) -> None:
    """ONNX counts in 64 bits."""
    if op.attributes["dim"] is None:
        raise NotSupportedError("over all axes")
    op_type = "ArgMax" if op.kind == "argmax" else "ArgMin"
    keep = int(op.attributes["keepdim"])
    found = out.node(op_type, inputs, [out.fresh()], axis=op.attributes["dim"], keepdims=keep)
    out.node("Cast", [found], to=code_of(op.outputs[0].dtype))


@_export("softmax", "log_softmax")
def _softmax(out: Writer, op: Op, inputs: list[str]) -> None:
    out.node("Softmax" if op.kind == "softmax" else "LogSoftmax", inputs, axis=op.attributes["axis"])


@_export("gelu", "geluerf")
def _gelu(out: Writer, op: Op, inputs: list[str]) -> None:
    out.node("Gelu", inputs, approximate="tanh" if op.kind == "gelu" else "none")


@_export("clip")
def _clip(out: Writer, op: Op, inputs: list[str]) -> None:
    kind = op.outputs[0].dtype.as_numpy()
    bounds = [out.constant(np.asarray(op.attributes[name], kind), kind) for name in ("min", "max")]
    out.node("Clip", [*inputs, *bounds])


@_export("round")
def _round(out: Writer, op: Op, inputs: list[str]) -> None:
    if op.attributes["half"] != "even":
        raise NotSupportedError("halves away from zero")
    out.node("Round", inputs)


@_export("fmod")
def _fmod(out: Writer, _op: Op, inputs: list[str]) -> None:
    out.node("Mod", inputs, fmod=1)


@_export("shift_left", "shift_right_logical")
def _shift(out: Writer, op: Op, inputs: list[str]) -> None:
    if op.outputs[0].dtype.as_numpy().kind != "u":
        raise NotSupportedError("of numbers with a sign")
    out.node("BitShift", inputs, direction="LEFT" if op.kind == "shift_left" else "RIGHT")


@_export("cast")
def _cast(out: Writer, op: Op, inputs: list[str]) -> None:
    out.node("Cast", inputs, to=code_of(dtypes.dtype.as_dtype(op.attributes["data_type"])))


# Movement


@_export("reshape", "flatten", "squeeze")
def _reshape(out: Writer, op: Op, inputs: list[str]) -> None:
    out.node("Reshape", [*inputs, out.constant(list(op.outputs[0].shape))], allowzero=1)


@_export("transpose")
def _transpose(out: Writer, op: Op, inputs: list[str]) -> None:
    order = op.attributes["permutation"]
    rank = len(op.outputs[0].shape)
    out.node("Transpose", inputs, perm=list(range(rank))[::-1] if order is None else list(order))


@_export("expand")
def _expand(out: Writer, op: Op, inputs: list[str]) -> None:
    out.node("Expand", [*inputs, out.constant(list(op.outputs[0].shape))])


@_export("concat")
def _concat(out: Writer, op: Op, inputs: list[str]) -> None:
    out.node("Concat", inputs, axis=op.attributes["axis"])


@_export("slice")
def _slice(out: Writer, op: Op, inputs: list[str]) -> None:
    """Bounds that are left out are those of Python."""
    t, attrs = op.inputs[0], op.attributes
    assert t is not None
    axes = list(attrs["axis"] if attrs["axis"] is not None else range(t.rank))
    count = len(axes)
    steps = list(attrs["step"] or [1] * count)
    far = 1 << 62
    starts, stops = ((attrs[name] or [None] * count) for name in ("start", "stop"))
    begins = [(0 if by > 0 else far) if n is None else n for n, by in zip(starts, steps, strict=True)]
    ends = [(far if by > 0 else -far) if n is None else n for n, by in zip(stops, steps, strict=True)]
    out.node("Slice", [*inputs, *(out.constant(each) for each in (begins, ends, axes, steps))])


@_export("pad")
def _pad(out: Writer, op: Op, inputs: list[str]) -> None:
    if any(op.attributes["interior"] or ()):
        raise NotSupportedError("between elements")
    edges = [*op.attributes["low"], *op.attributes["high"]]
    out.node("Pad", [inputs[0], out.constant(edges), inputs[1]])


@_export("gather")
def _gather(out: Writer, op: Op, inputs: list[str]) -> None:
    if op.attributes["zero_OOR"]:
        raise NotSupportedError("zeros for indices out of range")
    out.node("Gather", inputs, axis=op.attributes["axis"])


@_export("gather_general")
def _gather_general(out: Writer, op: Op, inputs: list[str]) -> None:
    """The corner counts along the axes after the batch, and the window is all of the axes after those."""
    batch, (t, indices) = _batch_of(op), op.inputs[:2]
    assert t is not None
    assert indices is not None
    corners = inputs[1]
    if op.attributes["mode"] == "clip":
        # GatherND counts from the end what is below 0, and refuses what is beyond.
        last = np.asarray(t.shape[batch : batch + len(op.attributes["index_map"])]) - 1
        kind = indices.dtype.as_numpy()
        corners = out.node("Max", [corners, out.constant(0, kind)], [out.fresh()])
        corners = out.node("Min", [corners, out.constant(last, kind)], [out.fresh()])
    if indices.dtype != dtypes.int64:
        corners = out.node("Cast", [corners], [out.fresh()], to=code_of(dtypes.int64))
    out.node("GatherND", [inputs[0], corners], batch_dims=batch)


def _batch_of(op: Op) -> int:
    """Axes of the batch.

    Raises:
        NotSupportedError: the windows are others than those of GatherND.
    """
    attrs, (t, indices) = op.attributes, op.inputs[:2]
    assert t is not None
    assert indices is not None
    batch = len(attrs["operand_batching_dims"])
    count = len(attrs["index_map"])
    rest = t.rank - batch - count
    own = tuple(range(batch, batch + count))
    first = indices.rank - 1
    if (
        attrs["operand_batching_dims"] != tuple(range(batch))
        or attrs["indices_batching_dims"] != tuple(range(batch))
        or attrs["index_map"] != own
        or attrs["collapsed_dims"] != own
        or attrs["offset_dims"] != tuple(range(first, first + rest))
        or attrs["slice_sizes"][batch + count :] != t.shape[batch + count :]
        or attrs["mode"] not in ("clip", "check")
    ):
        raise NotSupportedError("other windows than those of GatherND")
    return batch


@_export("cumsum", "cumprod")
def _cumulative(out: Writer, op: Op, inputs: list[str]) -> None:
    if op.kind == "cumprod":
        raise NotSupportedError("")
    out.node(
        "CumSum",
        [*inputs, out.constant(np.asarray(op.attributes["dim"]))],
        reverse=int(op.attributes["reverse"]),
    )


# Neural networks


@_export("matmul")
def _matmul(out: Writer, op: Op, inputs: list[str]) -> None:
    attrs = op.attributes
    if attrs["output_type"] or attrs["transpose_lhs"] or attrs["transpose_rhs"]:
        raise NotSupportedError("with another type, or transposed in place")
    out.node("MatMul", inputs)


def _spatial(op: Op, name: str, each: int) -> list[int]:
    t = op.inputs[0]
    assert t is not None
    found = op.attributes[name]
    count = t.rank - 2
    return [each] * (count * (2 if name == "padding" else 1)) if found is None else list(found)


def _auto_pad(name: str) -> str:
    return {"not_set": "NOTSET", "valid": "VALID", "same_upper": "SAME_UPPER", "same_lower": "SAME_LOWER"}[
        name
    ]


@_export("conv")
def _conv(out: Writer, op: Op, inputs: list[str]) -> None:
    auto = _auto_pad(op.attributes["pad_type"])
    pads = {"pads": _spatial(op, "padding", 0)} if auto == "NOTSET" else {"auto_pad": auto}
    out.node(
        "Conv",
        inputs,
        strides=_spatial(op, "stride", 1),
        dilations=_spatial(op, "dilation", 1),
        group=op.attributes["groups"],
        **pads,
    )


@_export("max_pool", "average_pool")
def _pool(out: Writer, op: Op, inputs: list[str]) -> None:
    attrs = op.attributes
    if any(attrs["out_pads"] or ()) or any(n != 1 for n in attrs["in_dilations"] or ()):
        raise NotSupportedError("with padding of the result or a dilated operand")
    auto = _auto_pad(attrs["auto_pad"])
    pads = {"pads": _spatial(op, "padding", 0)} if auto == "NOTSET" else {"auto_pad": auto}
    out.node(
        "MaxPool" if op.kind == "max_pool" else "AveragePool",
        inputs,
        kernel_shape=list(attrs["kernel_size"]),
        strides=_spatial(op, "stride", 1),
        dilations=_spatial(op, "dilation", 1),
        ceil_mode=int(attrs["ceil_mode"]),
        **pads,
    )


@_export("layer_norm")
def _layer_norm(out: Writer, op: Op, inputs: list[str]) -> None:
    t = op.inputs[0]
    assert t is not None
    if t.rank != 2 or op.attributes["num_groups"] != 1:
        raise NotSupportedError(f"of rank {t.rank}")
    out.node("LayerNormalization", inputs, axis=-1, epsilon=op.attributes["eps"])
