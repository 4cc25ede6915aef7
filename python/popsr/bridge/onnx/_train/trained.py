"""Weights of a model, which a training step changes, told from constants by the operands that read them.

A file of ONNX keeps learned numbers and constants alike. An operand that an op defines as its weight, as that of
``Conv``, is one. An operand of ``Add`` or ``Mul`` is one if it has several elements and is not a mask; what only
exponents, bounds, epsilons or scales of quantised numbers read is none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from popsr.bridge.onnx._places import MAX_DEPTH, domain_of, function_key, graphs_of
from popsr.bridge.onnx._rules import NotSupportedError
from popsr.bridge.onnx._types import Array, array_of

__all__ = [
    "CARRIES",
    "ELEMENTWISE",
    "WEIGHTS",
    "constants_of",
    "is_floating",
    "is_mask",
    "is_uniform",
    "trained_names",
]

WEIGHTS: dict[tuple[str, str], tuple[int, ...]] = {
    ("", "BatchNormalization"): (1, 2),
    ("", "Conv"): (1, 2),
    ("", "ConvTranspose"): (1, 2),
    ("", "DeformConv"): (1, 3),
    ("", "Einsum"): (0, 1, 2, 3),
    ("", "GRU"): (1, 2, 3),
    ("", "Gather"): (0,),
    ("", "GatherElements"): (0,),
    ("", "GatherND"): (0,),
    ("", "Gemm"): (0, 1, 2),
    ("", "GroupNormalization"): (1, 2),
    ("", "InstanceNormalization"): (1, 2),
    ("", "LSTM"): (1, 2, 3, 7),
    ("", "LayerNormalization"): (1, 2),
    ("", "MatMul"): (0, 1),
    ("", "PRelu"): (1,),
    ("", "RMSNormalization"): (1,),
    ("", "RNN"): (1, 2, 3),
    ("ai.graphcore", "BatchNormalization"): (1, 2),
    ("ai.graphcore", "GroupNormalization"): (1, 2),
    ("ai.graphcore", "GroupedGather"): (0,),
    ("ai.graphcore", "LSTM"): (1, 2),
    ("", "SimplifiedLayerNormalization"): (1,),
    ("com.microsoft", "Attention"): (1, 2),
    ("com.microsoft", "BiasGelu"): (1,),
    ("com.microsoft", "DynamicQuantizeMatMul"): (4,),
    ("com.microsoft", "EmbedLayerNormalization"): (2, 3, 4, 5, 6),
    ("com.microsoft", "FastGelu"): (1,),
    ("com.microsoft", "FusedConv"): (1, 2),
    ("com.microsoft", "FusedGemm"): (0, 1, 2),
    ("com.microsoft", "FusedMatMul"): (0, 1),
    ("com.microsoft", "MatMulIntegerToFloat"): (6,),
    ("com.microsoft", "MatMulNBits"): (5,),
    ("com.microsoft", "MultiHeadAttention"): (3,),
    ("com.microsoft", "QAttention"): (2,),
    ("com.microsoft", "SkipLayerNormalization"): (2, 3, 4),
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): (2, 3),
}
"""Operands that are weights, by domain and op type."""

ELEMENTWISE = frozenset({"Add", "Mul", "Sum", "Concat"})
"""Op types that join a weight, as a bias or a learned token, or a constant to activations: its elements tell which."""

CARRIES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Gather", "GatherElements", "GatherND"), (0,)),
    **dict.fromkeys(("Cast", "CastLike", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Split"), (0,)),
    **dict.fromkeys(("Squeeze", "Tile", "Transpose", "Unsqueeze", "Pad"), (0,)),
    **dict.fromkeys(("Exp", "Neg", "Sigmoid", "Softmax", "Softplus", "Tanh"), (0,)),
    **dict.fromkeys(("Div", "Sub"), (0,)),
}
"""Operands of constants that a result is made of, by op type: a transposed or normalised weight is still one."""

Made = frozenset[str] | str
"""A constant: the floats that it is made of. Of activations, what they are."""

_CONSTANT: Made = frozenset()
_DATA, _SCALE, _WHOLE = "data", "scale of data", "whole numbers that stand for data"
_PRODUCT = "product of data and a weight"
_PRODUCTS = (
    *(("", "Einsum"), ("", "MatMul")),
    *(("com.microsoft", "FusedMatMul"), ("com.microsoft", "MatMulNBits")),
)
"""Op types of layers whose bias is added by another node."""

_KINDS = {
    "ConvInteger": (_WHOLE,),
    "DynamicQuantizeLinear": (_DATA, _SCALE, _DATA),
    "MatMulInteger": (_WHOLE,),
    "Shape": (_CONSTANT,),
    "Size": (_CONSTANT,),
}
"""Results of op types that are not plain activations."""


def trained_names(
    graph: Any,
    functions: Mapping[Any, Any],
    arrays: Mapping[str, Array],
    constants: Collection[str],
    most: int,
) -> set[str]:
    """Names of the weights among floats of a graph: initializers, and results of ``Constant`` nodes.

    Args:
        graph: the graph of the model.
        functions: functions of the model by domain, name and overload.
        arrays: the floats by name.
        constants: names of all initializers.
        most: nodes that are looked at, those of functions counted each time.
    Raises:
        RecursionError: there are more.
    """
    found = _Search(functions, arrays, most)
    scope: dict[str, Made] = {**dict.fromkeys(constants, _CONSTANT), "": _CONSTANT}
    scope.update((name, frozenset((name,))) for name in arrays)
    found.walk(graph.node, scope, 0)
    return found.trained


class _Search:
    """A walk over nodes, with the floats that each constant is made of."""

    def __init__(self, functions: Mapping[Any, Any], arrays: Mapping[str, Array], most: int) -> None:
        self._functions, self._arrays = functions, arrays
        self._learned: dict[str, bool] = {}
        self._left = most
        self.trained: set[str] = set()

    def walk(self, nodes: Sequence[Any], scope: dict[str, Made], depth: int) -> None:
        for node in nodes:
            self._left -= 1
            if self._left < 0:
                raise RecursionError
            if depth > MAX_DEPTH:  # the reader refuses such a model
                return
            if node.op_type == "Constant":
                for name in node.output:
                    scope.setdefault(name, _CONSTANT)
                continue
            operands = [scope.get(name, _DATA) for name in node.input]
            results = self._results(node, operands, scope, depth)
            scope.update(zip(node.output, (*results, *(_DATA for _ in node.output)), strict=False))
            scope[""] = _CONSTANT

    def _results(self, node: Any, operands: list[Made], scope: dict[str, Made], depth: int) -> Sequence[Made]:
        key = (domain_of(node), node.op_type)
        function = self._functions.get(function_key(node, node.op_type))
        for graph in graphs_of(node):
            self.walk(graph.node, {**scope, **_bound(node, graph, operands)}, depth + 1)
        if function is not None:
            inner: dict[str, Made] = {"": _CONSTANT, **dict(zip(function.input, operands, strict=False))}
            self.walk(function.node, inner, depth + 1)
            return [inner.get(name, _DATA) for name in function.output]
        fixed = [each for each in operands if isinstance(each, frozenset)]
        if key[1] in _KINDS:
            return _KINDS[key[1]]
        if len(fixed) == len(operands) > 0 and not key[0] and key[1] in (*CARRIES, *ELEMENTWISE):
            return [self._carried(key[1], fixed)] * len(node.output)
        for position in WEIGHTS.get(key, ()):
            if position < len(operands) and isinstance(operands[position], frozenset):
                self.trained |= fixed_of(operands[position])
        if fixed and key in _PRODUCTS:
            return (_PRODUCT,)
        if not key[0] and key[1] in ELEMENTWISE:
            return (self._joined(key[1], operands),)
        if len(fixed) == len(operands) > 0:
            return [_CONSTANT] * len(node.output)
        kind = operands[0] if operands and key[1] in ("Cast", "Reshape", "Identity") else _DATA
        return [_DATA if isinstance(kind, frozenset) else kind] * len(node.output)

    def _carried(self, op_type: str, operands: Sequence[frozenset[str]]) -> Made:
        """A constant that is made of others."""
        if op_type in ELEMENTWISE:
            return frozenset(name for each in operands for name in each if self._is_learned(name))
        return frozenset().union(*(operands[i] for i in CARRIES[op_type] if i < len(operands)))

    def _joined(self, op_type: str, operands: Sequence[Made]) -> Made:
        """Activations with constants, which are weights if their elements look learned."""
        data = [each for each in operands if not isinstance(each, frozenset)]
        if op_type == "Mul" and _SCALE in data and _WHOLE not in data:
            return _SCALE
        if op_type == "Mul" and (_SCALE in data or _WHOLE in data):
            return _DATA
        least = 3 if op_type == "Concat" else 1  # rows of one number are padding
        is_bias = op_type == "Add" and _PRODUCT in data
        for name in frozenset().union(*map(fixed_of, operands)):
            one = is_bias and self._arrays[name].shape == (1,)  # of a layer with one feature
            if one or (self._is_learned(name) and self._numbers(name) >= least):
                self.trained.add(name)
        return _DATA

    def _is_learned(self, name: str) -> bool:
        """True for several elements that are not a mask."""
        found = self._learned.get(name)
        if found is None:
            array = self._arrays[name]
            found = self._learned[name] = array.size > 1 and not is_mask(array)
        return found

    def _numbers(self, name: str) -> int:
        """Different elements among the first."""
        return len(np.unique(self._arrays[name].reshape(-1)[:64].astype(np.float64)))


def fixed_of(made: Made) -> frozenset[str]:
    """The floats that a value is made of; none of activations."""
    return made if isinstance(made, frozenset) else frozenset()


def is_mask(array: Array) -> bool:
    """True for elements without a bound, and for several rows and columns of two numbers."""
    flat = array.astype(np.float64).reshape(-1)
    if not (np.abs(flat) < _MASKED).all():  # NaN too
        return True
    if sum(extent > 1 for extent in array.shape) < 2:
        return False
    return bool(np.unique(flat).size == _TWO)


_TWO = 2
_MASKED = 1e4
"""Least magnitude of the numbers that hide scores of attention."""


def _bound(node: Any, graph: Any, operands: list[Made]) -> dict[str, Made]:
    """Names of a graph of a node that stand for other values than around it, and inputs that operands are passed to."""
    own: dict[str, Made] = {
        **{each.name: _DATA for each in graph.input},
        **{each.name: _CONSTANT for each in graph.initializer},
    }
    first = 2 if node.op_type == "Loop" else 0
    passed = zip(graph.input[first:], operands[first:], strict=False)
    return {**own, **{each.name: made for each, made in passed}}


def constants_of(onnx: Any, graph: Any) -> dict[str, Array]:
    """Tensors of ``Constant`` nodes, by the name of the result; those that cannot be read are left to their node."""
    found = {}
    for node in graph.node:
        if node.op_type == "Constant" and domain_of(node) == "" and node.output:
            for each in node.attribute:
                if each.name == "value" and each.t.data_location != onnx.TensorProto.EXTERNAL:
                    with contextlib.suppress(NotSupportedError, ValueError, TypeError, OverflowError):
                        found[node.output[0]] = array_of(each.t)
    return found


def is_floating(array: Array) -> bool:
    """True for floats, those of ``ml_dtypes`` too."""
    return array.dtype.kind not in "iub"


def is_uniform(array: Array) -> bool:
    """True for one number repeated: of a ``Constant`` node it changes nothing, or is a parameter of an exporter."""
    flat = array.reshape(-1)
    return not np.any(flat[1:] - flat[:-1])
