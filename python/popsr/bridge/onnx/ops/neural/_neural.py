"""Products, norms, losses and dropout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from popsr import dtypes, ops
from popsr._program.tensor import Tensor
from popsr.bridge.onnx._node import Node, Value, cast, is_float
from popsr.bridge.onnx._rules import NotSupportedError, rule
from popsr.bridge.onnx._tensors import expanded, moved, reshaped
from popsr.bridge.onnx._types import dtype_of
from popsr.bridge.onnx.ops.shape._indexing import rows_at

__all__ = ["gemm", "normalised", "rms_norm"]

# Products


@rule("MatMul", kind="plain")
def _matmul(a: Tensor, b: Tensor) -> Tensor:
    return product(a, b)


def product(a: Tensor, b: Tensor) -> Tensor:
    """``matmul``; exact for whole numbers, narrow ones as 64-bit floats, which hold their sums."""
    if is_float(a.dtype):
        return ops.matmul(a, b)
    if a.dtype.as_numpy().itemsize <= 2:
        return cast(ops.matmul(cast(a, dtypes.float64), cast(b, dtypes.float64)), a.dtype)
    if a.rank < 2 or b.rank < 2:
        raise NotSupportedError(f"vectors of {a.dtype.name}")
    left, right = reshaped(a, (*a.shape, 1)), reshaped(b, (*b.shape[:-2], 1, *b.shape[-2:]))
    return ops.sum(ops.mul(left, right), [-2], False)


@rule("Gemm", since=1)
def gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    a = moved(a, (1, 0)) if node.integer("transA", 0) else a
    b = moved(b, (1, 0)) if node.integer("transB", 0) else b
    made = product(a, b)
    made = made if alpha == 1.0 else ops.mul(made, node.like(alpha, made))
    if c is None or beta == 0.0:
        return made
    return ops.add(made, c if beta == 1.0 else ops.mul(c, node.like(beta, c)))


@rule("Det", since=11)
def _det(_node: Node, t: Tensor) -> Tensor:
    """By the rule of Leibniz."""
    n = t.shape[-1]
    if n > 3:
        raise NotSupportedError(f"{n} rows")
    rows = [[reshaped(_entry(t, i, j), t.shape[:-2]) for j in range(n)] for i in range(n)]
    return _leibniz(rows)


def _entry(t: Tensor, i: int, j: int) -> Tensor:
    return ops.slice(t, [i, j], [i + 1, j + 1], [1, 1], [t.rank - 2, t.rank - 1])


def _leibniz(rows: list[list[Tensor]]) -> Tensor:
    if len(rows) == 1:
        return rows[0][0]
    total: Tensor | None = None
    for j, factor in enumerate(rows[0]):
        term = ops.mul(factor, _leibniz([row[:j] + row[j + 1 :] for row in rows[1:]]))
        total = term if total is None else (ops.sub if j % 2 else ops.add)(total, term)
    assert total is not None
    return total


# Norms


def normalised(node: Node, t: Tensor, axes: list[int], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Less the mean, over the standard deviation; and these two."""
    mean = ops.mean(t, axes, True)
    scale = ops.rsqrt(ops.add(ops.var(t, axes, True, 0.0), node.like(epsilon, t)))
    return ops.mul(ops.sub(t, mean), scale), mean, scale


def _stashed(node: Node, t: Tensor) -> Tensor:
    """The operand in the type in which it is normalised: narrow floats as float32, as ``stash_type`` says."""
    kind = dtype_of(node.integer("stash_type", 1))
    if kind not in (dtypes.float32, t.dtype):
        raise NotSupportedError(f"stash_type {kind.name}")
    return cast(t, kind) if t.dtype in (dtypes.float16, dtypes.bfloat16) else t


def _per_channel(t: Tensor, like: Tensor) -> Tensor:
    return reshaped(t, (t.nelms, *(1,) * (like.rank - 2)))


@rule("BatchNormalization", since=14)
def _batch_norm(
    node: Node, t: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor
) -> list[Tensor]:
    return _batch_normalised(node, t, (scale, bias, mean, var), bool(node.integer("training_mode", 0)))


@rule("BatchNormalization", since=7)
def _batch_norm_7(node: Node, t: Tensor, *operands: Tensor) -> list[Tensor]:
    """With several results in training mode, whose last two are the batch's mean and variance."""
    if node.results() > 3:
        raise NotSupportedError("with saved statistics")
    return _batch_normalised(node, t, operands, node.results() > 1)


@rule("BatchNormalization", since=1)
def _batch_norm_1(node: Node, t: Tensor, *operands: Tensor) -> list[Tensor]:
    """With ``is_test`` not in training mode; without, its one result is not defined by all readers alike."""
    if not node.integer("is_test", 0):
        raise NotSupportedError("of an opset before 7 without is_test")
    return _batch_normalised(node, t, operands, False)


