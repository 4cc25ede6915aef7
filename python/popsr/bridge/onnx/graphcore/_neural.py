"""Rules of ai.graphcore: losses, norms, dropout, recurrent layers, convolutions and splines."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, cast
from popsr.bridge.onnx._rules import NotSupportedError, rule
from popsr.bridge.onnx._types import dtype_of
from popsr.bridge.onnx.graphcore._basic import DOMAIN, reuse

__all__: list[str] = []

_graphcore = functools.partial(rule, domain=DOMAIN)


# Losses


_WORDS = {"Mean": "mean", "Sum": "sum", "NoReduction": "none"}
_REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"mean": ops.mean, "sum": ops.sum, "none": lambda t: t}


def _reduction(node: Node) -> Any:
    """The word of popsr for a node's reduction."""
    return _WORDS[node.word("reduction", _WORDS, "Mean")]


def _reduced(node: Node, t: Tensor) -> Tensor:
    return _REDUCTIONS[_reduction(node)](t)


@_graphcore("L1")
def _l1(node: Node, t: Tensor) -> Tensor:
    size = ops.mul(ops.abs(t), node.like(node.number("lambda"), t))
    return _reduced(node, size)


@_graphcore("IdentityLoss")
def _identity_loss(node: Node, t: Tensor) -> Tensor:
    made = _reduced(node, t)
    return ops.identity(t) if made is t else made


@_graphcore("Nll")
def _nll(node: Node, probs: Tensor, labels: Tensor) -> Tensor:
    ignored = node.integer("ignoreIndex") if node.has("ignoreIndex") else None
    return ops.nll_loss(
        probs, labels, ignored, _reduction(node), bool(node.integer("inputIsLogProbability", 0))
    )


_LEAST = -1e30  # stands for the logarithm of 0: its differences are numbers


@_graphcore("Ctc")
def _ctc(node: Node, logs: Tensor, targets: Tensor, lengths: Tensor, target_lengths: Tensor) -> Tensor:
    """Connectionist temporal classification, Graves et al. 2006: the forward recursion on logarithms.

    Labels are put between blanks; alpha[s] is the probability of all paths that end at label s.
    """
    kinds = {"UNDEFINED": logs.dtype, "FLOAT": dtypes.float32, "FLOAT16": dtypes.float16}
    kind = kinds[node.word("outDataType", kinds, "UNDEFINED")]
    logs = cast(logs, dtypes.float32)
    steps, batch, classes = logs.shape
    labels, blank = _with_blanks(node, cast(targets, dtypes.int32)), node.integer("blank", 0)
    width = labels.shape[1]
    first = node.constant(np.arange(batch).reshape(-1, 1) * classes, dtypes.int32)
    places = ops.reshape(ops.add(labels, first), (batch * width,))
    emitted = ops.reshape(
        ops.gather(ops.reshape(logs, (steps, batch * classes)), places, 1), (steps, batch, width)
    )
    before = _shifted(node, labels, 2, -1)
    may_skip = ops.logical_and(ops.not_equal(labels, node.like(blank, labels)), ops.not_equal(labels, before))
    start = np.where(np.arange(width) < 2, 0.0, _LEAST).reshape(1, width)
    alpha = ops.maximum(ops.add(emitted[0], node.like(start, logs)), node.like(_LEAST, logs))
    least, length = node.like(_LEAST, logs), ops.reshape(cast(lengths, dtypes.int32), (batch, 1))
    for t in range(1, steps):
        skipped = ops.where(may_skip, _shifted(node, alpha, 2, _LEAST), least)
        total = _log_sum(alpha, _shifted(node, alpha, 1, _LEAST), skipped)
        alpha = ops.where(
            ops.less(node.like(t, length), length), ops.maximum(ops.add(total, emitted[t]), least), alpha
        )
    ends = ops.reshape(cast(target_lengths, dtypes.int32), (batch, 1))
    place = node.constant(np.arange(width).reshape(1, width), dtypes.int32)
    twice = ops.add(ends, ends)
    last = ops.logical_or(ops.equal(place, twice), ops.equal(place, ops.sub(twice, node.like(1, twice))))
    loss = ops.negate(ops.logsumexp(ops.where(last, alpha, least), 1))
    loss = ops.where(
        ops.greater(loss, node.like(1e29, loss)),
        node.like(0.0 if node.integer("zeroInfinity", 0) else math.inf, loss),
        loss,
    )
    if _reduction(node) == "mean":
        loss = ops.div(loss, ops.maximum(cast(ops.reshape(ends, (batch,)), loss.dtype), node.like(1, loss)))
    return cast(_reduced(node, loss), kind)


def _with_blanks(node: Node, targets: Tensor) -> Tensor:
    batch, count = targets.shape
    blank = node.constant(np.full((batch, count, 1), node.integer("blank", 0)), dtypes.int32)
    pairs = ops.concat([blank, ops.reshape(targets, (batch, count, 1))], 2)
    return ops.concat(
        [
            ops.reshape(pairs, (batch, 2 * count)),
            ops.slice(ops.reshape(blank, (batch, count)), [0], [1], axis=[1]),
        ],
        1,
    )


