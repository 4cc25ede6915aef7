"""Element-wise ops and logic."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, cast, is_float
from popsr.bridge.onnx._rules import NotSupportedError, add_rule, rule
from popsr.bridge.onnx._types import dtype_of
from popsr.bridge.onnx.ops.elementwise._casts import converted

__all__ = ["leaky_relu"]

_UNARY: dict[str, tuple[int, Callable[[Tensor], Tensor]]] = {
    "Abs": (1, ops.abs),
    "Acos": (7, ops.acos),
    "Acosh": (9, ops.acosh),
    "Asin": (7, ops.asin),
    "Asinh": (9, ops.asinh),
    "Atan": (7, ops.atan),
    "Atanh": (9, ops.atanh),
    "BitwiseNot": (18, ops.bitwise_not),
    "Ceil": (1, ops.ceil),
    "Cos": (7, ops.cos),
    "Cosh": (9, ops.cosh),
    "Erf": (9, ops.erf),
    "Exp": (1, ops.exp),
    "Floor": (1, ops.floor),
    "IsNaN": (9, ops.isnan),
    "Log": (1, ops.log),
    "Neg": (1, ops.negate),
    "Not": (1, ops.logical_not),
    "Reciprocal": (1, ops.reciprocal),
    "Relu": (1, ops.relu),
    "Round": (11, ops.round),
    "Sigmoid": (1, ops.sigmoid),
    "Sign": (9, ops.sign),
    "Sin": (7, ops.sin),
    "Sinh": (9, ops.sinh),
    "Sqrt": (1, ops.sqrt),
    "Tan": (7, ops.tan),
    "Tanh": (1, ops.tanh),
}
"""Op types of one operand that are one op: the first opset, and the op."""

_BINARY: dict[str, tuple[int, Callable[[Tensor, Tensor], Tensor]]] = {
    "Add": (7, ops.add),
    "And": (7, ops.logical_and),
    "BitwiseAnd": (18, ops.bitwise_and),
    "BitwiseOr": (18, ops.bitwise_or),
    "BitwiseXor": (18, ops.bitwise_xor),
    "Div": (7, ops.div),
    "Equal": (7, ops.equal),
    "Greater": (7, ops.greater),
    "GreaterOrEqual": (12, ops.greater_equal),
    "Less": (7, ops.less),
    "LessOrEqual": (12, ops.less_equal),
    "Mul": (7, ops.mul),
    "Or": (7, ops.logical_or),
    "Sub": (7, ops.sub),
    "Xor": (7, ops.logical_xor),
}
"""Op types of two operands that are one op; of opset 6 and before they broadcast by an attribute."""


def _aligned(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Node, Tensor, Tensor], Tensor]:
    """Of opset 6 and before: the second operand begins at an axis of the first."""

    def read(node: Node, a: Tensor, b: Tensor) -> Tensor:
        if node.integer("broadcast", 0) and node.has("axis"):
            axis = node.axis("axis", a.rank)
            b = ops.reshape(b, b.shape + (1,) * (a.rank - axis - b.rank))
        return function(a, b)

    return read


for _name, (_since, _one) in _UNARY.items():
    add_rule(_name, _one, _since, "plain", module=__name__)
for _name, (_since, _two) in _BINARY.items():
    add_rule(_name, _two, _since, "plain", module=__name__)
    if _since == 7:
        add_rule(_name, _aligned(_two), 1, "node", module=__name__)


# Several operands


@rule("Max", kind="plain")
def _max(*operands: Tensor) -> Tensor:
    return operands[0] if len(operands) == 1 else ops.maximum(*operands)


@rule("Min", kind="plain")
def _min(*operands: Tensor) -> Tensor:
    return operands[0] if len(operands) == 1 else ops.minimum(*operands)


@rule("Sum", kind="plain")
def _sum(*operands: Tensor) -> Tensor:
    return functools.reduce(ops.add, operands)


@rule("Mean")
def _mean(node: Node, *operands: Tensor) -> Tensor:
    total = functools.reduce(ops.add, operands)
    return ops.div(total, node.like(len(operands), total))


@rule("Where", since=9, kind="plain")
def _where(which: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return ops.where(which, a, b)


# Arithmetic


@rule("Mod", since=10)
def _mod(node: Node, a: Tensor, b: Tensor) -> Tensor:
    """The remainder: of ``fmod`` with the sign of the dividend, else of the divisor."""
    if is_float(a.dtype) and node.opset < 28 and not node.integer("fmod", 0):
        raise ValueError(f"fmod 0 of {a.dtype.name}, expected fmod=1 for floats before opset 28")
    rest = ops.fmod(a, b)
    if node.integer("fmod", 0) or not _is_signed(a.dtype):
        return rest
    zero = node.like(0, a)
    other = ops.logical_xor(ops.less(rest, zero), ops.less(b, zero))
    return ops.where(ops.logical_and(ops.not_equal(rest, zero), other), ops.add(rest, b), rest)


def _is_signed(dtype: dtypes.dtype) -> bool:
    return dtype.as_numpy().kind != "u"


@rule("Pow", since=7)
def _pow(node: Node, a: Tensor, b: Tensor) -> Tensor:
    """Floats by any exponents; whole numbers by whole ones exactly, by others as 64-bit floats."""
    if is_float(a.dtype):
        return ops.pow(a, cast(b, a.dtype))
    if is_float(b.dtype):
        return cast(ops.pow(cast(a, dtypes.float64), cast(b, dtypes.float64)), a.dtype)
    return _integer_power(node, a, b)


def _integer_power(node: Node, a: Tensor, b: Tensor) -> Tensor:
    """The product of the squares whose bit of the exponent is set: exponents up to 63, then 64-bit bases wrap."""
    power, base = node.like(1, a), a
    for bit in range(6):
        mask = node.like(1 << bit, b)
        is_set = ops.equal(ops.bitwise_and(b, mask), mask)
        power = ops.where(is_set, ops.mul(power, base), power)
        if bit < 5:
            base = ops.mul(base, base)
    return power


@rule("Pow", since=1)
def _pow_1(node: Node, a: Tensor, b: Tensor) -> Tensor:
    return _aligned(ops.pow)(node, a, b)


@rule("BitShift", since=11)
def _bit_shift(node: Node, a: Tensor, amount: Tensor) -> Tensor:
    if node.word("direction", ("LEFT", "RIGHT")) == "LEFT":
        return ops.shift_left(a, amount)
    return (ops.shift_right_arithmetic if _is_signed(a.dtype) else ops.shift_right_logical)(a, amount)


@rule("Clip", since=11)
def _clip(_node: Node, t: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    if low is not None:
        t = ops.maximum(t, low)
    return t if high is None else ops.minimum(t, high)


@rule("Clip", since=1)
def _clip_6(node: Node, t: Tensor) -> Tensor:
    """The bounds that are not given are the ends of float32."""
    edge = float(np.finfo(np.float32).max)
    low, high = node.number("min", -edge), node.number("max", edge)
    return ops.minimum(ops.maximum(t, node.like(low, t)), node.like(high, t))


@rule("IsInf", since=10)
def _is_inf(node: Node, t: Tensor) -> Tensor:
    zero = node.like(0, t)
    found = ops.isinf(t)
    if not node.integer("detect_positive", 1):
        found = ops.logical_and(found, ops.less(t, zero))
    if not node.integer("detect_negative", 1):
        found = ops.logical_and(found, ops.greater(t, zero))
    return found


@rule("Cast")
def _cast(node: Node, t: Tensor) -> Tensor:
    return converted(node, t, dtype_of(node.type_code("to")))


# Activations


def _scaled(node: Node, t: Tensor, factor: float) -> Tensor:
    return t if factor == 1.0 else ops.mul(t, node.like(factor, t))


def _negative(node: Node, t: Tensor, other: Tensor) -> Tensor:
    """Another value where the operand is negative."""
    return ops.where(ops.less(t, node.like(0, t)), other, t)


@rule("LeakyRelu")
def leaky_relu(node: Node, t: Tensor) -> Tensor:
    return _negative(node, t, ops.mul(t, node.like(node.number("alpha", 0.01), t)))


@rule("PRelu", since=7)
def _prelu(node: Node, t: Tensor, slope: Tensor) -> Tensor:
    return _negative(node, t, ops.mul(t, slope))


@rule("PRelu", since=1)
def _prelu_1(node: Node, t: Tensor, slope: Tensor) -> Tensor:
    """One slope, or one of each channel."""
    shape = (slope.nelms, *(1,) * (t.rank - 2)) if slope.nelms > 1 else ()
    return _negative(node, t, ops.mul(t, ops.reshape(slope, shape)))


@rule("Elu")
def _elu(node: Node, t: Tensor) -> Tensor:
    return _negative(node, t, _scaled(node, ops.expm1(t), node.number("alpha", 1.0)))


@rule("Celu", since=12)
def _celu(node: Node, t: Tensor) -> Tensor:
    alpha = node.number("alpha", 1.0)
    return _negative(node, t, _scaled(node, ops.expm1(ops.div(t, node.like(alpha, t))), alpha))


@rule("Selu")
def _selu(node: Node, t: Tensor) -> Tensor:
    newer = node.opset >= 6
    alpha = node.number("alpha", 1.67326319217681884765625 if newer else 1.673200011253357)
    gamma = node.number("gamma", 1.05070102214813232421875 if newer else 1.0506999492645264)
    return _scaled(node, _negative(node, t, _scaled(node, ops.expm1(t), alpha)), gamma)


@rule("ThresholdedRelu")
def _thresholded_relu(node: Node, t: Tensor) -> Tensor:
    return ops.where(ops.greater(t, node.like(node.number("alpha", 1.0), t)), t, node.like(0, t))


@rule("HardSigmoid")
def _hard_sigmoid(node: Node, t: Tensor) -> Tensor:
    line = ops.add(_scaled(node, t, node.number("alpha", 0.2)), node.like(node.number("beta", 0.5), t))
    return ops.minimum(ops.maximum(line, node.like(0, t)), node.like(1, t))


@rule("HardSwish", since=14)
def _hard_swish(node: Node, t: Tensor) -> Tensor:
    line = ops.add(_scaled(node, t, 1 / 6), node.like(0.5, t))
    return ops.mul(t, ops.minimum(ops.maximum(line, node.like(0, t)), node.like(1, t)))


@rule("Softplus", kind="node")
def _softplus(node: Node, t: Tensor) -> Tensor:
    """max(t, 0) + log1p(exp(-|t|)), which does not overflow."""
    rest = ops.log1p(ops.exp(ops.negate(ops.abs(t))))
    return ops.add(ops.maximum(t, node.like(0, t)), rest)


@rule("Gelu", since=20)
def _gelu(node: Node, t: Tensor) -> Tensor:
    return ops.gelu(t) if node.word("approximate", ("none", "tanh"), "none") == "tanh" else ops.geluerf(t)


@rule("Swish", since=24)
def _swish(node: Node, t: Tensor) -> Tensor:
    alpha = node.number("alpha", 1.0)
    return ops.swish(t) if alpha == 1.0 else ops.mul(t, ops.sigmoid(_scaled(node, t, alpha)))


@rule("Shrink", since=9)
def _shrink(node: Node, t: Tensor) -> Tensor:
    """A negative ``lambd`` leaves numbers that are beyond both edges: they are below, as in other readers."""
    edge, bias = node.number("lambd", 0.5), node.number("bias", 0.0)
    low, high = -edge, edge
    if not is_float(t.dtype):
        ends = np.iinfo(t.dtype.as_numpy())
        low, high = max(math.ceil(low), ends.min), min(math.floor(high), ends.max)
        if low > ends.max or high < ends.min or not bias.is_integer() or not ends.min <= bias <= ends.max:
            raise NotSupportedError(f"lambd {edge} and bias {bias} of {t.dtype.name}")
    shift = node.like(bias, t)
    above = ops.where(ops.greater(t, node.like(high, t)), ops.sub(t, shift), node.like(0, t))
    return ops.where(ops.less(t, node.like(low, t)), ops.add(t, shift), above)