def _batch_normalised(node: Node, t: Tensor, operands: Sequence[Tensor], training: bool) -> list[Tensor]:
    """The norm with statistics of each channel, with ``spatial=0`` of each element of a sample."""
    spatial = bool(node.integer("spatial", 1))
    if training and not spatial:
        raise NotSupportedError("with statistics of each element in training mode")

    def wide(each: Tensor) -> Tensor:
        each = cast(each, t.dtype)
        return _per_channel(each, t) if spatial else reshaped(each, t.shape[1:])

    scale, bias, mean, var = operands
    epsilon = node.number("epsilon", 1e-5)
    scale, bias = wide(scale), wide(bias)
    if not training:
        wide_mean, wide_var = wide(mean), wide(var)
        factor = ops.mul(scale, ops.rsqrt(ops.add(wide_var, node.like(epsilon, t))))
        return [ops.add(ops.mul(ops.sub(t, wide_mean), factor), bias)]
    axes = [0, *range(2, t.rank)]
    normal, own, _ = normalised(node, t, axes, epsilon)
    share = node.number("momentum", 0.9)
    own_mean = cast(reshaped(own, mean.shape), mean.dtype)
    own_var = cast(ops.var(t, axes, False, 0.0), var.dtype)
    running = [
        ops.add(ops.mul(old, node.like(share, old)), ops.mul(new, node.like(1 - share, new)))
        for old, new in ((mean, own_mean), (var, own_var))
    ]
    return [ops.add(ops.mul(normal, scale), bias), *running]