def _shifted(node: Node, t: Tensor, by: int, filling: float) -> Tensor:
    batch, width = t.shape
    head = node.constant(np.full((batch, min(by, width)), filling), t.dtype)
    return ops.concat([head, ops.slice(t, [0], [width - by], axis=[1])], 1) if width > by else head


def _log_sum(*terms: Tensor) -> Tensor:
    greatest = ops.maximum(*terms)
    total = ops.exp(ops.sub(terms[0], greatest))
    for each in terms[1:]:
        total = ops.add(total, ops.exp(ops.sub(each, greatest)))
    return ops.add(greatest, ops.log(total))


# Norms and dropout


@_graphcore("BatchNormalization")
def _batch_norm(
    node: Node, t: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor
) -> list[Tensor]:
    """With one result that of running moments; else the batch's, with new running moments and the batch's own."""
    if node.results() == 1:
        return [reuse("BatchNormalization", 9, node, t, scale, bias, mean, var)[0]]
    if node.integer("spatial", 1):
        axes, shape = [0, *range(2, t.rank)], (1, mean.nelms, *(1,) * (t.rank - 2))
    else:
        axes, shape = [0], (1, *mean.shape)
    scale, bias = (ops.reshape(cast(each, t.dtype), shape) for each in (scale, bias))
    epsilon, share = node.number("epsilon", 1e-5), node.number("momentum", 0.9)
    own_mean, own_var = ops.mean(t, axes, True), ops.var(t, axes, True, 0.0)
    factor = ops.mul(ops.rsqrt(ops.add(own_var, node.like(epsilon, own_var))), scale)
    made = ops.add(ops.mul(ops.sub(t, own_mean), factor), bias)
    own = [ops.reshape(cast(each, mean.dtype), mean.shape) for each in (own_mean, own_var)]
    new = [
        ops.add(ops.mul(old, node.like(share, old)), ops.mul(each, node.like(1 - share, each)))
        for old, each in zip((mean, var), own, strict=True)
    ]
    return [made, *new, *own][: node.results()]


