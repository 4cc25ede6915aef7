"""Quantised ops that onnxruntime's quantiser writes, as whole ops or fused ones."""

from __future__ import annotations

from collections.abc import Callable

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, Value, cast
from popsr.bridge.onnx._rules import NotSupportedError
from popsr.bridge.onnx._tensors import moved, reshaped
from popsr.bridge.onnx.ops.elementwise._elementwise import leaky_relu
from popsr.bridge.onnx.ops.microsoft._domain import microsoft
from popsr.bridge.onnx.ops.neural import _convolutions, _quantise
from popsr.bridge.onnx.ops.neural._quantise import product, requantised
from popsr.bridge.onnx.ops.neural._recurrent import Layer, Product, lstm
from popsr.bridge.onnx.ops.shape._reduce import of_rows

__all__ = ["matmul_to_float"]

microsoft("QuantizeLinear")(_quantise.quantize)
microsoft("DequantizeLinear")(_quantise.dequantize)


def _wide(t: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """Quantised numbers as float32."""
    return ops.dequantize_linear(t, reshaped(scale, ()), None if zero is None else reshaped(zero, ()))


def _back(t: Tensor, scale: Tensor, zero: Tensor | None, kind: dtypes.dtype) -> Tensor:
    """Floats as quantised numbers."""
    point = None if zero is None else reshaped(zero, ())
    return ops.quantize_linear(t, reshaped(scale, ()), point, kind)


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def of(_node: Node, *operands: Tensor | None) -> Tensor:
        a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = (*operands, None)[:8]
        made = function(_wide(_given(a), _given(a_scale), a_zero), _wide(_given(b), _given(b_scale), b_zero))
        return _back(made, _given(scale), zero, _given(a).dtype)

    return of


def _given(t: Tensor | None) -> Tensor:
    if t is None:
        raise NotSupportedError("without an operand")
    return t


microsoft("QLinearAdd")(_binary(ops.add))
microsoft("QLinearMul")(_binary(ops.mul))


def _unary(function: Callable[[Node, Tensor], Tensor]) -> Callable[..., Tensor]:
    def of(
        node: Node, t: Tensor, scale: Tensor, zero: Tensor | None, to: Tensor, to_zero: Tensor | None = None
    ) -> Tensor:
        return _back(function(node, _wide(t, scale, zero)), to, to_zero, t.dtype)

    return of


def _softmax(node: Node, t: Tensor) -> Tensor:
    """Along an axis; before opset 13 of ONNX, over all axes from it on."""
    if node.integer("opset", 13) >= 13:
        return ops.softmax(t, node.integer("axis", -1))
    return of_rows(node, t, ops.softmax, -1)


def _channels_first(function: Callable[[Node, Tensor], Tensor]) -> Callable[[Node, Tensor], Tensor]:
    """A function of images whose channels may be last."""

    def of(node: Node, t: Tensor) -> Tensor:
        if not node.integer("channels_last", 0):
            return function(node, t)
        made = function(node, moved(t, (0, t.rank - 1, *range(1, t.rank - 1))))
        return moved(made, (0, *range(2, t.rank), 1))

    return of


microsoft("QLinearSigmoid")(_unary(lambda _, t: ops.sigmoid(t)))
microsoft("QLinearLeakyRelu")(_unary(leaky_relu))
microsoft("QLinearSoftmax")(_unary(_softmax))


def _average_pool(node: Node, t: Tensor) -> Tensor:
    if node.integer("ceil_mode", 0) and node.integer("count_include_pad", 0):
        raise NotSupportedError("ceil_mode with count_include_pad, which counts elements beyond the end too")
    made: Tensor = _convolutions.average_pool(node, t)
    return made


microsoft("QLinearAveragePool")(_unary(_channels_first(_average_pool)))
microsoft("QLinearGlobalAveragePool")(
    _unary(_channels_first(lambda _, t: ops.mean(t, list(range(2, t.rank)), True)))
)


@microsoft("QLinearConcat")
def _concat(node: Node, scale: Tensor, zero: Tensor, *operands: Tensor) -> Tensor:
    parts = [_wide(*operands[i : i + 3]) for i in range(0, len(operands), 3)]
    return _back(ops.concat(parts, node.integer("axis")), scale, zero, zero.dtype)


@microsoft("QLinearWhere")
def _where(_node: Node, which: Tensor, *operands: Tensor) -> Tensor:
    made = ops.where(which, _wide(*operands[:3]), _wide(*operands[3:6]))
    return _back(made, operands[6], operands[7], operands[0].dtype)


# Products


@microsoft("QGemm")
def _gemm(node: Node, *operands: Tensor | None) -> Tensor:
    """Floats without a scale of the result; the bias is whole numbers in the scale of the products."""
    a, a_scale, a_zero, b, b_scale, b_zero, bias, scale, zero = (*operands, None, None, None)[:9]
    a, b, a_scale, b_scale = _given(a), _given(b), _given(a_scale), _given(b_scale)
    left = moved(a, (1, 0)) if node.integer("transA", 0) else a
    right = moved(b, (1, 0)) if node.integer("transB", 0) else b
    sums = cast(product(left, right, a_zero, b_zero), dtypes.float64)
    if bias is not None:
        sums = ops.add(sums, cast(bias, sums.dtype))
    alpha = node.number("alpha", 1.0)
    if alpha != 1.0:
        a_scale = ops.mul(cast(a_scale, dtypes.float64), node.constant(alpha, dtypes.float64))
    if scale is None:
        return cast(ops.mul(sums, _product(a_scale, b_scale)), dtypes.float32)
    return requantised(node, sums, (a_scale, b_scale), scale, _given(zero))


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Two scales, or one and those of columns, as one in float64."""
    one, other = (reshaped(each, () if each.nelms == 1 else (each.nelms,)) for each in (a, b))
    return ops.mul(cast(one, dtypes.float64), cast(other, dtypes.float64))


def matmul_to_float(
    _node: Node,
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    a_zero: Tensor | None = None,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    sums = cast(product(a, b, a_zero, b_zero), dtypes.float64)
    made = cast(ops.mul(sums, _product(a_scale, b_scale)), dtypes.float32)
    return made if bias is None else ops.add(made, bias)


microsoft("MatMulIntegerToFloat")(matmul_to_float)


@microsoft("DynamicQuantizeLSTM", kind="raw")
def _dynamic_lstm(node: Node, x: Value, w: Value, r: Value, *rest: Value) -> list[Tensor]:
    """Rows and states are quantised before each product; weights are ``[directions, inputs, gates]``."""
    given = [*rest, *(None,) * 9][:9]
    operands = [None if each is None else node.tensor(each) for each in (x, w, r, *given[:5])]
    t, weights, states, bias, lengths, *starts, peep = operands
    names = ("w", "w_zero", "r", "r_zero")
    known = {name: node.known(each, "scales") for name, each in zip(names, given[5:], strict=True)}

    def of(direction: int) -> Product:
        def rows_by(name: str, rows: Tensor, matrix: Tensor) -> Tensor:
            scale, zero = (known[key][direction] for key in (name, f"{name}_zero"))
            whole, own, point = _quantise.dynamic_quantize(node, rows)
            factor = node.constant(scale, dtypes.float32)
            made: Tensor = matmul_to_float(
                node, whole, matrix, own, factor, point, node.constant(zero, matrix.dtype)
            )
            return made

        return rows_by

    turned = [moved(_given(each), (0, 2, 1)) for each in (weights, states)]
    products = [of(direction) for direction in range(turned[0].shape[0])]
    layer = Layer(_given(t), turned[0], turned[1], bias, lengths, tuple(starts), peep, products)
    return lstm(node, layer)


@microsoft("DynamicQuantizeMatMul")
def _dynamic_matmul(
    node: Node,
    a: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    whole, scale, point = _quantise.dynamic_quantize(node, a)
    return matmul_to_float(node, whole, b, scale, b_scale, point, b_zero, bias)
