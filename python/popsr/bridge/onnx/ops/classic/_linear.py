"""Linear models and support vector machines of the domain ``ai.onnx.ml``."""

from __future__ import annotations

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, cast
from popsr.bridge.onnx._rules import NotSupportedError
from popsr.bridge.onnx._tensors import reshaped
from popsr.bridge.onnx._types import Array
from popsr.bridge.onnx.ops.classic._scores import (
    classic,
    labels_of,
    named,
    of_two,
    transformed,
    transformed_targets,
)

__all__: list[str] = []


def _linear(node: Node, t: Tensor, rows: int) -> Tensor:
    weights = np.asarray(node.floats("coefficients"), np.float32).reshape(rows, -1)
    made = ops.matmul(cast(t, dtypes.float32), node.constant(weights.T, dtypes.float32))
    shift = np.asarray(node.floats("intercepts", ()), np.float32)
    return ops.add(made, node.like(shift, made)) if shift.size else made


@classic("LinearRegressor")
def _linear_regressor(node: Node, t: Tensor) -> Tensor:
    made = _linear(node, t, node.integer("targets", 1))
    return transformed_targets(node, made, node.text("post_transform", "NONE"))


_TWO = 2


@classic("LinearClassifier")
def _linear_classifier(node: Node, t: Tensor) -> list[Tensor]:
    """The class of the greatest score; one score is that of the second of two classes."""
    labels, how = labels_of(node, "classlabels_ints"), node.text("post_transform", "NONE")
    count = len(node.floats("coefficients")) // max(t.shape[-1], 1)
    scores = _linear(node, t, count)
    if count == 1 and len(labels) == _TWO:
        second = cast(reshaped(ops.greater(scores, node.like(0, scores)), (scores.nelms,)), dtypes.int32)
        return [named(node, labels, second), of_two(node, scores, True, how)]
    if count != len(labels):
        raise NotSupportedError(f"{count} scores of {len(labels)} classes")
    return [named(node, labels, ops.argmax(scores, 1, False)), transformed(node, scores, how)]


# Support vector machines


def _kernel(node: Node, t: Tensor, others: Array) -> Tensor:
    """The kernel of rows and support vectors, ``[rows, vectors]``."""
    kind = node.text("kernel_type", "LINEAR")
    gamma, shift, degree = node.floats("kernel_params", (0.0, 0.0, 0.0))
    vectors = node.constant(others.T, dtypes.float32)
    product = ops.matmul(t, vectors)
    if kind == "LINEAR":
        return product
    if kind == "RBF":
        squares = ops.sum(ops.square(t), [1], True)
        own = node.constant((others.astype(np.float64) ** 2).sum(1), dtypes.float32)
        apart = ops.sub(ops.add(squares, own), ops.mul(product, node.like(2, product)))
        return ops.exp(ops.mul(apart, node.like(-gamma, apart)))
    line = ops.add(ops.mul(product, node.like(gamma, product)), node.like(shift, product))
    if kind == "SIGMOID":
        return ops.tanh(line)
    if kind == "POLY":
        return ops.pow(line, node.like(degree, line))
    raise NotSupportedError(f"kernel_type {kind}")


@classic("SVMRegressor")
def _svm_regressor(node: Node, t: Tensor) -> Tensor:
    """Sum of the kernel with support vectors; of one class, 1 or -1."""
    t, count = cast(t, dtypes.float32), node.integer("n_supports", 0)
    factors = np.asarray(node.floats("coefficients"), np.float32)
    if count:
        vectors = np.asarray(node.floats("support_vectors"), np.float32).reshape(count, -1)
        made = ops.matmul(_kernel(node, t, vectors), node.constant(factors.reshape(-1, 1), dtypes.float32))
    else:
        made = _kernel(node, t, factors.reshape(1, -1))
    made = ops.add(made, node.like(node.floats("rho")[0], made))
    if node.integer("one_class", 0):
        one = node.like(1, made)
        return ops.where(ops.greater(made, node.like(0, made)), one, ops.negate(one))
    if node.text("post_transform", "NONE") != "NONE":
        raise NotSupportedError(f"post_transform {node.text('post_transform')}")
    return made