@_graphcore("GroupNormalization")
def _group_norm(node: Node, t: Tensor, scale: Tensor, bias: Tensor) -> list[Tensor]:
    """The result, and mean and 1 / standard deviation of each group."""
    groups, epsilon = node.integer("num_groups"), node.number("epsilon", 1e-5)
    made = ops.group_norm(t, scale, bias, groups, epsilon)
    rows = ops.reshape(t, (t.shape[0] * groups, t.nelms // (t.shape[0] * groups)))
    var = ops.var(rows, 1, False, 0.0)
    return [made, ops.mean(rows, 1), ops.rsqrt(ops.add(var, node.like(epsilon, var)))]


def _own_seed(node: Node, seed: Tensor) -> Tensor:
    return ops.create_random_seed(seed, node.constant(node.integer("number"), dtypes.uint32))


@_graphcore("Dropout")
def _dropout(node: Node, t: Tensor, seed: Tensor) -> list[Tensor]:
    """ONNX's dropout, in a training session."""
    kept = ops.dropout(ops.expand(node.like(1, t), t.shape), _own_seed(node, seed), node.number("ratio", 0.5))
    mask = ops.not_equal(kept, node.like(0, kept))
    return [ops.mul(t, kept), mask if node.opset >= 10 or node.wants(1) else t]


@_graphcore("ShapedDropout")
def _shaped_dropout(node: Node, t: Tensor, seed: Tensor | None = None) -> Tensor:
    shape = node.ints("shape")
    if len(shape) != t.rank or any(n not in (1, extent) for n, extent in zip(shape, t.shape, strict=True)):
        raise ValueError(f"shape {list(shape)} for {list(t.shape)}, expected its extents or 1")
    if seed is None:
        return ops.identity(t)
    return ops.shaped_dropout(t, _own_seed(node, seed), node.ints("shape"), node.number("ratio", 0.5))


@_graphcore("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
def _random(node: Node, *operands: Tensor) -> Tensor:
    """ONNX's random numbers, from the seed of a session."""
    *like, seed = operands
    kind = dtype_of(node.integer("dtype", 1)) if node.has("dtype") or not like else like[0].dtype
    shape = like[0].shape if like else node.ints("shape")
    if node.proto.op_type.startswith("RandomNormal"):
        return ops.random_normal(
            _own_seed(node, seed), shape, node.number("mean", 0.0), node.number("scale", 1.0), kind
        )
    return ops.random_uniform(
        _own_seed(node, seed), shape, node.number("low", 0.0), node.number("high", 1.0), kind
    )


# Layers


@_graphcore("LSTM")
def _lstm(
    node: Node, t: Tensor, weights: Tensor, bias: Tensor | None = None, initial: Tensor | None = None
) -> list[Tensor]:
    """Weights ``[4, features + hidden, hidden]`` of the gates forget, input, candidate and output."""
    steps, batch, features = t.shape
    hidden = weights.shape[2]
    if weights.shape != (4, features + hidden, hidden):
        raise NotSupportedError(f"with weights {list(weights.shape)} for {features} features")
    table = ops.reshape(ops.transpose(weights, (1, 0, 2)), (features + hidden, 4 * hidden))
    own, recurrent = ops.split(table, [features, hidden], 0)
    inputs = ops.matmul(t, own)
    if bias is not None:
        inputs = ops.add(inputs, ops.reshape(bias, (4 * hidden,)))
    zeros = node.constant(np.zeros((2, batch, hidden)), t.dtype)
    state = zeros if initial is None else initial
    out, cell, outs = state[0], state[1], []
    for step in range(steps):
        gates = ops.split(ops.add(inputs[step], ops.matmul(out, recurrent)), 4, 1)
        forget, take, give = (ops.sigmoid(gates[i]) for i in (0, 1, 3))
        cell = ops.add(ops.mul(forget, cell), ops.mul(take, ops.tanh(gates[2])))
        out = ops.mul(give, ops.tanh(cell))
        outs.append(ops.reshape(out, (1, batch, hidden)))
    return [ops.concat(outs, 0) if node.integer("outputFullSequence", 1) else out, cell]


@_graphcore("MultiConv")
def _multi_conv(node: Node, *operands: Tensor) -> list[Tensor]:
    if any(node.has(name) for name in ("inDilations", "outPads")):
        raise NotSupportedError("with inDilations or outPads")
    numbers = {
        name: [_ints(text) for text in node.texts(name, ())] for name in ("strides", "pads", "dilations")
    }
    found, rest = [], list(operands)
    for i, count in enumerate(node.ints("convInputs")):
        (t, weight, *bias), rest = rest[:count], rest[count:]
        stride, pads, gaps = (
            numbers[name][i] if numbers[name] else None for name in ("strides", "pads", "dilations")
        )
        made = ops.conv(t, weight, stride, pads, gaps, t.shape[1] // weight.shape[1])
        found.append(ops.add(made, ops.reshape(bias[0], (-1, *(1,) * (t.rank - 2)))) if bias else made)
    return found


def _ints(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


# Splines


@_graphcore("SplineBasis")
def _spline_basis(node: Node, places: Tensor, sizes: Tensor, is_open: Tensor) -> list[Tensor]:
    """B-spline bases at places in [0, 1]^D, and the indices of their control points; Fey et al. 2018."""
    degree, (edges, dims) = node.integer("degree", 1), places.shape
    count = (degree + 1) ** dims
    basis = ops.expand(node.like(1, places), (edges, count))
    index = node.constant(np.zeros((edges, count)), dtypes.int32)
    offset = node.constant(1, dtypes.int32)
    for d in range(dims):
        size = cast(ops.slice(ops.flatten(sizes), [d], [d + 1]), dtypes.int32)
        is_open_d = cast(ops.slice(ops.flatten(is_open), [d], [d + 1]), dtypes.int32)
        cells = ops.sub(size, ops.mul(node.constant(degree, dtypes.int32), is_open_d))
        place = ops.mul(ops.slice(places, [d], [d + 1], axis=[1]), cast(cells, places.dtype))
        cell = ops.floor(place)
        which = (np.arange(count) // (degree + 1) ** d) % (degree + 1)
        point = ops.add(cast(cell, dtypes.int32), node.constant(which.reshape(1, -1), dtypes.int32))
        wrapped = ops.sub(point, ops.mul(size, ops.div(point, size)))
        index = ops.add(index, ops.mul(wrapped, offset))
        offset = ops.mul(offset, size)
        basis = ops.mul(basis, _spline(node, ops.sub(place, cell), degree, which))
    return [basis, index]


_SPLINES = {  # coefficients of 1, v, v**2, v**3 for each control point
    1: [[1, -1], [0, 1]],
    2: [[0.5, -1, 0.5], [0.5, 1, -1], [0, 0, 0.5]],
    3: [[1 / 6, -0.5, 0.5, -1 / 6], [4 / 6, 0, -1, 0.5], [1 / 6, 0.5, 0.5, -0.5], [0, 0, 0, 1 / 6]],
}


def _spline(node: Node, v: Tensor, degree: int, which: Any) -> Tensor:
    if degree not in _SPLINES:
        raise NotSupportedError(f"of degree {degree}")
    table = np.array(_SPLINES[degree])[which]
    total = node.like(table[:, degree].reshape(1, -1), v)
    for power in reversed(range(degree)):
        total = ops.add(ops.mul(total, v), node.like(table[:, power].reshape(1, -1), v))
    return total


@_graphcore("SplineWeighting", kind="plain")
def _spline_weighting(t: Tensor, weight: Tensor, basis: Tensor, index: Tensor) -> Tensor:
    """``out[e]`` is the sum over s of ``basis[e, s] * t[e] @ weight[index[e, s]]``."""
    edges, features = t.shape
    chosen = ops.gather(weight, cast(index, dtypes.int32), 0)
    products = ops.matmul(ops.reshape(t, (edges, 1, 1, features)), chosen)
    rows = ops.reshape(products, (edges, index.shape[1], weight.shape[2]))
    return ops.sum(ops.mul(rows, ops.reshape(basis, (*basis.shape, 1))), 1)