@rule("InstanceNormalization", since=1)
def _instance_norm(node: Node, t: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    normal, _, _ = normalised(node, t, list(range(2, t.rank)), node.number("epsilon", 1e-5))
    return ops.add(ops.mul(normal, _per_channel(scale, t)), _per_channel(bias, t))


@rule("LayerNormalization")
def _layer_norm(node: Node, t: Tensor, scale: Tensor, bias: Tensor | None = None) -> list[Tensor]:
    """Also of opset 16 and before, as onnxruntime writes it where it fuses ops."""
    wide = _stashed(node, t)
    axes = list(range(node.axis("axis", t.rank, -1), t.rank))
    epsilon = node.number("epsilon", 1e-5)
    if not node.wants(1) and not node.wants(2) and len(axes) == 1 and bias is not None and scale.rank == 1:
        rows = reshaped(t, (t.nelms // t.shape[-1], t.shape[-1]))
        return [reshaped(ops.layer_norm(rows, scale, bias, epsilon), t.shape)]
    normal, mean, deviation = normalised(node, wide, axes, epsilon)
    made = ops.mul(cast(normal, t.dtype), scale)
    return [made if bias is None else ops.add(made, bias), mean, deviation]


@rule("RMSNormalization", since=23)
def rms_norm(node: Node, t: Tensor, scale: Tensor) -> Tensor:
    axes = list(range(node.axis("axis", t.rank, -1), t.rank))
    wide = _stashed(node, t)
    square = ops.mean(ops.square(wide), axes, True)
    normal = ops.mul(wide, ops.rsqrt(ops.add(square, node.like(node.number("epsilon", 1e-5), wide))))
    return ops.mul(cast(normal, scale.dtype), scale)


@rule("GroupNormalization", since=21)
def _group_norm(node: Node, t: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    normal = _of_groups(node, t)
    return ops.add(ops.mul(normal, _per_channel(scale, t)), _per_channel(bias, t))


@rule("GroupNormalization", since=18)
def _group_norm_18(node: Node, t: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """With a factor and a shift of each group."""
    groups = node.integer("num_groups")
    rows = reshaped(_of_groups(node, t), (t.shape[0], groups, t.nelms // (t.shape[0] * groups)))
    wide = [reshaped(each, (groups, 1)) for each in (scale, bias)]
    return reshaped(ops.add(ops.mul(rows, wide[0]), wide[1]), t.shape)


def _of_groups(node: Node, t: Tensor) -> Tensor:
    """Each group of channels of a sample, normalised."""
    groups = node.integer("num_groups")
    rows = reshaped(_stashed(node, t), (t.shape[0], groups, t.nelms // (t.shape[0] * groups)))
    normal, _, _ = normalised(node, rows, [2], node.number("epsilon", 1e-5))
    return cast(reshaped(normal, t.shape), t.dtype)


@rule("LpNormalization", since=1)
def _lp_norm(node: Node, t: Tensor) -> Tensor:
    """Zeros stay zeros."""
    axis, p = [node.axis("axis", t.rank, -1)], node.integer("p", 2)
    if p not in (1, 2):
        raise ValueError(f"p {p}, expected 1 or 2")
    length = (ops.l1 if p == 1 else ops.l2)(t, axis, True)
    zero = node.like(0, length)
    return ops.div(t, ops.where(ops.equal(length, zero), node.like(1, length), length))


@rule("LRN")
def _lrn(node: Node, t: Tensor) -> Tensor:
    """Over the mean of squares of neighbour channels."""
    size, before = node.integer("size"), (node.integer("size") - 1) // 2
    if size < 1:
        raise ValueError(f"size {size}, expected 1 or more")
    window = [1] * t.rank
    low, high = [0] * t.rank, [0] * t.rank
    window[1], low[1], high[1] = size, before, size - 1 - before
    sums = ops.reduce_window(ops.square(t), window, low=low, high=high, reduction="sum")
    scaled = ops.mul(sums, node.like(node.number("alpha", 1e-4) / size, t))
    base = ops.add(scaled, node.like(node.number("bias", 1.0), t))
    return ops.div(t, ops.pow(base, node.like(node.number("beta", 0.75), t)))


# Losses


@rule("NegativeLogLikelihoodLoss", since=12)
def _nll(node: Node, scores: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    return _likelihood(node, scores, target, weight)


@rule("SoftmaxCrossEntropyLoss", since=12)
def _cross_entropy(node: Node, scores: Tensor, target: Tensor, weight: Tensor | None = None) -> list[Tensor]:
    logs = ops.log_softmax(scores, 1)
    return [_likelihood(node, logs, target, weight), logs]


def _likelihood(node: Node, logs: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """Of the target's class, weighted by class; samples of ``ignore_index`` do not count."""
    classes, labels = logs.shape[1], cast(target, dtypes.int64)
    samples = (logs.shape[0], *logs.shape[2:])
    if labels.shape != samples:
        raise ValueError(f"labels of shape {list(labels.shape)}, expected {list(samples)}")
    rows = moved(logs, (0, *range(2, logs.rank), 1))
    kept: Tensor | None = None
    if node.has("ignore_index"):
        kept = ops.not_equal(labels, node.like(node.integer("ignore_index"), labels))
        labels = ops.where(kept, labels, node.like(0, labels))
    flat = reshaped(rows, (labels.nelms, classes))
    chosen = reshaped(rows_at(flat, reshaped(labels, (labels.nelms,)), 1), labels.shape)
    loss = ops.negate(chosen)
    weights = None if weight is None else ops.gather(weight, labels, 0)
    if kept is not None:
        one = expanded(node.like(1, loss), labels.shape) if weights is None else weights
        weights = ops.where(kept, one, node.like(0, loss))
    if weights is not None:
        loss = ops.mul(loss, weights)
    reduction = node.text("reduction", "mean")
    if reduction == "none":
        return loss
    total = ops.sum(loss)
    if reduction == "sum":
        return total
    count = node.like(labels.nelms, loss) if weights is None else ops.sum(weights)
    return ops.div(total, count)


# Dropout


@rule("Dropout", since=12, kind="raw")
def _dropout(node: Node, value: Value, ratio: Value = None, training: Value = None) -> list[Tensor]:
    """The operand, and a mask of ones; in training mode elements are dropped, from a seed of the attribute."""
    t = node.tensor(value)
    part = 0.5 if ratio is None else node.known_float(ratio, "ratio")
    if training is None or not node.known(training, "training_mode").any() or part == 0.0:
        return [t, _mask(node, t)]
    return _dropped(node, t, part)


def _dropped(node: Node, t: Tensor, part: float) -> list[Tensor]:
    """The operand without a part of its elements, the others as much greater; and where they are."""
    ones = expanded(node.like(1, t), t.shape)
    seed = node.constant(np.array([node.integer("seed", 0), node.position], np.uint32), dtypes.uint32)
    kept = ops.dropout(ones, seed, part)
    return [ops.mul(t, kept), ops.not_equal(kept, node.like(0, kept))]


@rule("Dropout", since=10)
def _dropout_10(node: Node, t: Tensor) -> list[Tensor]:
    return [t, _mask(node, t)]


@rule("Dropout", since=7)
def _dropout_7(node: Node, t: Tensor) -> list[Tensor]:
    """With a mask of the operand's type."""
    return [t, cast(_mask(node, t), t.dtype)]


@rule("Dropout", since=1)
def _dropout_1(node: Node, t: Tensor) -> list[Tensor]:
    """Dropout in training mode, unless ``is_test`` is set."""
    part = node.number("ratio", 0.5)
    made = [t, _mask(node, t)] if node.integer("is_test", 0) or not part else _dropped(node, t, part)
    return [made[0], cast(made[1], t.dtype)]


def _mask(node: Node, t: Tensor) -> Tensor:
    return expanded(node.constant(True, dtypes.bool), t.shape) if node.wants(1) else t
